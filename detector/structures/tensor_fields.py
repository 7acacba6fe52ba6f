"""The base class of dataclasses of tensors."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound="TensorFields")


class TensorFields:
    """`==`, `map` and what is made of it, for dataclasses of tensors.

    Equal are two of one type if all fields have equal types, shapes, dtypes, devices and values. The default
    `==` of dataclasses compares tuples of tensors, for which torch raises an error. Like lists, these objects
    are not hashable.
    """

    def map(self: T, function: Callable[[Tensor], Tensor]) -> T:
        """A copy with `function` applied to all tensors."""
        return replace(self, **{name: _map(getattr(self, name), function) for name in self._names()})  # type: ignore[type-var]

    def to(self: T, device: torch.device | str, non_blocking: bool = False) -> T:
        """A copy with the tensors on `device`."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self: T) -> T:
        """A copy in page-locked memory; DataLoader calls this."""
        return self.map(Tensor.pin_memory)

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
    if isinstance(value, dict):
        return {key: _map(item, function) for key, item in value.items()}
    return type(value)(_map(item, function) for item in value) if isinstance(value, (list, tuple)) else value
