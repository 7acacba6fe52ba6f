"""Atomic writing and checked reading of files, with errors that name the file."""

import codecs
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from detector.utils.errors import DataError, UserError, is_out_of_memory, missing_path_message

if TYPE_CHECKING:
    from PIL.Image import Image

_DRIVE = re.compile("[A-Za-z]:")  # of Windows
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters and halves of others
_OTHER_BYTES = re.compile("[\udc80-\udcff]")  # as Python reads those of a name that is not UTF-8
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_TEMPORARY = re.compile(r"\.detector-[0-9a-f]{12}-[0-9a-f]{16}\.tmp")
_LONGEST_NAME, _RESERVED = 255, 8  # bytes, of most file systems; for the number of a rank
_TEXT_LIMIT = 2**31  # bytes; COCO's largest annotation file has 0.5 GB


@contextmanager
def atomic_write(path: str | Path, mode: str = "wb") -> Iterator[IO[Any]]:
    """Open a file for writing that replaces `path` once it is complete and on the disk.

    The folder entry is synchronized too, so the file survives a loss of power. A file that was at `path`
    keeps its permissions. On any failure, including Ctrl-C, an earlier file at `path` is unchanged and no
    temporary file remains; what a killed process left is removed by the next that writes the same file.

    Raises:
        OSError: the file could not be written, for example because the disk is full; names the path.
    """
    path = Path(path)
    temporary = temporary_beside(path)
    try:
        remove_temporary(path)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, flags, _permissions(path))
        with open(descriptor, mode, encoding=None if "b" in mode else "utf-8") as file:
            if hasattr(os, "fchmod") and path.is_file():
                os.fchmod(descriptor, _permissions(path))  # os.open applied the umask
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # torch.save reports a failed write as a RuntimeError whose context is the OSError.
        for cause in (error, error.__context__):
            if isinstance(cause, OSError):
                raise OSError(f"cannot write {path}: {cause.strerror or cause}") from error
        raise


def name_beside(path: Path, prefix: str = "", suffix: str = "") -> Path:
    """The path with a prefix and a suffix of its name, or a short name of its own where that is too long."""
    name = f"{prefix}{path.name}{suffix}"
    if len(os.fsencode(name)) + _RESERVED > _LONGEST_NAME:
        name = f"{prefix or '.'}detector-{_name_digest(path)}{suffix}"
    return path.with_name(name)


def temporary_beside(path: Path) -> Path:
    """A temporary name for the file that will replace `path`; it is unique and never too long."""
    return path.with_name(f".detector-{_name_digest(path)}-{secrets.token_hex(8)}.tmp")


def remove_temporary(path: Path) -> None:
    """Remove temporary files of killed processes, named by :func:`temporary_beside` for the same `path`."""
    for left in all_temporary(path.parent):
        if left.name.startswith(f".detector-{_name_digest(path)}-"):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def all_temporary(folder: Path) -> list[Path]:
    """All files in a folder with a name of :func:`temporary_beside`."""
    return [path for path in folder.glob(".detector-*.tmp") if _TEMPORARY.fullmatch(path.name)]


def _name_digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.name)).hexdigest()[:12]


def encode_image(image: "Image", form: str, **options: Any) -> bytes:
    """The content of a "png" or "jpeg" file; `options` are those of Pillow's encoder.

    Pictures are always encoded in memory, because Pillow ignores a short write to a full disk.
    """
    buffer = BytesIO()
    image.save(buffer, format=form, **options)
    return buffer.getvalue()


def write_new(path: str | Path, content: bytes) -> None:
    """Write one of many files of a folder that is not used before it is complete.

    Faster than :func:`atomic_write`, because it does not wait for the disk.

    Raises:
        OSError: the file could not be written; names the path.
    """
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def file_digest(path: str | Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()


def archive_digest(path: str | Path) -> str:
    """SHA-256 of a file; of a ZIP archive, such as .npz, only of its members' names, sizes and checksums.

    These are at the end of the archive, so gigabytes need not be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [(member.filename, member.file_size, member.CRC) for member in archive.infolist()]
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return file_digest(path)
    return hashlib.sha256(json.dumps(members).encode()).hexdigest()


@contextmanager
def reading(path: str | Path, kind: str = "file") -> Iterator[None]:
    """Convert every exception of a reader into one that names the file; a MemoryError stays one.

    Args:
        path: the file that the block reads.
        kind: what the file is for, such as "checkpoint"; it begins the message.

    Raises:
        FileNotFoundError, OSError: the file does not exist, or the system cannot read it.
        DataError: it is not a regular file, or its content is not what the reader expects. A UserError that
            already names the file passes unchanged.
    """
    check_regular(path, kind)
    try:
        yield
    except UserError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{kind} {path}: {error}") from error
    except FileNotFoundError as error:  # another file, as this one is there
        raise FileNotFoundError(f"{kind} {path}: {error}") from error
    except OSError as error:
        if is_out_of_memory(error):  # Pillow's
            raise MemoryError(f"{kind} {path}: {error}") from error
        # A parser's own error has no number; EINVAL is a seek before the start of the file.
        if error.errno in (None, errno.EINVAL):
            raise DataError(f"{kind} {path} is damaged or of another format: {error}") from error
        raise OSError(f"{kind} {path} cannot be read: {error.strerror or error}") from error
    except MemoryError:  # the file may be good
        raise
    except RecursionError as error:
        found = f"its values are nested too deep, or in themselves ({error})"
        raise DataError(f"{kind} {path} is damaged or of another format: {found}") from error
    except Exception as error:  # parsers raise many kinds over damaged bytes
        if is_out_of_memory(error):
            raise MemoryError(f"{kind} {path}: {error}") from error
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(f"{kind} {path} is damaged or of another format: {reason}") from error


def check_regular(path: str | Path, kind: str = "file") -> None:
    """Raise where `path` is missing, a folder, or a FIFO or device, which would block the reader forever."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{kind} {missing_path_message(path)}") from error
    except (OSError, ValueError) as error:
        raise OSError(f"{kind} {path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise DataError(f"{kind} {path} is {found}, expected a file")


def check_appendable(path: Path, kind: str) -> None:
    """Raise where `path` is a link or, as :func:`check_regular`, where it exists and is no file."""
    if path.is_symlink():
        raise UserError(f"{kind} {path} is a symbolic link, which is not written to: remove it")
    if path.exists():
        check_regular(path, kind)


def append_line(path: Path, line: bytes, kind: str) -> None:
    """Add a line to a file; once this returns, a kill of this process does not lose it.

    Raises:
        UserError: as :func:`check_appendable`.
        OSError: it cannot be written, for example because the disk is full; names it.
    """
    check_appendable(path, kind)
    try:
        with open(path, "ab") as file:
            file.write(b"\n" + line + b"\n")  # a kill may have torn the last line
    except OSError as error:
        raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def read_text(path: str | Path, kind: str = "file", limit: int = _TEXT_LIMIT) -> str:
    """The text of a file of at most `limit` bytes, without a byte order mark; errors name it.

    It is UTF-8, or UTF-16 with such a mark, as Excel and PowerShell write it.
    """
    with reading(path, kind):
        if (size := os.stat(path).st_size) > limit:
            raise DataError(f"{kind} {path} has {size} bytes, expected at most {limit}")
        try:
            with open(path, "rb") as file:
                marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            return Path(path).read_text(encoding="utf-16" if marked else "utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{kind} {path} is not {error.encoding.upper()} text (line {line}, byte {error.start} is "
                f"{error.object[error.start]:#04x}): save it as UTF-8"
            ) from None


def read_json(path: str | Path, kind: str = "file") -> dict[str, Any]:
    """The object in a JSON file; errors name the file."""
    text = read_text(path, kind)
    with reading(path, kind):
        content = json.loads(text)
        if not isinstance(content, dict):
            raise DataError(f"it holds a JSON {type(content).__name__}, expected an object")
    return content


def user_path(path: str, *, variables: bool = False) -> str:
    """A path whose "~" or "~NAME" at its start is replaced by the home folder of the user.

    Args:
        variables: $NAME and ${NAME} are replaced, too, by the environment variable.

    Raises:
        UserError: there is no such user or variable, nor a file of that name.
    """
    found = os.path.expanduser(path)
    found = os.path.expandvars(found) if variables else found
    if found.startswith("~") and not os.path.exists(found):
        user = found.partition("/")[0]
        raise UserError(f"there is no user of the home folder {user}: a name that begins with ~ is ./{user}")
    if variables and (name := _VARIABLE.search(found)) and not os.path.exists(found):
        raise UserError(f"there is no environment variable {name[1]}: set it, or write the path itself")
    return found


def relative_name(name: str) -> str:
    """A name of a file below a folder, without redundant parts: "./a//b" becomes "a/b".

    Raises:
        DataError: `name` is empty or absolute, leads out of its folder by "..", or has control characters,
            which would break lists with one name a line.
    """
    slashes = name.replace("\\", "/")  # on Windows, where the file may be read, both separate
    parts = PurePosixPath(slashes).parts
    if not parts or slashes.startswith("/") or ".." in parts or _DRIVE.match(name):
        raise DataError(
            f"{name!r} is not a name inside its folder, expected one without '..' that is not absolute"
        )
    check_printable(name)
    return PurePosixPath(name).as_posix()


def check_printable(text: str) -> None:
    """Raise DataError where a name has a control character, such as a line break, or half a character."""
    check_utf8(text)
    if found := _CONTROL.search(text):
        raise DataError(f"{text!r} has the character {found[0]!r}, which is not allowed in a name")


def check_utf8(text: str) -> None:
    """Raise DataError where a name is not UTF-8."""
    if _OTHER_BYTES.search(text):
        raise DataError(f"the name {text!r} is not UTF-8: rename it, in a folder of many with convmv")


def inside(folder: str | Path, name: str) -> Path:
    """The path of `name` in a folder, for writing.

    Raises:
        DataError: `name` is absolute or leads out of the folder by "..", see :func:`relative_name`.
    """
    try:
        return Path(folder, relative_name(name))
    except DataError as error:
        raise DataError(f"nothing is written outside of {folder}: {error}") from None


def _permissions(path: Path) -> int:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return 0o666


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # where a folder cannot be opened
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
