"""Results that a command appends to a file one by one, each a line of JSON with a checksum.

After a kill, the same command reads what is there and computes the rest.
"""

import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from detector.utils.errors import DataError
from detector.utils.files import append_line, reading

logger = logging.getLogger(__name__)


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record to a file, see :func:`append_line`."""
    content = json.dumps(record, allow_nan=False).encode()
    append_line(path, _checksum(content) + b" " + content, "file of results")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; a line that was torn by a kill or damaged since is omitted, with a warning."""
    return (record for _, record in _scan(path))


class ImageRecords(Mapping[str, dict[str, Any]]):
    """The records with an `image_id` of some files, by it; of several with one id, the last.

    Only their places are kept in memory: a record is read and verified each time it is asked for.

    Raises:
        DataError: of an access, the file was changed since.
    """

    def __init__(self, paths: Iterable[Path]) -> None:
        self._places: dict[str, tuple[Path, int]] = {}
        for path in paths:
            self._places |= {
                record["image_id"]: (path, offset) for offset, record in _scan(path) if "image_id" in record
            }

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __getitem__(self, image_id: str) -> dict[str, Any]:
        path, offset = self._places[image_id]
        with reading(path, "file of results"), open(path, "rb") as file:
            file.seek(offset)
            record = _decode(file.readline())
        if record is None or record.get("image_id") != image_id:
            raise DataError(f"{path} was changed while it was in use: run the same command again")
        return record


def _scan(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a file, and where in it their lines begin, in bytes."""
    offset = 0
    with reading(path, "file of results"), open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if (record := _decode(line)) is not None:
                yield offset, record
            elif line.strip():
                logger.warning("%s: line %d is damaged, its result is computed again", path, number)
            offset += len(line)


def _decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line; None if it is empty or damaged."""
    checksum, _, content = line.rstrip(b"\n").partition(b" ")
    if not checksum or checksum != _checksum(content):
        return None
    record: dict[str, Any] = json.loads(content)
    return record


def _checksum(content: bytes) -> bytes:
    return b"%08x" % zlib.crc32(content)
