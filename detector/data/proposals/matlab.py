"""Numbers, texts and cells of Matlab's .mat files of version 5 (-v6 and -v7).

scipy reads more kinds, but allocates what a damaged or hostile header declares; here the file bounds it.
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
from detector.utils.files import expansion_limit, reading

_MATRIX, _COMPRESSED = 14, 15  # types of elements
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_TEXTS = {1: "latin1", 2: "latin1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
_CELL, _CHAR = 1, 4  # classes of arrays
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x08  # a flag of arrays


def load_mat(path: str | Path, names: Collection[str]) -> dict[str, Any]:
    """Those variables of a .mat file that have one of the names.

    Numbers are arrays of their dtype and shape, a text is a str, and cells are an array of objects.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is not such a file or a damaged one, or a variable is of another kind.
    """
    with reading(path, "Matlab file"):
        content = memoryview(Path(path).read_bytes())
        order = {b"IM": "<", b"MI": ">"}.get(bytes(content[126:128]))
        if order is None or bytes(content[:6]) != b"MATLAB":
            raise DataError("it is not a .mat file of version 5; save it in Matlab with -v7")
        if (version := struct.unpack_from(f"{order}H", content, 124)[0]) != 0x0100:
            raise DataError(f"it was saved with -v7.3 (version {version:#06x}); save it with -v7")
        return dict(_variables(content[128:], order, names, expansion_limit(len(content))))


def _variables(
    content: memoryview, order: str, names: Collection[str], limit: int
) -> Iterator[tuple[str, Any]]:
    while content:
        kind, data, content = _element(content, order)
        if kind == _COMPRESSED:
            data = _decompressed(data, limit)
            limit -= len(data)
            kind, data, _ = _element(data, order)
        if kind != _MATRIX:
            raise DataError(f"it has an element of type {kind}, expected a variable")
        flags, shape, name, rest = _header(data, order)
        if name in names:
            yield name, _array(flags, shape, rest, order, name)


def _decompressed(data: memoryview, limit: int) -> memoryview:
    inflate = zlib.decompressobj()
    found = inflate.decompress(data, max(1, limit))
    if not inflate.eof and (inflate.unconsumed_tail or inflate.decompress(b"", 1)):
        raise DataError(
            f"a variable has more than {limit} bytes once decompressed, more than a file of this size may"
        )
    if not inflate.eof:
        raise DataError("a variable breaks off")
    return memoryview(found)


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
            # Matlab writes an empty element for a cell that was never set.
            found.append(_array(*_unnamed(content, order), order, name) if content else np.zeros((0, 0)))
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


def _unnamed(content: memoryview, order: str) -> tuple[int, tuple[int, ...], memoryview]:
    flags, shape, _, data = _header(content, order)
    return flags, shape, data
