"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file to write that takes the place of `path` only once it is complete and on the disk.

    The folder's entry is on the disk too when this returns: the file outlives a loss of power.

    Whatever goes wrong, Ctrl-C too, leaves a file that was at `path` before as it was, and nothing beside it.

    Raises:
        OSError: it could not be written, as on a full disk; names the path.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # torch.save reports a failed write as a RuntimeError of its own, with the OSError for its context.
        for cause in (error, error.__context__):
            if isinstance(cause, OSError):
                raise OSError(f"cannot write {path}: {cause.strerror or cause}") from error
        raise


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # where a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
