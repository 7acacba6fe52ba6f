"""Deferred logging of losses, and the error of training that diverges."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from detector.utils.distributed import gather, raise_once
from detector.utils.errors import UserError

_UNLEARNED = 0.6  # share of the MIL loss that is left; see training_warning


class NonFiniteLoss(UserError, FloatingPointError):
    """A loss, a score or a gradient is NaN or infinite."""

    @classmethod
    def at(cls, step: int, problem: str, image_ids: Iterable[str]) -> "NonFiniteLoss":
        """The error of a training step (from 1), with what is not finite and the images it comes from."""
        return cls(
            f"training has diverged: in step {step} {problem}, from the images {', '.join(image_ids)}; "
            "lower SOLVER.BASE_LR, or check INPUT.MEAN and INPUT.STD"
        )


class _Scalar(NamedTuple):
    step: int
    name: str
    image_ids: tuple[str, ...]
    value: Any  # a tensor (), and once it was read a float


class LossLog:
    """Scalars of the steps since the last log line.

    They stay on their device until `check` or `means` reads all of them at once, so that a step does not
    synchronize with the GPU. Each process adds its own, the same names in the same order; `check` and `means`
    gather those of all processes, which must call them together.
    """

    def __init__(self) -> None:
        self._unread: list[_Scalar] = []
        self._read: dict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], image_ids: tuple[str, ...], step: int) -> None:
        """Add scalars by name, with the images and the step that they come from."""
        self._unread += [_Scalar(step, name, image_ids, value.detach()) for name, value in values.items()]

    def check(self) -> None:
        """Read what was added; NonFiniteLoss names the images of the first value that is not finite."""
        for scalars in zip(*gather(self._take()), strict=True):  # what all processes added at one place
            if error := _non_finite(scalars):
                raise_once(error)
            for scalar in scalars:
                self._read[scalar.name].append(scalar.value)

    def check_own(self) -> None:
        """`check` of this process alone, for when the others are elsewhere."""
        for scalar in self._take():
            if error := _non_finite([scalar]):
                raise error

    def _take(self) -> list[_Scalar]:
        if not self._unread:
            return []
        numbers = torch.stack([scalar.value for scalar in self._unread]).tolist()  # waits for the device
        taken = [scalar._replace(value=number) for scalar, number in zip(self._unread, numbers, strict=True)]
        self._unread.clear()
        return taken

    def means(self) -> dict[str, float]:
        """The mean of each scalar since the last call."""
        self.check()
        means = {name: sum(numbers) / len(numbers) for name, numbers in self._read.items()}
        self._read.clear()
        return means


def _non_finite(scalars: Sequence[_Scalar]) -> NonFiniteLoss | None:
    """The error of the values of one place, by rank, if some are not finite; None: all are."""
    bad = [rank for rank, scalar in enumerate(scalars) if not math.isfinite(scalar.value)]
    if not bad:
        return None
    step, name, image_ids, value = scalars[bad[0]]
    if len(bad) == len(scalars):
        return NonFiniteLoss.at(
            step, f"{name} is {value}", [i for losses in scalars for i in losses.image_ids]
        )
    return NonFiniteLoss.at(step, f"{name} is {value} on rank {bad[0]}", image_ids)


def training_warning(first: Mapping[str, float], last: Mapping[str, float]) -> str:
    """What to say if the MIL loss, that of the image labels, has hardly fallen; else "".

    Of 285 trainings on photographs, Doom and circuit boards it ended above 0.6 of where it began in 13, of
    which one reached an AP50 of 28, and all others less than 5.

    Args:
        first: the mean losses of the first log line; `last`, of the last one.
    """
    if first is last or last.get("mil", 0.0) <= _UNLEARNED * first.get("mil", 0.0):
        return ""
    return (
        f"the loss of the image labels (mil) has hardly fallen, from {first['mil']:.3g} to "
        f"{last['mil']:.3g}: boxes are unreliable until labels are learned. Train longer (SOLVER.MAX_ITER), "
        "or let the backbone learn faster (docs/troubleshooting.md, the labels are not learned)"
    )
