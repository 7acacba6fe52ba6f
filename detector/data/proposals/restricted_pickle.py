"""Pickles of numpy arrays in plain containers, read without running code.

A pickle can import and call any function. This reader replaces the few functions that arrays, numbers and
containers need by its own; any other name is an error before it is imported. Even numpy's functions are not
called: with a forged dtype, they read memory as pointers.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from detector.utils.files import reading

_KINDS = "biufSUO"  # of arrays: numbers, strings, and arrays of arrays


def load_pickle(path: str | Path) -> Any:
    """A pickle of arrays, numbers and strings in lists, tuples, sets and dicts; also of Python 2.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it is damaged, is not a pickle, or holds anything else; none of its code has run.
    """
    with reading(path, "pickle of arrays and plain containers"), open(path, "rb") as file:
        try:
            return _convert(_Unpickler(file, encoding="latin1").load(), {})
        except MemoryError:
            raise pickle.UnpicklingError(
                "it needs more memory than there is, or lengths in it are wrong"
            ) from None


class _DType:
    """Replaces numpy.dtype."""

    def __init__(self, name: str | bytes, *_: object):
        self.dtype = np.dtype(name if isinstance(name, str) else name.decode("latin1"))
        if self.dtype.kind not in _KINDS or self.dtype.itemsize == 0:
            raise pickle.UnpicklingError(f"it has an array of {name!r}, expected numbers or strings")

    def __setstate__(self, state: tuple) -> None:
        _, byte_order, *fields = state[:5]
        if any(field is not None for field in fields):
            raise pickle.UnpicklingError("it has an array of records, expected numbers or strings")
        self.dtype = self.dtype.newbyteorder(byte_order)


class _Array:
    """Replaces an array until its content is complete."""

    def __init__(self, *_: object):
        self.content: Any = b""
        self.dtype, self.shape, self.order = np.dtype("f8"), (0,), "C"

    def __setstate__(self, state: tuple) -> None:
        _, self.shape, dtype, fortran_order, self.content = state
        self.dtype, self.order = dtype.dtype, "F" if fortran_order else "C"

    def convert(self, done: dict[int, Any]) -> np.ndarray:
        """The array; `done` as in :func:`_convert`."""
        if self.dtype.kind == "O":
            flat = np.empty(len(self.content), object)
            flat[:] = [_convert(element, done) for element in self.content]
        else:  # a str is a string of bytes from Python 2
            content = self.content.encode("latin1") if isinstance(self.content, str) else self.content
            flat = np.frombuffer(content, self.dtype)
        return flat.reshape(self.shape, order="F" if self.order == "F" else "C")


def _from_buffer(content: Any, dtype: _DType, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.__setstate__((None, shape, dtype, order == "F", content))
    return array


def _scalar(dtype: _DType, content: Any) -> Any:
    if dtype.dtype.kind == "O":
        raise pickle.UnpicklingError("it has a number that is an object")
    return _from_buffer(content, dtype, (), "C").convert({}).item()


def _encode(text: str, encoding: str) -> bytes:
    """Bytes, as protocols 0 to 2 write them."""
    return text.encode(encoding)


def _convert(content: Any, done: dict[int, Any]) -> Any:
    """The content with its arrays; `done` maps the id of a part to the result, as parts may be shared."""
    if id(content) not in done:
        if isinstance(content, _Array):
            done[id(content)] = content.convert(done)
        elif isinstance(content, dict):
            done[id(content)] = {key: _convert(value, done) for key, value in content.items()}
        elif isinstance(content, (list, tuple)):
            done[id(content)] = type(content)(_convert(element, done) for element in content)
        else:
            return content
    return done[id(content)]


_KNOWN = {
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): dict,
    ("detectron2.structures.boxes", "BoxMode"): int,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    **{
        (module, name): function
        for module in ("builtins", "__builtin__")  # of Python 3 and 2
        for name, function in (("set", set), ("bytes", lambda: b""))
    },
    **{
        (f"{core}.{module}", name): function
        for core in ("numpy.core", "numpy._core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f"it refers to {module}.{name}, which is not allowed; nothing has run"
            )
        return _KNOWN[module, name]
