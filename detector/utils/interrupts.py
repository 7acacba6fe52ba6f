"""How a process ends: by Ctrl-C, with its parent, or with the reader of its output.

Commands import this first: it imports nothing large.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C until the block has ended.

    For blocks of milliseconds. If the program ignores or handles Ctrl-C itself, nothing changes.
    """
    received: list[int] = []
    with _on_ctrl_c(lambda *_: received.append(1)):
        yield
    if received:
        raise KeyboardInterrupt


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """End the program without a traceback, with status 130, on Ctrl-C during the block.

    For the imports of a command, which take seconds. Raising an exception is not enough, because some
    modules catch it or convert it into an ImportError.
    """

    def leave(*_: object) -> None:
        os.write(2, b"interrupted\n")
        os._exit(130)

    with _on_ctrl_c(leave):
        yield


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End the program without a message if nobody reads its output any more, as in `detector env | head -1`.

    The status, 141, is that of a program that SIGPIPE ends. That signal itself would end a server, too, whose
    client has gone: other broken pipes stay errors.
    """
    try:
        try:
            yield
        finally:
            for stream in _outputs():  # what is left would be written, and fail, after the program
                try:
                    stream.flush()
                except BrokenPipeError:
                    raise
                except OSError:  # such as a full disk: Python reports it at its end
                    pass
    except BrokenPipeError:
        if not output_closed():
            raise
        for stream in _outputs():
            if _closed(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise SystemExit(128 + signal.SIGPIPE) from None


def output_closed() -> bool:
    """Whether standard output or standard error is a pipe that nobody reads any more."""
    return any(map(_closed, _outputs()))


def _outputs() -> list[TextIO]:
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


def _closed(stream: TextIO) -> bool:
    try:
        poll = select.poll()  # not on Windows
        poll.register(stream.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # the last two: it is no file, as in a notebook
        return False
    return bool(poll.poll(0))  # POLLERR or POLLHUP, which need not be asked for


def end_with_parent() -> None:
    """The first call in a spawned process: ends it with its parent, which cannot stop it if it is killed."""
    from multiprocessing import connection, parent_process

    def leave(sentinel: int) -> None:
        connection.wait([sentinel])  # ready once the parent has ended, however it ended
        os._exit(1)

    if (parent := parent_process()) is not None:
        threading.Thread(target=leave, args=(parent.sentinel,), daemon=True).start()


@contextmanager
def _on_ctrl_c(handler: Callable[..., None]) -> Iterator[None]:
    # Only the main thread may set handlers, and only there Python raises KeyboardInterrupt.
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
