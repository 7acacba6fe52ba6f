"""Equality of dataclasses of tensors."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor


class Comparable:
    """`==` for dataclasses of tensors: all fields have equal types, shapes, dtypes, devices and values.

    The default `==` of dataclasses compares tuples of tensors, for which torch raises an error. Like lists,
    these objects are not hashable.
    """

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return all(_equal(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
    return type(a) is type(b) and a == b
