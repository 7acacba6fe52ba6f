"""The results of an interrupted search, in an SQLite file."""

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from detector.utils.errors import DataError
from detector.utils.files import check_regular

Found = tuple[tuple[int, int], np.ndarray]  # size (height, width) of an image and its boxes (R, 4) float32


class Journal:
    """The images searched so far, with their sizes and boxes; each is on the disk once it is added.

    Raises:
        OSError: the file cannot be written, for example because the disk is full; names it.
        DataError: it was begun with other parameters, is damaged, or is another file.
    """

    def __init__(self, path: Path, parameters: Mapping[str, object]):
        self.path = path
        if path.exists():
            check_regular(path, "journal")
        # Without SQLite's locks, which some network drives lack: the caller holds a lock of its own.
        self._database = sqlite3.connect(f"{path.absolute().as_uri()}?nolock=1", uri=True)
        try:
            self._begin(json.dumps(dict(parameters)))
        except BaseException:
            self.close()
            raise

    def _begin(self, expected: str) -> None:
        with self._transaction() as execute:
            execute("CREATE TABLE IF NOT EXISTS parameters (json TEXT)")
            execute("CREATE TABLE IF NOT EXISTS images (id TEXT PRIMARY KEY, height, width, boxes, checksum)")
            begun = execute("SELECT json FROM parameters").fetchone()
            if begun is None:
                execute("INSERT INTO parameters VALUES (?)", (expected,))
            elif begun[0] != expected:
                raise DataError(
                    f"{self.path} was begun with other parameters: {begun[0]}, expected {expected}. Delete "
                    "it to start over, or run again with its parameters"
                )

    def add(self, image_id: str, found: Found) -> None:
        """Store what was found in an image."""
        (height, width), boxes = found
        row = image_id, int(height), int(width), boxes.astype("<f4").tobytes()
        with self._transaction() as execute:
            execute("INSERT INTO images VALUES (?, ?, ?, ?, ?)", (*row, _checksum(*row)))

    def read(self) -> dict[str, Found]:
        """What was found in every image.

        Raises:
            DataError: a record is damaged.
        """
        found = {}
        with self._transaction() as execute:
            for image_id, height, width, boxes, checksum in execute("SELECT * FROM images"):
                if checksum != _checksum(image_id, height, width, boxes):
                    raise sqlite3.DatabaseError(f"the checksum of image {image_id!r} is wrong")
                found[image_id] = (height, width), np.frombuffer(boxes, "<f4").reshape(-1, 4)
        return found

    @contextmanager
    def _transaction(self) -> Iterator:
        """The method that executes a statement; errors name the file."""
        try:
            with self._database:
                yield self._database.execute
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot write {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"{self.path} is damaged or not a journal of this version ({error}): delete it to start over"
            ) from error

    def close(self) -> None:
        self._database.close()


def _checksum(image_id: str, height: int, width: int, boxes: bytes) -> int:
    return zlib.crc32(f"{image_id} {height} {width} ".encode() + boxes)
