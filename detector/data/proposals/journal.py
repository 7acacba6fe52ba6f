"""What a search has found so far, on the disk, so that it can be interrupted."""

import base64
import json
import logging
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from detector.utils.errors import DataError
from detector.utils.files import check_regular, reading

logger = logging.getLogger(__name__)

Found = tuple[tuple[int, int], np.ndarray]  # size (height, width) of an image and its boxes (R, 4) float32
_FORMAT = 2  # 1 had no checksums
_LINE_LIMIT = 2**26  # bytes: three million boxes; a longer line is damaged


class Entry(NamedTuple):
    """Where the journal has the boxes of an image."""

    height: int
    width: int
    boxes: int  # their number
    start: int  # byte in the file
    length: int  # bytes of its record


class Journal:
    """The images done so far: a file, to which each is added as it gets done, and a list of its `entries`.

    The file is a line of parameters, then a line for every image: a CRC-32 of the rest of the line, its id,
    size and number of boxes as JSON, and the boxes in base64. As a record is a line, a damaged one does not
    hide those after it: its image is searched again, and so is one whose record breaks off at the end of the
    file, as when the machine stopped.

    Raises:
        OSError: the file cannot be written, for example because the disk is full; names it.
        DataError: it was begun with other parameters or by an earlier version, or is another file.
    """

    def __init__(self, path: Path, parameters: Mapping[str, object]):
        self.path = path
        self.entries: dict[str, Entry] = {}
        if path.exists():
            check_regular(path, "journal")
        self._output = open(path, "ab", buffering=0)  # noqa: SIM115  both are closed by __exit__
        self._input = open(path, "rb")  # noqa: SIM115
        try:
            with reading(path, "journal"):
                self._read(parameters)
        except BaseException:
            self.__exit__()
            raise

    def _read(self, parameters: Mapping[str, object]) -> None:
        expected = f"{json.dumps({'journal': _FORMAT, **parameters})}\n".encode()
        header = self._input.readline(_LINE_LIMIT)
        if header != expected:
            if self._input.read(1) or header[:1] not in (b"", b"{"):
                earlier = header == f"{json.dumps(parameters)}\n".encode()
                found = "by an earlier version" if earlier else f"with other parameters: {header[:200]!r}"
                raise DataError(
                    f"{self.path} was begun {found}; expected {expected!r}. Delete it to begin anew, or run "
                    "again with its parameters and version"
                )
            # New, or broken off before the first image.
            self._output.truncate(0)
            self._write(expected)
            return
        start, damaged = self._input.tell(), 0
        while line := self._input.readline(_LINE_LIMIT):
            if not line.endswith(b"\n") and len(line) < _LINE_LIMIT:  # broken off
                self._output.truncate(start)  # or the next record would be appended to this one
                break
            record = _parse(line)
            if record is None:
                damaged += 1
            else:
                image_id, height, width, count, _ = record
                self.entries[image_id] = Entry(height, width, count, start, len(line))
            start += len(line)
        if damaged:
            logger.warning(
                "%s has %d damaged records: images without a sound record are searched again",
                self.path,
                damaged,
            )

    def _write(self, data: bytes) -> None:
        # Without a buffer: bytes that did not fit on the disk would be written, and fail, once more on close.
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._output.write(rest) :]
        except OSError as error:
            raise OSError(f"cannot write {self.path}: {error.strerror or error}") from error

    def add(self, image_id: str, found: Found) -> None:
        """Write down what was found in an image."""
        (height, width), boxes = found
        content = boxes.astype("<f4").tobytes()
        about = json.dumps([image_id, int(height), int(width), len(boxes)])
        body = about.encode() + b" " + base64.b64encode(content)
        line = b"%08x %s\n" % (zlib.crc32(body), body)
        start = self._output.seek(0, os.SEEK_END)
        self._write(line)
        self.entries[image_id] = Entry(height, width, len(boxes), start, len(line))

    def read(self, entry: Entry) -> np.ndarray:
        """The boxes (R, 4) float32 of an image.

        Raises:
            DataError: the record was damaged since it was written or first read.
        """
        self._input.seek(entry.start)
        record = _parse(self._input.read(entry.length))
        if record is None:
            raise DataError(
                f"{self.path} was damaged or changed while it was in use: run the same command again"
            )
        return np.frombuffer(record[-1], "<f4").reshape(-1, 4)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._output.close()
        self._input.close()


def _parse(line: bytes) -> tuple[str, int, int, int, bytes] | None:
    """Id, height, width, number of boxes and their bytes; None where the record is damaged."""
    checksum, _, body = line.removesuffix(b"\n").partition(b" ")
    if checksum != b"%08x" % zlib.crc32(body):
        return None
    about, _, boxes = body.rpartition(b" ")
    image_id, height, width, count = json.loads(about)
    return image_id, height, width, count, base64.b64decode(boxes)


class JournalBoxes(Sequence[np.ndarray]):
    """The boxes of entries, read from the journal one at a time: all would fill the memory."""

    def __init__(self, journal: Journal, entries: Sequence[Entry]):
        self._journal, self._entries = journal, entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> np.ndarray:  # type: ignore[override]  # no slices
        return self._journal.read(self._entries[index])
