"""Reading of .npz files with checks before memory is allocated, and writing in pieces.

An .npz file is a zip archive of .npy files, with a CRC-32 for each. The headers of both declare sizes, which
a damaged or hostile file may overstate; no more memory is allocated than the file can hold.
"""

import math
import os
import struct
import weakref
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from detector.utils.errors import DataError
from detector.utils.files import expansion_limit, reading

Fields = Mapping[
    str, tuple[str, int]
]  # of each array: the kind of its dtype, such as "f", and its dimensions

_CHUNK = 2**20  # bytes
_GAP = 150  # bytes; the header of a zip member has 30 to 60, an .npy file at least 128 more with its own
_LOCAL_HEADER = struct.Struct("<26x2H")  # of a zip member; the lengths of the name and of the extra field
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: str | Path, kind: str, fields: Fields | None = None) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name, with their checksums verified; without pickled objects.

    Args:
        kind: what the file is for, as of :func:`reading`.
        fields: the arrays to read and what they must be; None: all.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is damaged or another file, or declares more than it can hold.
    """
    with reading(path, kind), NpzReader(path) as file:
        if fields is None:
            return {name: file.read(name) for name in file.names}
        return {name: file.read(name, *expected) for name, expected in fields.items()}


class NpzReader:
    """An open .npz file: `names` of its arrays, read whole or in rows. Use it within :func:`reading`."""

    def __init__(self, path: str | Path):
        self._path = Path(path)
        self._file = open(path, "rb")  # noqa: SIM115  closed by __exit__
        try:
            self._archive = zipfile.ZipFile(self._file)
            self._check_declared()
        except BaseException:
            self._file.close()
            raise
        self.names = [name.removesuffix(".npy") for name in self._archive.namelist()]

    def _check_declared(self) -> None:
        members, size = self._archive.infolist(), os.fstat(self._file.fileno()).st_size
        declared, limit = sum(member.file_size for member in members), expansion_limit(size)
        if declared > limit:
            raise DataError(
                f"its arrays declare {declared} bytes, but a file of {size} bytes may hold at most {limit}: "
                "it is damaged, or save the arrays without compression (numpy.savez)"
            )
        for member in members:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                method = member.compress_type
                raise DataError(
                    f"{member.filename} is compressed by method {method}, expected what numpy.savez writes"
                )

        # A damaged length makes zipfile skip entries of the directory silently. Arrays follow each other with
        # less than _GAP bytes of headers between them; a skipped one leaves a larger gap.
        end = 0
        for member in sorted(members, key=lambda member: member.header_offset):
            if member.header_offset - end > _GAP:
                raise DataError(f"its directory lacks what lies before {member.filename}: it is damaged")
            end = member.header_offset + len(member.orig_filename.encode()) + member.compress_size
        if self._archive.start_dir - end > _GAP:
            raise DataError("its directory lacks what lies at its end: it is damaged")

    def read(self, name: str, kind: str | None = None, dimensions: int | None = None) -> np.ndarray:
        """A whole array; its checksum is verified.

        Raises:
            DataError: no such array, not of the kind of dtype or dimensions asked for, or it contradicts its
                header. Damage may also raise what zipfile and numpy raise.
        """
        member = self._member(name)
        with self._archive.open(member) as file:
            shape, fortran_order, dtype = _read_header(file, name, member.file_size, kind, dimensions)
            content = np.empty(math.prod(shape) * dtype.itemsize, np.uint8)
            done = 0
            while chunk := file.read(_CHUNK):
                content[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                done += len(chunk)
        if done != len(content):
            raise DataError(f"{name} has {done} bytes, expected {len(content)}")
        return content.view(dtype).reshape(shape, order="F" if fortran_order else "C")

    def rows(self, name: str, kind: str, dimensions: int) -> "np.ndarray | StoredRows":
        """An array whose rows are read on access; a compressed one is read whole.

        The checksum of an array that is not read whole is not verified: see :meth:`verify`.
        """
        member = self._member(name)
        with self._archive.open(member) as file:
            shape, fortran_order, dtype = _read_header(file, name, member.file_size, kind, dimensions)
            header = file.tell()
        if member.compress_type != zipfile.ZIP_STORED or fortran_order or 0 in shape:
            return self.read(name, kind, dimensions)
        self._file.seek(member.header_offset)
        names = sum(_LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size)))
        offset = member.header_offset + _LOCAL_HEADER.size + names + header
        return StoredRows(self._path, offset, shape, dtype, _stamp(self._file.fileno()))

    def verify(self, name: str) -> None:
        """Read an array to verify its checksum; raises zipfile.BadZipFile if it differs."""
        with self._archive.open(self._member(name)) as file:
            while file.read(_CHUNK):
                pass

    def _member(self, name: str) -> zipfile.ZipInfo:
        for filename in (f"{name}.npy", name):
            if filename in self._archive.NameToInfo:
                return self._archive.getinfo(filename)
        found = ", ".join(self.names[:5]) + (", ..." if len(self.names) > 5 else "")
        raise DataError(f"it has no array {name}; it has {found or 'none'}")

    def __enter__(self) -> "NpzReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
        self._file.close()


class StoredRows:
    """An array (N, ...) in a file: `rows[start:end]` reads these rows, a copy.

    The file is read, not mapped, because the system kills a process (SIGBUS) when a mapped file is truncated.
    A pickle contains no rows: the process that receives it opens the file itself.
    """

    def __init__(
        self, path: Path, offset: int, shape: tuple[int, ...], dtype: np.dtype, stamp: tuple[int, int]
    ):
        self._state = path, offset, shape, dtype, stamp
        self.shape, self.dtype = shape, dtype
        self._path, self._offset = path, offset
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        weakref.finalize(self, os.close, self._descriptor)
        if _stamp(self._descriptor) != stamp:
            raise DataError(f"{path} was changed while it was in use")

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, end, step = rows.indices(self.shape[0])
        if step != 1:
            raise IndexError(f"rows are read in one piece, not by steps of {step}")
        size, begin = max(0, end - start) * self._row_bytes, self._offset + start * self._row_bytes
        content = bytearray()
        while len(content) < size:
            piece = self._read(size - len(content), begin + len(content))
            if not piece:
                raise DataError(f"{self._path} was truncated while it was in use")
            content += piece
        return np.frombuffer(content, self.dtype).reshape(-1, *self.shape[1:])

    def _read(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at an offset; threads and forked processes may read concurrently."""
        if hasattr(os, "pread"):
            return os.pread(self._descriptor, size, offset)
        with open(self._path, "rb") as file:  # Windows: another process cannot replace an open file
            file.seek(offset)
            return file.read(size)

    def __reduce__(self) -> tuple:
        return StoredRows, self._state


def _read_header(
    file: IO[bytes], name: str, size: int, kind: str | None, dimensions: int | None
) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, Fortran order and dtype of an .npy member of `size` bytes, which they must account for."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADER_READERS:
        raise DataError(f"{name} has the .npy version {version}, expected 1.0 or 2.0")
    shape, fortran_order, dtype = _HEADER_READERS[version](file)
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are not read (allow_pickle=False)")
    if (kind not in (None, dtype.kind)) or (dimensions not in (None, len(shape))):
        found = f"{dtype} {shape}"
        raise DataError(f"{name} must have {dimensions} dimensions of kind {kind!r}, not {found}")
    declared, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if declared != held or min(shape, default=0) < 0 or (dtype.itemsize == 0 and 0 not in shape):
        raise DataError(f"{name} has {held} bytes, but its header declares {dtype} {shape}")
    return shape, fortran_order, dtype


def _stamp(descriptor: int) -> tuple[int, int]:
    """Size and modification time, by which a changed file is recognized."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns


class NpzWriter:
    """Writes arrays to an open file like np.savez; equal arrays give equal bytes."""

    def __init__(self, file: IO[bytes]):
        self._archive = zipfile.ZipFile(file, "w")

    def add(self, name: str, array: np.ndarray) -> None:
        with self._open(name) as member:
            np.lib.format.write_array(member, array, allow_pickle=False)

    def add_pieces(self, name: str, pieces: Iterable[np.ndarray], shape: tuple[int, ...], dtype: str) -> None:
        """Add an array of the given shape in pieces of rows, one of which is in memory at a time."""
        with self._open(name) as member:
            header = {"descr": dtype, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            for piece in pieces:
                member.write(np.ascontiguousarray(piece, dtype).tobytes())

    def _open(self, name: str) -> IO[bytes]:
        # A new ZipInfo has the date of 1980, not that of today.
        return self._archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)

    def __enter__(self) -> "NpzWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._archive.close()
