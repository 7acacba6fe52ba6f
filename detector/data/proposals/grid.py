"""A baseline for selective search: boxes of several sizes and shapes at regular positions."""

import math
from collections.abc import Sequence

import numpy as np

from detector.utils.errors import DataError

_SIZES = tuple(2 ** (-octave / 2) for octave in range(6))  # 1, 0.71, ... 0.18
_ASPECTS = (0.5, 1.0, 2.0)


def grid_boxes(
    image: np.ndarray,
    *,
    sizes: Sequence[float] = _SIZES,
    aspects: Sequence[float] = _ASPECTS,
    step: float = 0.25,
) -> np.ndarray:
    """Proposals (R, 4) float32, half-open xyxy in pixels of the image, largest first, no two the same.

    Args:
        image: (H, W, ...); only its shape is read.
        sizes: square root of the area of a box divided by that of the image.
        aspects: width over height, relative to the image; longer sides are cut to those of the image.
        step: maximum distance between neighbors, as a fraction of the side of the box.

    Raises:
        DataError: the image is empty, or a size, an aspect or the step is not positive.
    """
    height, width = image.shape[:2]
    if height < 1 or width < 1:
        raise DataError(f"image must not be empty, its shape is {image.shape}")
    if min(*sizes, *aspects, step) <= 0:
        raise DataError(f"sizes {sizes}, aspects {aspects} and step {step} must be positive")
    boxes = []
    for size in sizes:
        for aspect in aspects:
            w = min(width, width * size * math.sqrt(aspect))
            h = min(height, height * size / math.sqrt(aspect))
            left, top = np.meshgrid(_starts(width, w, step), _starts(height, h, step))
            boxes.append(np.stack([left, top, left + w, top + h], axis=-1).reshape(-1, 4))
    limits = np.array([width, height] * 2)
    found = np.unique(np.minimum(np.concatenate(boxes), limits).astype(np.float32), axis=0)
    areas = (found[:, 2:] - found[:, :2]).prod(axis=1)
    return found[np.argsort(-areas, kind="stable")]


def _starts(length: float, side: float, step: float) -> np.ndarray:
    """The positions of boxes of a side that cover a length from end to end."""
    steps = math.ceil((length - side) / (step * side) - 1e-9)  # tolerates rounding of a whole number
    return np.linspace(0, length - side, steps + 1)
