"""Losses on their way from the device to the log."""

import math
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor


class NonFiniteLoss(RuntimeError):
    """A loss or a gradient is NaN or infinite."""


class LossLog:
    """Scalars of the steps since the last log line.

    They stay where they were computed until `check` or `means` reads all of them at once, so that a step does
    not wait for a GPU to finish.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[str, tuple[str, ...], Tensor]] = []
        self._read: dict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], image_ids: tuple[str, ...]) -> None:
        """Take in scalars by name, with the images that they were computed from."""
        self._unread += [(name, image_ids, value.detach()) for name, value in values.items()]

    def check(self) -> None:
        """Read what was added; NonFiniteLoss names the images of the first value that is not finite."""
        if not self._unread:
            return
        numbers = torch.stack([value for _, _, value in self._unread]).tolist()  # waits for the device
        for (name, image_ids, _), number in zip(self._unread, numbers, strict=True):
            if not math.isfinite(number):
                raise NonFiniteLoss(f"{name} is {number}, from the images {', '.join(image_ids)}")
            self._read[name].append(number)
        self._unread.clear()

    def means(self) -> dict[str, float]:
        """The mean of each scalar since the last call."""
        self.check()
        means = {name: sum(numbers) / len(numbers) for name, numbers in self._read.items()}
        self._read.clear()
        return means
