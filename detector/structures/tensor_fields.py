"""The base class of dataclasses of tensors."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound="TensorFields")


class TensorFields:
    """`==` and `map` for dataclasses of tensors.

    Equal are two of one type if all fields have equal types, shapes, dtypes, devices and values. The default
    `==` of dataclasses compares tuples of tensors, for which torch raises an error. Like lists, these objects
    are not hashable.
    """

    def map(self: T, function: Callable[[Tensor], Tensor], without: str = "") -> T:
        """A copy with `function` applied to all tensors, except in the field `without`."""
        names = [name for name in self._names() if name != without]
        return replace(self, **{name: _map(getattr(self, name), function) for name in names})  # type: ignore[type-var]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_equal(getattr(self, name), getattr(other, name)) for name in self._names())

    def _names(self) -> list[str]:
        return [field.name for field in fields(self)]  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return (a.dtype, a.device) == (b.dtype, b.device) and torch.equal(a, b)
    return type(a) is type(b) and a == b


def _map(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, TensorFields):
        return value.map(function)
    return tuple(_map(each, function) for each in value) if isinstance(value, tuple) else value
