"""Files of torch.save, loaded with weights_only=True and verified checksums, and a search for NaN."""

import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from detector.utils.files import reading


def read_torch_file(path: str | Path, kind: str) -> Any:
    """The content of a file of torch.save, on the CPU; loaded with weights_only=True.

    torch.load ignores the checksums that the zip format has for every tensor; they are verified here. Files
    of the format before torch 1.6, plain pickles, have no checksums: a changed byte may go unnoticed.

    Args:
        kind: what the file is for, such as "checkpoint"; error messages name it.

    Raises:
        FileNotFoundError, OSError: the file does not exist, or the system cannot read it.
        DataError: it is damaged, of another format, or holds objects other than tensors and plain values.
    """
    with reading(path, kind):
        with open(path, "rb") as file:
            is_zip = file.read(2) == b"PK"  # a zip archive that is cut off has lost its directory
        if is_zip:
            _verify(path)
        return torch.load(path, map_location="cpu", weights_only=True)


def non_finite(content: Any) -> str | None:
    """The name, such as "model.head.weight", of the first tensor or number that is NaN or infinite, if any.

    Args:
        content: mappings, sequences and dataclasses of tensors, numbers and anything else, which is ignored.
    """
    for place, value in _leaves(content):
        if isinstance(value, Tensor) and not value.isfinite().all():
            return place
        if isinstance(value, float) and not math.isfinite(value):
            return place
    return None


def _leaves(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if is_dataclass(content) and not isinstance(content, type):
        content = {field.name: getattr(content, field.name) for field in fields(content)}
    if isinstance(content, Mapping):
        items = list(content.items())
    elif isinstance(content, (list, tuple)):
        items = list(enumerate(content))
    else:
        yield name, content
        return
    for key, value in items:
        yield from _leaves(value, f"{name}.{key}" if name else str(key))


def _verify(path: str | Path) -> None:
    """Raise where a checksum is wrong, or a member claims more bytes than the file has."""
    with zipfile.ZipFile(path) as archive:
        # torch.save never compresses; a file that unpacks to more than its size was made to exhaust memory.
        if sum(member.file_size for member in archive.infolist()) > os.path.getsize(path):
            raise zipfile.BadZipFile("its parts are larger than the file")
        if damaged := archive.testzip():
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
