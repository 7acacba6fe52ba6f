"""A pool of processes that starts no thread, and ends with its parent. It imports nothing large: workers do.

`concurrent.futures` and `multiprocessing.Pool` hand work to their processes in threads; where one of those
cannot start, for lack of memory, the caller waits forever.
"""

import pickle
import signal
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from itertools import islice
from multiprocessing import connection, get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.pool import ExceptionWithTraceback  # type: ignore[attr-defined]
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from detector.utils.interrupts import end_with_parent

Item = TypeVar("Item")
Result = TypeVar("Result")

_HELD = 2  # items that a worker has at once: it need not wait while the caller is busy with its last result


class WorkerLost(Exception):
    """A worker process has ended before its work."""


def map_in_processes(
    begin: Callable[[], Callable[[Item], Result]], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """The result of each item, as they get done. Close it to end the processes.

    At most two items per worker are taken before the caller takes a result: all results would fill the
    memory.

    Args:
        begin: called once in each process; returns what is called with each item. Finding it in its module
            may import for seconds.
        items: small ones, as a path is.

    Raises:
        WorkerLost: a worker process was killed.
        Exception: whatever `begin` or what it returned raised.
    """
    # Spawned, not forked: a fork of a process with threads (OpenCV's, torch's) may hang.
    context, start, waiting = get_context("spawn"), pickle.dumps(begin), iter(items)
    processes: list[BaseProcess] = []
    held: dict[Connection, int] = {}  # items of each worker
    with ExitStack() as at_end:
        at_end.callback(_end, processes, held)
        resource_tracker.ensure_running()  # else the first process starts it, which unblocks the signals
        # Ctrl-C is for this process, which ends its workers: they start here, with the signal blocked. A kill
        # waits until they are started, as one that has got half of what it needs shows a traceback.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            for first in islice(waiting, workers):
                ours, theirs = context.Pipe()
                held[ours] = 0
                process = context.Process(target=_work, args=(start, theirs), daemon=True)
                process.start()
                processes.append(process)
                theirs.close()  # so that this process sees its end when the worker has ended
                _send(ours, first, held)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        while any(held.values()):
            for ours in list(held):
                for item in islice(waiting, _HELD - held[ours]):
                    _send(ours, item, held)
            busy = [ours for ours, count in held.items() if count]
            for ready in connection.wait(busy):
                assert isinstance(ready, Connection)
                succeeded, result = _receive(ready)
                held[ready] -= 1
                if not succeeded:
                    raise result
                for item in islice(waiting, 1):
                    _send(ready, item, held)
                yield result


def _send(ours: Connection, item: object, held: dict[Connection, int]) -> None:
    try:
        ours.send(item)
    except OSError as error:
        raise WorkerLost from error
    held[ours] += 1


def _receive(ours: Connection) -> tuple[bool, Any]:
    try:
        return ours.recv()
    except (EOFError, ConnectionError) as error:
        raise WorkerLost from error


def _end(processes: Iterable[BaseProcess], held: Iterable[Connection]) -> None:
    for process in processes:
        process.kill()  # it writes nothing
    for ours in held:
        ours.close()
    for process in processes:
        process.join()


def _work(start: bytes, theirs: Connection) -> None:
    """What a worker does until its parent closes the connection or ends."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        end_with_parent()
        call = pickle.loads(start)()
        while True:
            theirs.send((True, call(theirs.recv())))
    except (EOFError, ConnectionError):
        return
    except Exception as error:
        theirs.send((False, ExceptionWithTraceback(error, error.__traceback__)))
