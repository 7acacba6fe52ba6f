"""Pickles of numpy arrays in plain containers, read without running anything that they ask for.

A pickle is a program: it may import and call whatever it names. This reader knows the few names that arrays,
numbers and containers need and puts its own functions in their place; any other name is refused before it is
imported. numpy's own functions are not called either: a forged type description can make them read memory as
pointers.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from detector.utils.errors import DataError

_KINDS = "biufSUO"  # of arrays: numbers, strings, and arrays of arrays

# What the unpickler itself raises on broken files, and what the functions below raise on forged ones.
_ERRORS = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


def load_pickle(path: str | Path) -> Any:
    """What a pickle of arrays, numbers and strings in lists, tuples, sets and dicts holds; Python 2's too.

    Raises:
        ValueError: it holds anything else, of which nothing has run, or it is not a pickle.
    """
    with open(path, "rb") as file:
        try:
            return _finished(_Unpickler(file, encoding="latin1").load(), {})
        except _ERRORS as error:
            raise DataError(f"{path} is not a pickle of arrays and plain containers: {error}") from error


class _DType:
    """Stands for numpy.dtype."""

    def __init__(self, name: str, *_: object):
        self.dtype = np.dtype(str(name))
        if self.dtype.kind not in _KINDS:
            raise pickle.UnpicklingError(f"an array of {name!r}")

    def __setstate__(self, state: tuple) -> None:
        _, byte_order, *fields = state[:5]
        if any(field is not None for field in fields):
            raise pickle.UnpicklingError("an array of records")
        self.dtype = self.dtype.newbyteorder(byte_order)


class _Array:
    """Stands for an array until its content has come."""

    def __init__(self, *_: object):
        self.array = np.empty(0)

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran_order, content = state
        self.array = _filled(content, dtype, shape, "F" if fortran_order else "C")


def _filled(content: Any, dtype: _DType, shape: tuple[int, ...], order: str) -> np.ndarray:
    if dtype.dtype.kind == "O":
        array = np.empty(len(content), object)
        array[:] = [_finished(element, {}) for element in content]
    else:
        data = content.encode("latin1") if isinstance(content, str) else content  # str: from Python 2
        array = np.frombuffer(data, dtype.dtype)
    return array.reshape(shape, order="F" if order == "F" else "C")


def _from_buffer(content: Any, dtype: _DType, shape: tuple[int, ...], order: str) -> _Array:
    stand_in = _Array()
    stand_in.array = _filled(content, dtype, shape, order)
    return stand_in


def _scalar(dtype: _DType, content: Any) -> Any:
    return _filled(content, dtype, (), "C").item()


def _encode(text: str, encoding: str) -> bytes:
    """Bytes, as protocols 0 to 2 write them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text in the encoding {encoding!r}")
    return text.encode("latin1")


def _empty_bytes() -> bytes:
    """As protocols 0 to 2 write them."""
    return b""


def _finished(content: Any, done: dict[int, Any]) -> Any:
    """The content with arrays in the place of what stands for them.

    `done` has what is finished by its id: a part that is there many times, in parts that are, is copied once.
    """
    if isinstance(content, _Array):
        return content.array
    if id(content) in done:
        return done[id(content)]
    finished = content
    if isinstance(content, dict):
        finished = {key: _finished(value, done) for key, value in content.items()}
    elif isinstance(content, (list, tuple)):
        finished = type(content)(_finished(element, done) for element in content)
    done[id(content)] = finished
    return finished


_KNOWN = {
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
    ("detectron2.structures.boxes", "BoxMode"): int,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    **{(module, "set"): set for module in ("builtins", "__builtin__")},  # Python 3, Python 2
    **{(module, "bytes"): _empty_bytes for module in ("builtins", "__builtin__")},
    **{(f"{core}.multiarray", "_reconstruct"): _Array for core in ("numpy.core", "numpy._core")},
    **{(f"{core}.multiarray", "scalar"): _scalar for core in ("numpy.core", "numpy._core")},
    **{(f"{core}.numeric", "_frombuffer"): _from_buffer for core in ("numpy.core", "numpy._core")},
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which is refused; nothing of it has run"
            )
        return _KNOWN[module, name]
