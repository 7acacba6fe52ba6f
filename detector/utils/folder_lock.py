"""One process at a time writes to a folder."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detector.utils.distributed import is_main
from detector.utils.errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows, where folders are not locked
    fcntl = None  # type: ignore[assignment]


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Hold the file `.lock` of a folder, which is made if need be, while the block runs.

    The system releases the lock when the process ends, however it ends. Of the processes of one torchrun
    only the main one takes it. File systems without locks, such as some network ones, are used unlocked.

    Raises:
        UserError: another process holds the lock; names the process, its machine and its command.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None or not is_main():
        yield
        return
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode(errors="replace").strip() or "another process"
            raise UserError(
                f"{folder} is in use by {holder}: wait until it has ended, stop it, or name another folder"
            ) from None
        except OSError:
            pass  # this file system has no locks
        os.ftruncate(descriptor, 0)
        command = " ".join(sys.argv)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()} ({command})\n".encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
