"""Sequences whose items are made when they are asked for, so that not all are in memory at once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")
U = TypeVar("U")


class Lazy(Sequence[T], Generic[T]):
    """`make(0)` to `make(length - 1)`, each made again whenever it is asked for."""

    def __init__(self, make: Callable[[int], T], length: int) -> None:
        self._make, self._length = make, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._length))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(i) for i in range(self._length)[index]]
        return self._make(range(self._length)[index])

    def map(self, function: Callable[[T], U]) -> "Lazy[U]":
        """What the function makes of each item."""
        return Lazy(lambda index: function(self._make(index)), self._length)
