"""Losses on their way from the device to the log."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from detector.utils.distributed import gather, raise_once
from detector.utils.errors import UserError


class NonFiniteLoss(UserError, FloatingPointError):
    """A loss or a gradient is NaN or infinite."""


_Entry = tuple[str, tuple[str, ...], float]  # name, images and value of a scalar


class LossLog:
    """Scalars of the steps since the last log line.

    They stay where they were computed until `check` or `means` reads all of them at once, so that a step does
    not wait for a GPU to finish. Of several processes each adds its own, the same names in the same order;
    all of them know all values after `check` and `means`, which all have to call together.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[str, tuple[str, ...], Tensor]] = []
        self._read: dict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], image_ids: tuple[str, ...]) -> None:
        """Take in scalars by name, with the images that they were computed from."""
        self._unread += [(name, image_ids, value.detach()) for name, value in values.items()]

    def check(self) -> None:
        """Read what was added; NonFiniteLoss names the images of the first value that is not finite."""
        for entries in zip(*gather(self._take()), strict=True):  # what all processes added at one place
            if message := _non_finite(entries):
                raise_once(NonFiniteLoss(message))
            for name, _, number in entries:
                self._read[name].append(number)

    def check_own(self) -> None:
        """`check` of this process alone, for when the others are elsewhere."""
        for entry in self._take():
            if message := _non_finite([entry]):
                raise NonFiniteLoss(message)

    def _take(self) -> list[_Entry]:
        if not self._unread:
            return []
        numbers = torch.stack([value for _, _, value in self._unread]).tolist()  # waits for the device
        taken = [(name, ids, number) for (name, ids, _), number in zip(self._unread, numbers, strict=True)]
        self._unread.clear()
        return taken

    def means(self) -> dict[str, float]:
        """The mean of each scalar since the last call."""
        self.check()
        means = {name: sum(numbers) / len(numbers) for name, numbers in self._read.items()}
        self._read.clear()
        return means


def _non_finite(entries: Sequence[_Entry]) -> str | None:
    """What to say of the values of one place, by rank, if some are not finite; None: all are."""
    bad = [(rank, entry) for rank, entry in enumerate(entries) if not math.isfinite(entry[2])]
    if not bad:
        return None
    if len(bad) == len(entries):
        name, _, number = entries[0]
        return f"{name} is {number}, from the images {', '.join(i for _, ids, _ in entries for i in ids)}"
    rank, (name, image_ids, number) = bad[0]
    return f"{name} is {number} on rank {rank}, from the images {', '.join(image_ids)}"
