"""Reading of .npz files: no pickles, verified checksums, errors that name the file and the array."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile

from detector.utils.errors import DataError
from detector.utils.files import reading

Fields = Mapping[str, tuple[str, int]]  # name of an array: kind of its dtype, such as "f"; dimensions


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
