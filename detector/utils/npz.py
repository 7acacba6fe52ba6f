"""Reading of .npz files: no pickles, verified checksums, errors that name the file and the array.

And writing of those that are larger than the memory.
"""

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile

from detector.utils.errors import DataError
from detector.utils.files import reading

Fields = Mapping[str, tuple[str, int]]  # name of an array: kind of its dtype, such as "f"; dimensions


class Pieces(NamedTuple):
    """An array that is given piece by piece: consecutive rows, (R_i, *shape[1:])."""

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: Iterable[np.ndarray]


def write_npz(file: IO[bytes], arrays: Mapping[str, np.ndarray | Pieces]) -> None:
    """The same bytes as `numpy.savez`, of which only a piece has to be in memory.

    The arrays are written in their order, so that one may be filled while the pieces of another are made.

    Raises:
        ValueError: the pieces have another number of values than the shape says.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if not isinstance(array, Pieces):
                array = Pieces(array.shape, array.dtype, [array])
            left = int(np.prod(array.shape)) * array.dtype.itemsize
            header = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, {**header, "shape": array.shape})
                for piece in array.pieces:
                    content = np.ascontiguousarray(piece, array.dtype).tobytes()
                    member.write(content)
                    left -= len(content)
            if left:
                raise ValueError(f"the pieces of {name} do not add up to the shape {array.shape}")


@contextmanager
def open_npz(path: str | Path, kind: str) -> Iterator[NpzFile]:
    """An open .npz file, whose arrays are read on access; errors of the block name the file.

    Args:
        kind: what the file is for, as in :func:`reading`.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is damaged, of another format, or an array holds Python objects.
    """
    with reading(path, kind), np.load(path, allow_pickle=False) as file:
        yield file


def pick(file: Mapping[str, np.ndarray], fields: Fields) -> dict[str, np.ndarray]:
    """The arrays of the given names.

    Raises:
        DataError: an array is missing, or of another kind or number of dimensions.
    """
    arrays = {}
    for name, (kind, dimensions) in fields.items():
        if name not in file:
            raise DataError(f"it has no array {name}; it has {', '.join(list(file)[:5]) or 'none'}")
        arrays[name] = array = file[name]
        if (array.dtype.kind, array.ndim) != (kind, dimensions):
            found = f"{array.dtype} {array.shape}"
            raise DataError(f"{name} must have {dimensions} dimensions of kind {kind!r}, not {found}")
    return arrays
