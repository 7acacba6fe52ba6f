"""Files of torch.save, loaded with weights_only=True and verified checksums, and a search for NaN."""

import math
import os
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from detector.utils.errors import DataError
from detector.utils.files import reading

# More than any file of weights has. Parts that several lists share count once for each.
_DEEPEST = 32  # lists and mappings in one another
_MOST_PARTS = 200_000
_LONGEST_NAME = 300  # characters
_MOST_VIEWS = 8  # total size of all tensors in sizes of the file: weights may have several names


def read_torch_file(path: str | Path, kind: str) -> Any:
    """The content of a file of torch.save, on the CPU; loaded with weights_only=True.

    torch.load ignores the checksums that the zip format has for every tensor; they are verified here. Files
    of the format before torch 1.6, plain pickles, have no checksums: a changed byte may go unnoticed.

    Args:
        kind: what the file is for, such as "checkpoint"; error messages name it.

    Raises:
        FileNotFoundError, OSError: the file does not exist, or the system cannot read it.
        DataError: it is damaged, of another format, or holds objects other than dense tensors and plain
            values; lists are nested deeper than 32, or there are more than 200,000 values.
    """
    with reading(path, kind):
        with open(path, "rb") as file:
            is_zip = file.read(2) == b"PK"  # a zip archive that is cut off has lost its directory
        if is_zip:
            _verify(path)
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError) as error:
            if "weights_only" not in str(error):
                raise
            raise pickle.UnpicklingError(_not_plain(str(error))) from None
        try:
            _check_parts(content, os.path.getsize(path))
        except DataError as error:
            raise DataError(f"{kind} {path} is damaged: {error}") from None
    return content


def non_finite(content: Any) -> str | None:
    """The name, such as "model.head.weight", of the first tensor or number that is NaN or infinite, if any.

    Args:
        content: mappings, sequences and dataclasses of tensors, numbers and anything else, which is ignored.

    Raises:
        DataError: as of :func:`read_torch_file`, it is nested too deep or has too many parts.
    """
    for place, value in _leaves(content):
        if isinstance(value, Tensor) and not value.isfinite().all():
            return place
        if isinstance(value, float) and not math.isfinite(value):
            return place
    return None


def _leaves(content: Any) -> Iterator[tuple[str, Any]]:
    waiting, parts = [("", content, 0)], 1
    while waiting:  # a loop, because Python limits the depth of recursion
        name, value, depth = waiting.pop()
        if is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        if not isinstance(value, (Mapping, list, tuple)):
            yield name, value
            continue
        parts += len(value)
        if parts > _MOST_PARTS or depth == _DEEPEST:
            raise DataError(
                f"it holds more than {_MOST_PARTS} values, or lists more than {_DEEPEST} deep in one another "
                f"(at {name}), which no weights need: save the tensors by name, and nothing else"
            )
        items = list(value.items()) if isinstance(value, Mapping) else list(enumerate(value))
        waiting += [(_place(name, key), item, depth + 1) for key, item in reversed(items)]


def _place(name: str, key: Any) -> str:
    word = str(key) if isinstance(key, (str, int)) else f"({type(key).__name__})"
    return f"{name}.{word}"[:_LONGEST_NAME] if name else word[:_LONGEST_NAME]


def _check_parts(content: Any, file_size: int) -> None:
    """Raise DataError where a tensor is of a kind that weights are not, or shows more than the file has."""
    size = 0
    for name, value in _leaves(content):
        if not isinstance(value, Tensor):
            continue
        if kind := _odd_kind(value):
            raise DataError(f"{name} {kind}, expected a dense tensor with values")
        size += value.nbytes
        if value.nbytes > value.untyped_storage().nbytes():
            raise DataError(f"{name} is a view that repeats values: save a copy of it (contiguous())")
        if size > _MOST_VIEWS * file_size:
            raise DataError(f"its tensors would have {size} bytes or more, but the file has {file_size}")


def _odd_kind(tensor: Tensor) -> str | None:
    if tensor.is_meta:
        return "has no values"
    if tensor.is_quantized:
        return "is a quantized tensor"
    if tensor.layout != torch.strided or tensor.is_nested:
        return "is a sparse or nested tensor"
    try:
        tensor.new_empty(0).isfinite()
    except NotImplementedError:
        return f"is a tensor of {tensor.dtype}"
    return None


def _not_plain(message: str) -> str:
    """What to tell instead of torch's message, which advises to run whatever code the file names."""
    found = re.search(r"GLOBAL ([\w.]{1,100})", message)
    what = f"refers to {found[1]}" if found else "is no plain file of torch.save"
    return (
        f"it {what}; expected tensors and plain values alone. Nothing in it has run: where it is your own, "
        "save the weights with torch.save(model.state_dict(), FILE)"
    )


def _verify(path: str | Path) -> None:
    """Raise where a checksum is wrong, or a member claims more bytes than the file has."""
    with zipfile.ZipFile(path) as archive:
        # torch.save never compresses; a file that unpacks to more than its size was made to exhaust memory.
        if sum(member.file_size for member in archive.infolist()) > os.path.getsize(path):
            raise zipfile.BadZipFile("its parts are larger than the file")
        if damaged := archive.testzip():
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
