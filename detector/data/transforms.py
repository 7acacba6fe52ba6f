"""Resizing and flipping of an image with its boxes.

Random numbers come from the generator that the caller passes, so that a sample depends on its seed, not on
the process that makes it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from detector.structures import Sample, flip_boxes, scale_boxes


def resized_size(height: int, width: int, size: int, side: str, max_size: int) -> tuple[int, int]:
    """(height, width) where the "shortest" or "longest" side has `size`, and none exceeds `max_size`."""
    reference = min(height, width) if side == "shortest" else max(height, width)
    scale = min(size / reference, max_size / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def resize(sample: Sample, size: int, side: str, max_size: int) -> Sample:
    """The sample with its image (3, H, W) resized by :func:`resized_size`, bilinear with antialiasing.

    Boxes are scaled by the exact ratios of the rounded sizes, which differ slightly between the axes.
    """
    height, width = sample.image.shape[1:]
    new_height, new_width = resized_size(height, width, size, side, max_size)
    if (new_height, new_width) == (height, width):
        return replace(sample, pixel=(1.0, 1.0))
    # uint8 is five times as fast as float32 and as exact as Pillow.
    image = F.interpolate(sample.image[None], (new_height, new_width), mode="bilinear", antialias=True)[0]
    pixel = (new_width / width, new_height / height)
    return _with_boxes(sample, image, lambda boxes: scale_boxes(boxes, *pixel), pixel=pixel)


def flip(sample: Sample) -> Sample:
    """The sample flipped left to right."""
    width = sample.image.shape[2]
    flipped = sample.image.flip(2)
    return _with_boxes(sample, flipped, lambda boxes: flip_boxes(boxes, width), flipped=not sample.flipped)


def _with_boxes(sample: Sample, image: Tensor, move: Callable[[Tensor], Tensor], **changes: Any) -> Sample:
    """The sample with another image (3, H, W), and `move` applied to its boxes."""
    reviewed = sample.reviewed and replace(sample.reviewed, boxes=move(sample.reviewed.boxes))
    hints = sample.hints
    if hints is not None:
        hints = replace(hints, points=move(hints.points.repeat(1, 2))[:, :2])  # as boxes without area
    proposals = move(sample.proposals)
    return replace(sample, image=image, proposals=proposals, reviewed=reviewed, hints=hints, **changes)


@dataclass(frozen=True)
class TrainTransform:
    """Resize to a random one of `sizes` and flip with probability 0.5."""

    sizes: tuple[int, ...]  # pixels
    side: str  # the side that `sizes` refer to: "shortest" or "longest"
    max_size: int  # cap on the longer side, pixels
    flip: bool
    inclusive_rois: bool = False  # whether RoI pooling gets inclusive corners

    def __call__(self, sample: Sample, generator: torch.Generator) -> Sample:
        # Both are always drawn, so that one setting does not change the random numbers of the other.
        size = self.draw_size(generator)
        flipped = float(torch.rand((), generator=generator)) < 0.5
        sample = resize(sample, size, self.side, self.max_size)
        if self.flip and flipped:
            sample = flip(sample)
        return sample if self.inclusive_rois else replace(sample, pixel=None)

    def of_tile(self, share: float) -> "TrainTransform":
        """The transform of a view with a share of a full tile's longer side, which gets one of `sizes`."""
        sizes = tuple(max(1, round(size * share)) for size in self.sizes)
        return replace(self, sizes=sizes, side="longest")

    def draw_size(self, generator: torch.Generator) -> int:
        """A random one of `sizes`, from the first random number."""
        return self.sizes[int(torch.randint(len(self.sizes), (), generator=generator))]


@dataclass(frozen=True)
class TestTransform:
    """A test pass: one size, flipped or not."""

    __test__ = False  # pytest: not a test case

    size: int
    side: str
    max_size: int
    flip: bool  # whether to flip the image
    inclusive_rois: bool = False  # whether RoI pooling gets inclusive corners

    def of_tile(self, share: float) -> "TestTransform":
        """Like :meth:`TrainTransform.of_tile`."""
        return replace(self, size=max(1, round(self.size * share)), side="longest")

    @property
    def size_options(self) -> tuple[int, str, int]:
        """Arguments of :func:`resize`; passes with equal arguments can share the resized image."""
        return self.size, self.side, self.max_size

    def finish(self, resized: Sample) -> Sample:
        """Finish the pass from a resized sample."""
        sample = flip(resized) if self.flip else resized
        return sample if self.inclusive_rois else replace(sample, pixel=None)
