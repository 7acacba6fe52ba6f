"""Prefetching in threads, for functions that release the GIL, as those of OpenCV do."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[tuple[Item, Future[Result]]]:
    """Yield each item with the future of `function(item)`, in order.

    Up to `threads` calls run at a time, and up to twice as many results wait to be consumed. The items are
    iterated in the caller's thread.
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
