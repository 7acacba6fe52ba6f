"""Deferred logging of losses, and the error of training that diverges."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from detector.utils.distributed import gather, raise_once
from detector.utils.errors import UserError


class NonFiniteLoss(UserError, FloatingPointError):
    """A loss, a score or a gradient is NaN or infinite."""

    @classmethod
    def at(cls, step: int, problem: str, image_ids: Iterable[str]) -> "NonFiniteLoss":
        """The error of a training step (from 1), with what is not finite and the images it comes from."""
        return cls(
            f"training has diverged: in step {step} {problem}, from the images {', '.join(image_ids)}; "
            "lower SOLVER.BASE_LR, or check INPUT.MEAN and INPUT.STD"
        )


_Entry = tuple[int, str, tuple[str, ...], float]  # step, name, images and value of a scalar


class LossLog:
    """Scalars of the steps since the last log line.

    They stay on their device until `check` or `means` reads all of them at once, so that a step does not
    synchronize with the GPU. Each process adds its own, the same names in the same order; `check` and `means`
    gather those of all processes, which must call them together.
    """

    def __init__(self) -> None:
        self._unread: list[tuple[int, str, tuple[str, ...], Tensor]] = []
        self._read: dict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], image_ids: tuple[str, ...], step: int) -> None:
        """Add scalars by name, with the images and the step that they come from."""
        self._unread += [(step, name, image_ids, value.detach()) for name, value in values.items()]

    def check(self) -> None:
        """Read what was added; NonFiniteLoss names the images of the first value that is not finite."""
        for entries in zip(*gather(self._take()), strict=True):  # what all processes added at one place
            if error := _non_finite(entries):
                raise_once(error)
            for _, name, _, number in entries:
                self._read[name].append(number)

    def check_own(self) -> None:
        """`check` of this process alone, for when the others are elsewhere."""
        for entry in self._take():
            if error := _non_finite([entry]):
                raise error

    def _take(self) -> list[_Entry]:
        if not self._unread:
            return []
        numbers = torch.stack([entry[3] for entry in self._unread]).tolist()  # waits for the device
        taken = [(*entry[:3], number) for entry, number in zip(self._unread, numbers, strict=True)]
        self._unread.clear()
        return taken

    def means(self) -> dict[str, float]:
        """The mean of each scalar since the last call."""
        self.check()
        means = {name: sum(numbers) / len(numbers) for name, numbers in self._read.items()}
        self._read.clear()
        return means


def _non_finite(entries: Sequence[_Entry]) -> NonFiniteLoss | None:
    """The error of the values of one place, by rank, if some are not finite; None: all are."""
    bad = [(rank, entry) for rank, entry in enumerate(entries) if not math.isfinite(entry[3])]
    if not bad:
        return None
    rank, (step, name, image_ids, number) = bad[0]
    if len(bad) == len(entries):
        return NonFiniteLoss.at(step, f"{name} is {number}", [i for _, _, ids, _ in entries for i in ids])
    return NonFiniteLoss.at(step, f"{name} is {number} on rank {rank}", image_ids)
