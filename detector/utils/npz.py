"""Arrays of an .npz file that are mapped into memory instead of read, and files written piece by piece.

An .npz file is a zip archive of .npy files. numpy maps none of them, though those that are stored without
compression, as np.savez does, lie in the file as they would lie in memory.
"""

import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np

from detector.utils.errors import UserError

_LOCAL_HEADER = struct.Struct("<26x2H")  # of a zip member; the lengths of the name and of the extra field
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def map_array(path: str | Path, name: str) -> np.ndarray:
    """The array `name` of an .npz file, read-only: mapped where it is stored, read where it is compressed.

    A mapped array takes no memory but the pages that are touched, which all processes share; the checksum of
    the archive is not verified. It may be unaligned: copy what goes to other libraries.

    Raises:
        KeyError: no such array.
        ValueError, OSError, zipfile.BadZipFile: not such a file, or an array of Python objects.
    """
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
        if member.compress_type != zipfile.ZIP_STORED:
            with archive.open(member) as file:
                return np.lib.format.read_array(file, allow_pickle=False)
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        file.seek(sum(_LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))), 1)
        version = np.lib.format.read_magic(file)
        if version not in _HEADER_READERS:
            raise UserError(f"{name} has the .npy version {version}")
        shape, fortran_order, dtype = _HEADER_READERS[version](file)
        offset = file.tell()
    if dtype.hasobject:
        raise UserError(f"{name} holds Python objects, which are not read (allow_pickle=False)")
    if 0 in shape:  # nothing can be mapped of nothing
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran_order else "C")


class NpzWriter:
    """Writes arrays to an open file as np.savez does, byte for byte the same whenever it is done."""

    def __init__(self, file: IO[bytes]):
        self._archive = zipfile.ZipFile(file, "w")

    def add(self, name: str, array: np.ndarray) -> None:
        with self._open(name) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    def add_pieces(self, name: str, pieces: Iterable[np.ndarray], shape: tuple[int, ...], dtype: str) -> None:
        """An array of the given shape, of which only one piece, some of its rows, is in memory at a time."""
        with self._open(name) as member:
            header = {"descr": dtype, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            for piece in pieces:
                member.write(np.ascontiguousarray(piece, dtype).tobytes())

    def _open(self, name: str) -> IO[bytes]:
        # A ZipInfo made by hand has the date of 1980: the same bytes each time.
        return self._archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)

    def __enter__(self) -> "NpzWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
