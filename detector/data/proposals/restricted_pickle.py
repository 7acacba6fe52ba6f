"""Pickles of numpy arrays in plain containers, read without running anything that they ask for.

A pickle is a program: it may import and call whatever it names. This reader knows the few names that arrays,
numbers and containers need and puts its own functions in their place; any other name is refused before it is
imported. numpy's own functions are not called either: a forged type description can make them read memory as
pointers. Nor may a small file fill the memory: nothing in it is copied more than once.
"""

import os
import pickle
import pickletools
from pathlib import Path
from typing import IO, Any

import numpy as np

from detector.utils.files import reading

_KINDS = "biufSUO"  # of arrays: numbers, strings, and arrays of arrays


def load_pickle(path: str | Path) -> Any:
    """What a pickle of arrays, numbers and strings in lists, tuples, sets and dicts holds; Python 2's too.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: it holds anything else, of which nothing has run, or it is not a pickle, or a damaged one.
    """
    with reading(path, "pickle of arrays and plain containers"), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        _check_opcodes(_Content(file, size))
        file.seek(0)
        return _finished(_Unpickler(file, size).load(), {})


def _check_opcodes(file: "_Content") -> None:
    """Goes through a pickle without building anything; raises where the unpickler would exhaust the memory.

    It allocates as many bytes as a length declares, although the file has fewer; and all places of its memory
    below the largest that is asked for, 16 GB for a number of four bytes. A pickler takes one place after the
    other.
    """
    for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):  # type: ignore[arg-type]
        if "PUT" in opcode.name and isinstance(argument, int) and argument > count:
            raise pickle.UnpicklingError(f"it stores its part {count} at the place {argument}")


class _Content:
    """An open file of `size` bytes that allocates no more than these when it is asked for more."""

    def __init__(self, file: IO[bytes], size: int):
        self._file, self._size = file, size
        self.readline, self.tell = file.readline, file.tell

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, self._size))


class _DType:
    """Stands for numpy.dtype."""

    def __init__(self, name: str | bytes, *_: object):
        if not isinstance(name, (str, bytes)):
            raise pickle.UnpicklingError(f"a type of arrays that is named by a {type(name).__name__}")
        self.dtype = np.dtype(name if isinstance(name, str) else name.decode("latin1"))
        if self.dtype.kind not in _KINDS or self.dtype.itemsize == 0:
            raise pickle.UnpicklingError(f"an array of {name!r}")

    def __setstate__(self, state: tuple) -> None:
        _, byte_order, *fields = state[:5]
        if any(field is not None for field in fields):
            raise pickle.UnpicklingError("an array of records")
        self.dtype = self.dtype.newbyteorder(byte_order)


class _Array:
    """Stands for an array until all content has come."""

    def __init__(self, *_: object):
        self.parts: tuple[Any, _DType, tuple[int, ...], str] | None = None

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran_order, content = state
        self.parts = content, dtype, shape, "F" if fortran_order else "C"

    def filled(self, done: dict[Any, Any]) -> np.ndarray:
        """The array; `done` as of :func:`_finished`."""
        if self.parts is None:
            return np.empty(0)
        content, dtype, shape, order = self.parts
        flat = _flat(content, dtype.dtype, done)
        return flat.reshape(shape, order="F" if order == "F" else "C")


def _flat(content: Any, dtype: np.dtype, done: dict[Any, Any]) -> np.ndarray:
    """The content of an array; arrays of the same content share it."""
    key = "content", id(content)
    if dtype.kind == "O":
        if key not in done:
            done[key] = np.empty(len(content), object)
            done[key][:] = [_finished(element, done) for element in content]
        return done[key]
    if isinstance(content, str):  # from Python 2
        if key not in done:
            done[key] = content.encode("latin1")
        content = done[key]
    return np.frombuffer(content, dtype)


def _from_buffer(content: Any, dtype: _DType, shape: tuple[int, ...], order: str) -> _Array:
    stand_in = _Array()
    stand_in.parts = content, dtype, shape, order
    return stand_in


def _scalar(dtype: _DType, content: Any) -> Any:
    if dtype.dtype.kind == "O":
        raise pickle.UnpicklingError("a number that is an object")
    stand_in = _from_buffer(content, dtype, (), "C")
    return stand_in.filled({}).item()


def _empty_bytes() -> bytes:
    """As protocols 0 to 2 write them."""
    return b""


def _finished(content: Any, done: dict[Any, Any]) -> Any:
    """The content with arrays in the place of what stands for them.

    `done` has what is finished by its id: a part that is there many times, in parts that are, is copied once.
    """
    if id(content) in done:
        return done[id(content)]
    finished = content
    if isinstance(content, _Array):
        finished = content.filled(done)
    elif isinstance(content, dict):
        finished = {key: _finished(value, done) for key, value in content.items()}
    elif isinstance(content, (list, tuple)):
        finished = type(content)(_finished(element, done) for element in content)
    else:
        return content
    done[id(content)] = finished
    return finished


_KNOWN = {
    ("detectron2.structures.boxes", "BoxMode"): int,
    ("numpy", "dtype"): _DType,
    ("numpy", "ndarray"): _Array,
    **{(module, "bytes"): _empty_bytes for module in ("builtins", "__builtin__")},  # Python 3, Python 2
    **{(f"{core}.multiarray", "_reconstruct"): _Array for core in ("numpy.core", "numpy._core")},
    **{(f"{core}.multiarray", "scalar"): _scalar for core in ("numpy.core", "numpy._core")},
    **{(f"{core}.numeric", "_frombuffer"): _from_buffer for core in ("numpy.core", "numpy._core")},
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], size: int):
        super().__init__(file, encoding="latin1")
        self._copies_left = size  # a pickler copies nothing twice, and each part takes a byte at least

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        if (module, name) == ("collections", "OrderedDict"):
            return lambda *pairs: dict(*self._spend(pairs))
        if (module, name) in (("builtins", "set"), ("__builtin__", "set")):
            return lambda *elements: set(*self._spend(elements))
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which is refused; nothing of it has run"
            )
        return _KNOWN[module, name]

    def _encode(self, text: str, encoding: str) -> bytes:
        """Bytes, as protocols 0 to 2 write them."""
        if encoding != "latin1":
            raise pickle.UnpicklingError("text in another encoding than latin1")
        self._spend((text,))
        return text.encode("latin1")

    def _spend(self, contents: tuple) -> tuple:
        """The contents, of which a copy is to be made."""
        self._copies_left -= sum(map(len, contents))
        if self._copies_left < 0:
            raise pickle.UnpicklingError("it makes more copies of its content than it has bytes")
        return contents
