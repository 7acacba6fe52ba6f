"""A baseline for selective search: boxes of several sizes and shapes at regular positions."""

import math

import numpy as np

_SIZES = tuple(2 ** (-octave / 2) for octave in range(6))  # root of the share of the image: 1, 0.71, ... 0.18
_ASPECTS = (0.5, 1.0, 2.0)  # width over height, relative to the image
_STEP = 0.25  # maximum distance between neighbors, as a fraction of the side


def grid_boxes(image: np.ndarray) -> np.ndarray:
    """Proposals (R, 4) float32, half-open xyxy in pixels of the image, largest first, no two the same.

    Sides longer than those of the image are cut. Of the image (H, W, 3) only the shape is read.
    """
    height, width = image.shape[:2]
    boxes = []
    for size in _SIZES:
        for aspect in _ASPECTS:
            w = min(width, width * size * math.sqrt(aspect))
            h = min(height, height * size / math.sqrt(aspect))
            left, top = np.meshgrid(_starts(width, w), _starts(height, h))
            boxes.append(np.stack([left, top, left + w, top + h], axis=-1).reshape(-1, 4))
    limits = np.array([width, height] * 2)
    found = np.unique(np.minimum(np.concatenate(boxes), limits).astype(np.float32), axis=0)
    areas = (found[:, 2:] - found[:, :2]).prod(axis=1)
    return found[np.argsort(-areas, kind="stable")]


def _starts(length: float, side: float) -> np.ndarray:
    """Start positions of boxes with this side that cover the length from end to end."""
    steps = math.ceil((length - side) / (_STEP * side) - 1e-9)  # tolerates rounding of a whole number
    return np.linspace(0, length - side, steps + 1)
