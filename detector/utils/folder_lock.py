"""Locks that let one process at a time write to a folder or a file."""

import os
import re
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from detector.utils.errors import UserError
from detector.utils.files import name_beside
from detector.utils.outputs import make_folder
from detector.utils.ranks import is_main

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None  # type: ignore[assignment]


@contextmanager
def folder_lock(folder: str | Path) -> Iterator[None]:
    """Hold the lock file `.lock` of a folder, which is created if missing, while the block runs.

    The lock file is removed after the block, and so is a folder that was made for it if it is empty: what
    fails before its first result leaves nothing behind. The system releases the lock when the process ends,
    however it ends. It is a POSIX lock because forked workers, which may survive a kill, would inherit one of
    `flock`. Of the processes of torchrun, only the main one takes it. File systems without locks are used
    unlocked.

    Raises:
        UserError: another process holds the lock; names the process, its machine and its command. Or there
            is a file in place of the folder, or one of the lock that is not of this kind.
    """
    folder = Path(folder)
    made = make_folder(folder)
    try:
        with _lock(folder / ".lock", f"{folder} is in use by", "folder"):
            yield
    finally:
        if is_main():
            with suppress(OSError):  # the first that is not empty ends it
                for path in made:
                    path.rmdir()


@contextmanager
def file_lock(path: str | Path) -> Iterator[None]:
    """Hold the lock file `.NAME.lock` beside a file that is to be written, while the block runs.

    Everything else is as in :func:`folder_lock`.

    Raises:
        UserError: as of :func:`folder_lock`.
        OSError: the lock file cannot be made, for example because its folder does not exist.
    """
    path = Path(path)
    with _lock(name_beside(path, ".", ".lock"), f"{path} is being made by", "file"):
        yield


@contextmanager
def _lock(lock: Path, in_use: str, kind: str) -> Iterator[None]:
    if fcntl is None or not is_main():
        yield
        return
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            holder = os.read(descriptor, 1000).decode(errors="replace").strip() or "another process"
            raise UserError(
                f"{in_use} {holder}: wait until it has ended, stop it, or name another {kind}"
            ) from None
        except OSError:
            pass  # this file system has no locks
        if not _is_ours(descriptor):
            raise UserError(
                f"{lock} was not written by detector and would be lost: rename it, or name another {kind}"
            )
        if not _is_same(lock, descriptor):
            raise UserError(f"{in_use} another process, which has just ended: run the command again")
        os.ftruncate(descriptor, 0)
        command = " ".join(sys.argv)
        holder = f"process {os.getpid()} on {socket.gethostname()} ({command})\n"
        with suppress(OSError):  # the disk is full: the first write of a result says so, and names its file
            os.pwrite(descriptor, os.fsencode(holder), 0)
        try:
            yield
        finally:
            with suppress(OSError):
                if _is_same(lock, descriptor):  # else the folder was moved, and this is a lock of another
                    lock.unlink()  # before the lock is released
    finally:
        os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    """Whether the open file is a lock of an earlier process, or empty, as it is at first."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return False
    found = os.pread(descriptor, 1000, 0)
    return not found or re.match(rb"process \d+ on ", found) is not None


def _is_same(path: Path, descriptor: int) -> bool:
    """Whether the open file is still at `path`: its holder may have removed it before releasing the lock."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
