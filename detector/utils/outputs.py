"""Output folders in which a command replaces and deletes only files that it wrote itself."""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from detector.utils.errors import UserError
from detector.utils.files import append_line, atomic_write, file_digest, inside, read_text

RECORD = ".detector-outputs.jsonl"


def make_folder(folder: Path) -> list[Path]:
    """Make a folder and those around it; returns those that were missing, the innermost first.

    Raises:
        UserError: there is a file in place of one of them; names it.
    """
    around = [folder, *folder.parents]
    missing = [path for path in around if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next((path for path in around if path.exists() and not path.is_dir()), folder)
        place = "" if file == folder else f"{folder}: "
        raise UserError(f"{place}{file} is a file, expected a folder to write to: name another one") from None
    return missing


class SameFolder:
    """Notices when a folder is moved, deleted or replaced by another while a command writes to it.

    Raises:
        UserError: as :func:`make_folder`, which makes it if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.folder, self._status = folder, os.stat(folder)

    @contextmanager
    def written(self) -> Iterator[None]:
        """Check before and, where a file cannot be written, after a block that writes to the folder.

        The block must not create parent folders, because this one may have been moved.
        """
        self.check()
        try:
            yield
        except OSError:
            self.check()
            raise

    def check(self) -> None:
        """Raise a UserError where the path does not lead to the same folder any more."""
        try:
            now = os.stat(self.folder)
        except OSError:
            found = "was moved or deleted"
        else:
            if os.path.samestat(now, self._status):
                return
            found = "was moved or deleted, and another folder is in its place"
        raise UserError(
            f"the folder {self.folder} {found} while it was written to: nothing more is written. To go on, "
            "move it back, or name its new place (OUTPUT_DIR of a run), and run the same command again, a "
            "training with --resume"
        )


class OutputFolder:
    """A folder to write to, in which only files that the same command made are replaced or deleted.

    The file `.detector-outputs.jsonl` of the folder lists the name, the SHA-256 and the key of each file. An
    entry is added before its file is written, so the list is complete after a kill. A file that is not
    listed, has another key, or was changed since may be the user's work and is never touched.

    Args:
        folder: created with the first file.
        key: identifies what the files are made from, such as a hash of the weights and the options. A command
            may replace files with the same key.

    Raises:
        UserError, OSError: the folder is a file, or the list cannot be read. Of all that write: it was moved,
            deleted or replaced since it was first seen.
    """

    def __init__(self, folder: str | Path, key: str) -> None:
        self.folder, self.key = Path(folder), key
        if self.folder.is_file():
            raise UserError(f"{folder} is a file, expected a folder to write to: name another one")
        self._digests = _read_record(self.folder / RECORD, key)  # by name, the digests of all versions
        self._written: set[str] = set()
        self._place = SameFolder(self.folder) if self.folder.is_dir() else None

    def path(self, name: str) -> Path:
        """The path of the file `name`, which is relative to the folder."""
        return inside(self.folder, name)

    def made(self, name: str) -> bool:
        """Whether the file exists and was written with this key."""
        path, digests = self.path(name), self._digests.get(name)
        if not digests or self._linked(name) or not stat.S_ISREG(_mode(path)):
            return False
        return file_digest(path) in digests

    def check(self, names: Iterable[str]) -> None:
        """Check, before a long computation, that files of these names may be written.

        Raises:
            UserError: one of them exists and was not written by this command, or is below a linked folder.
        """
        if self._place is None and self.folder.is_dir():
            self._place = SameFolder(self.folder)
        for name in names:
            path = self.path(name)
            if link := self._linked(name):
                raise UserError(
                    f"{link} is a symbolic link, so {path} would be written outside of {self.folder}: remove "
                    "the link, or name another folder to write to"
                )
            if _mode(path) and not self.made(name):
                raise UserError(
                    f"{path} exists and is not what this command wrote there (another command made it, or it "
                    "was changed since): move or delete it, or name another folder to write to"
                )

    def _linked(self, name: str) -> Path | None:
        """The folder around a file, below this one, that is a link to elsewhere."""
        around = [path for path in self.path(name).parents if self.folder in path.parents]
        return next((path for path in reversed(around) if path.is_symlink()), None)

    def write(self, name: str, content: bytes) -> Path:
        """Write a file atomically and return its path; missing folders are created.

        Raises:
            UserError: as :meth:`check`; this command has already written a file of that name; or the folder
                is another than before.
            OSError: the file cannot be written.
        """
        if name in self._written:
            raise UserError(
                f"two results would both be written to {self.path(name)}: make them one at a time"
            )
        if self._place:
            self._place.check()
        self.check([name])
        self._place = self._place or SameFolder(self.folder)
        path, digests = self.path(name), self._digests.setdefault(name, set())
        path.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(content).hexdigest()
        if digest not in digests:
            entry = {"file": name, "key": self.key, "sha256": digest}
            append_line(self.folder / RECORD, json.dumps(entry).encode(), "list of outputs")
            digests.add(digest)
        self._written.add(name)
        with atomic_write(path) as file:
            file.write(content)
        return path

    def remove_earlier(self, below: str = "") -> None:
        """Delete files that an earlier command with this key wrote and this one did not.

        Args:
            below: only those in this folder, relative to the output folder.
        """
        if self._place:
            self._place.check()
        for name in self._digests:
            if (
                name.startswith(f"{below}/" if below else "")
                and name not in self._written
                and self.made(name)
            ):
                self.path(name).unlink()


def _mode(path: Path) -> int:
    """The type and permissions of a file, of a link itself; 0: there is none."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _read_record(path: Path, key: str) -> dict[str, set[str]]:
    digests: dict[str, set[str]] = {}
    if not _mode(path):
        return digests
    for line in read_text(path, "list of outputs").splitlines():
        try:
            entry = json.loads(line)
            if entry["key"] == key:
                digests.setdefault(str(entry["file"]), set()).add(entry["sha256"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # incomplete or damaged: its file counts as not listed and is not touched
    return digests
