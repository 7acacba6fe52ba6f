"""Work done ahead of its use, in threads: for functions that let go of Python's lock, as OpenCV's do."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[tuple[Item, Future[Result]]]:
    """Each item and its future result, in order; `threads` calls run at once, and twice as many wait at most.

    What the function raises is raised by the future's `result()`. Items are drawn in the caller's thread.
    """
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[tuple[Item, Future[Result]]] = deque()
        try:
            for item in items:
                begun.append((item, pool.submit(function, item)))
                if len(begun) > 2 * threads:
                    yield begun.popleft()
            while begun:
                yield begun.popleft()
        finally:
            for _, future in begun:
                future.cancel()
