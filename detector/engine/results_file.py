"""A cache of test results that a killed test resumes from: a line for each image, with a checksum."""

import json
import logging
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from detector.utils.errors import DataError
from detector.utils.files import check_regular, reading

logger = logging.getLogger(__name__)


def read_results(path: Path, key: str) -> list[Any]:
    """The results in a file, in the order they came; [] where there is none, or it is of another key.

    A line that was torn by a kill or damaged since is left out, with a warning unless it is the last.
    """
    results = []
    lines = _lines(path, key)
    for number, line in enumerate(lines[1:], start=2):
        checksum, _, content = line.rstrip(b"\n").partition(b" ")
        if checksum == _checksum(content) and line.endswith(b"\n"):
            with reading(path, "test results"):
                results.append(json.loads(content))
        elif number < len(lines):
            logger.warning("warning: %s: line %d is damaged, its image is tested again", path, number)
    return results


@contextmanager
def open_results(path: Path, key: str) -> Iterator[Callable[[Any], None]]:
    """A function that appends a result to a file, behind those of the same key that it holds already.

    When the function returns, the operating system has the result: after a kill it is whole or absent.

    Args:
        key: what the results are of, such as a checkpoint and a config.

    Raises:
        DataError: the file is of another key, or is not a file of results.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = _lines(path, key)
    if not lines and path.exists() and not _header(key).startswith(path.read_bytes()):  # a torn first line
        raise DataError(
            f"{path} is of other weights, of another config, or is not a file of test results: "
            "move or delete it, so that the results of this test can be written there"
        )
    with open(path, "r+b" if lines else "wb") as file:
        if lines:
            file.seek(sum(len(line) for line in lines if line.endswith(b"\n")))
            file.truncate()
        else:
            file.write(_header(key))

        def add(result: Any) -> None:
            content = json.dumps(result, allow_nan=False, separators=(",", ":")).encode()
            file.write(_checksum(content) + b" " + content + b"\n")
            file.flush()

        yield add


def remove_results(folder: Path, key: str) -> None:
    """Delete the files of a folder that hold results of this key, and the folder where nothing is left."""
    for path in folder.glob("*.jsonl"):
        if path.is_file() and not path.is_symlink() and _lines(path, key, warn=False):
            path.unlink()
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _lines(path: Path, key: str, *, warn: bool = True) -> list[bytes]:
    """The first line, which holds the key, and a line for each result; [] where the file is none of these."""
    if not path.exists():
        return []
    check_regular(path, "test results")
    with reading(path, "test results"):
        lines = path.read_bytes().splitlines(keepends=True)
    if not lines or lines[0] != _header(key):
        if warn:
            logger.warning("warning: %s is of other weights or another config: it is not used", path)
        return []
    return lines


def _header(key: str) -> bytes:
    return json.dumps({"results_of": key}, separators=(",", ":")).encode() + b"\n"


def _checksum(content: bytes) -> bytes:
    return b"%08x" % zlib.crc32(content)
