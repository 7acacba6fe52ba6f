"""Results that a command appends to a file one by one, each a line of JSON with a checksum.

After a kill, the same command reads what is there and computes the rest.
"""

import json
import logging
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from detector.utils.files import append_line, reading

logger = logging.getLogger(__name__)


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record to a file, see :func:`append_line`."""
    content = json.dumps(record, allow_nan=False).encode()
    append_line(path, _checksum(content) + b" " + content, "file of results")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file; a line that was torn by a kill or damaged since is omitted, with a warning."""
    with reading(path, "file of results"), open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            checksum, _, content = line.rstrip(b"\n").partition(b" ")
            if checksum and checksum == _checksum(content):
                yield json.loads(content)
            elif checksum:
                logger.warning("%s: line %d is damaged, its result is computed again", path, number)


def _checksum(content: bytes) -> bytes:
    return b"%08x" % zlib.crc32(content)
