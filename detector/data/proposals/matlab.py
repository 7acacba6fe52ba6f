"""Numbers, text and cells of Matlab's .mat files of version 5 (-v6 and -v7).

scipy reads more types, but crashes with a segmentation fault on damaged files.
The format: "MAT-File Format", The MathWorks, section "Level 5 MAT-Files".
"""

import math
import struct
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from detector.utils.errors import DataError
from detector.utils.files import reading

_MATRIX, _COMPRESSED = 14, 15  # types of elements
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin1", 2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
_CELL, _CHAR = 1, 4  # classes of arrays
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x08  # a flag of arrays


def load_mat(path: str | Path, names: Collection[str]) -> dict[str, Any]:
    """The variables of these names: numbers as arrays, text as str, cells as an array of objects.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is damaged or of another format, or a variable is of another kind.
    """
    with reading(path, "Matlab file"):
        content = memoryview(Path(path).read_bytes())
        order = {b"IM": "<", b"MI": ">"}.get(bytes(content[126:128]))
        if order is None or bytes(content[:6]) != b"MATLAB":
            raise DataError("it is not a .mat file of version 5; save it in Matlab with -v7")
        if (version := struct.unpack_from(f"{order}H", content, 124)[0]) != 0x0100:
            raise DataError(f"it was saved with -v7.3 (version {version:#06x}); save it with -v7")
        return dict(_variables(content[128:], order, names))


def _variables(content: memoryview, order: str, names: Collection[str]) -> Iterator[tuple[str, Any]]:
    while content:
        kind, data, content = _element(content, order)
        if kind == _COMPRESSED:
            kind, data, _ = _element(memoryview(zlib.decompress(data)), order)
        if kind != _MATRIX:
            raise DataError(f"it has an element of type {kind}, expected a variable")
        flags, shape, name, rest = _header(data, order)
        if name in names:
            yield name, _array(flags, shape, rest, order, name)


def _element(content: memoryview, order: str) -> tuple[int, memoryview, memoryview]:
    """The type and the data of the first element, and what follows it."""
    kind, size = struct.unpack_from(f"{order}2I", content)
    start, padding = 8, (0 if kind == _COMPRESSED else -size % 8)
    if kind >> 16:  # up to four bytes of data, in the place of the size
        kind, size, start, padding = kind & 0xFFFF, kind >> 16, 4, 0
        if size > 4:
            raise DataError(f"a small element declares {size} bytes, expected at most 4")
    if start + size > len(content):
        raise DataError(f"an element declares {size} bytes, but {len(content) - start} are left")
    return kind, content[start : start + size], content[8 if start == 4 else start + size + padding :]


def _header(data: memoryview, order: str) -> tuple[int, tuple[int, ...], str, memoryview]:
    """Flags and class, shape and name of an array, and the rest of its data."""
    _, flags, data = _element(data, order)
    _, shape, data = _element(data, order)
    _, name, data = _element(data, order)
    dimensions = tuple(np.frombuffer(shape, f"{order}i4").tolist())
    if min(dimensions, default=0) < 0 or len(dimensions) < 2:
        raise DataError(f"an array declares the shape {dimensions}")
    return struct.unpack_from(f"{order}I", flags)[0], dimensions, bytes(name).decode("latin1"), data


def _array(flags: int, shape: tuple[int, ...], data: memoryview, order: str, name: str) -> Any:
    kind, count = flags & 0xFF, math.prod(shape)
    if kind == _CELL:
        if count * 8 > len(data):  # a cell takes 8 bytes or more
            raise DataError(f"{name} declares {count} cells in {len(data)} bytes")
        found: list[Any] = []
        for _ in range(count):
            element, content, data = _element(data, order)
            if element != _MATRIX:
                raise DataError(f"{name} has a cell of type {element}, expected an array")
            if content:
                cell_flags, cell_shape, _, rest = _header(content, order)
                found.append(_array(cell_flags, cell_shape, rest, order, name))
            else:  # Matlab writes an empty element for a cell that was never set
                found.append(np.zeros((0, 0)))
        cells = np.empty(count, object)
        for index, cell in enumerate(found):  # cells[:] = found would look into the cells
            cells[index] = cell
        return cells.reshape(shape, order="F")
    element, content, _ = _element(data, order)
    if kind == _CHAR and element in _TEXTS:
        encoding = _TEXTS[element]
        return bytes(content).decode(
            f"{encoding}-{'le' if order == '<' else 'be'}" if "16" in encoding else encoding
        )
    if kind not in _CLASSES or element not in _NUMBERS or flags >> 8 & _COMPLEX:
        raise DataError(f"{name} is an array of class {kind}, expected real numbers, text or cells")
    numbers = np.frombuffer(content, order + _NUMBERS[element])
    if len(numbers) != count:
        raise DataError(f"{name} has {len(numbers)} numbers, but declares the shape {shape}")
    return numbers.astype(_CLASSES[kind]).reshape(shape, order="F")
