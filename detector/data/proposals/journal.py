"""What a search has found so far, on the disk, so that it can be interrupted."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from detector.utils.errors import DataError

Found = tuple[tuple[int, int], np.ndarray]  # size (height, width) of an image and its boxes (R, 4) float32
_BYTES_A_BOX = 16


class Entry(NamedTuple):
    """Where the journal has the boxes of an image."""

    height: int
    width: int
    count: int  # boxes
    start: int  # byte in the file


class Journal:
    """The images done so far: a file, to which each is added as it gets done, and a list of its `entries`.

    The file is a line of parameters, then for every image a line of JSON and the bytes of its boxes. An image
    whose bytes break off, as when the machine stopped, is forgotten; all before it are kept.
    """

    def __init__(self, path: Path, parameters: Mapping[str, object]):
        self.path = path
        self.entries: dict[str, Entry] = {}
        self._file = open(path, "a+b")  # noqa: SIM115  closed by __exit__
        try:
            self._read(json.dumps(parameters))
        except BaseException:
            self._file.close()
            raise

    def _read(self, parameters: str) -> None:
        self._file.seek(0)
        header = self._file.readline()
        if header != f"{parameters}\n".encode():
            if self._file.read(1):
                raise DataError(
                    f"{self.path} was begun with other parameters: {header!r} instead of {parameters}. "
                    "Run again with those, or delete it to begin anew."
                )
            # New, or broken off before the first image.
            self._file.truncate(0)
            self._write(f"{parameters}\n".encode())
            return
        end = self._file.tell()
        while (line := self._file.readline()).endswith(b"\n"):
            try:
                image_id, height, width, count = json.loads(line)
            except ValueError:
                break
            entry = Entry(height, width, count, self._file.tell())
            if len(self._file.read(_BYTES_A_BOX * count)) < _BYTES_A_BOX * count:
                break
            self.entries[image_id] = entry
            end = self._file.tell()
        self._file.truncate(end)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()

    def add(self, image_id: str, found: Found) -> None:
        (height, width), boxes = found
        line = f"{json.dumps([image_id, int(height), int(width), len(boxes)])}\n".encode()
        start = self._file.seek(0, os.SEEK_END) + len(line)
        self._write(line + boxes.astype("<f4").tobytes())
        self.entries[image_id] = Entry(height, width, len(boxes), start)

    def read(self, entry: Entry) -> np.ndarray:
        """The boxes (R, 4) of an image."""
        self._file.seek(entry.start)
        return np.frombuffer(self._file.read(_BYTES_A_BOX * entry.count), "<f4").reshape(-1, 4)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class JournalBoxes(Sequence[np.ndarray]):
    """The boxes of entries, read from the journal one at a time: all would fill the memory."""

    def __init__(self, journal: Journal, entries: Sequence[Entry]):
        self._journal, self._entries = journal, entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._journal.read(self._entries[index])
