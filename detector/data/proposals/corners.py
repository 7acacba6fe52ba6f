"""Boxes around many corners, for small objects on printed patterns, such as defects of circuit boards."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from detector.utils.errors import DataError

_RATIO = math.sqrt(2)  # of the sides of a box, and of one length to the next
_STEP = 0.25  # distance between neighboring boxes, as a fraction of the side
_MAX_IOU = 0.6  # of two boxes that are both kept
_MAX_CANDIDATES = 20_000  # non-maximum suppression takes a second for these
_MAX_BOXES = 3000
_MAX_PIXELS = 2**24
_MARGIN = 11  # pixels that a corner response depends on in each direction


def corner_boxes(image: np.ndarray, *, sides: Sequence[float] = (16.0, 64.0)) -> np.ndarray:
    """Proposals (R, 4) float32, half-open xyxy in pixels of the image, best first, at most 3,000.

    Boxes of several sizes, one side 1.4 times the other, lie at regular positions. The score of a box is the
    sum of the corner response of its pixels (the smaller eigenvalue of the structure tensor; Shi and Tomasi,
    Good Features to Track, CVPR 1994) over the square root of its area: a sum alone prefers large boxes, a
    mean small ones. Of boxes with an IoU above 0.6 only the best remains.

    Args:
        image: (H, W, 3) uint8 RGB, at most 2^24 pixels.
        sides: shortest and longest side of the objects in pixels.

    Raises:
        DataError: too many pixels, or sides that are not positive and ascending.
    """
    from torchvision.ops import nms  # here, as every worker would import it for seconds

    if len(sides) != 2 or not 1 <= sides[0] <= sides[1]:
        raise DataError(f"sides must be the shortest and the longest in pixels, at least 1, not {sides}")
    height, width = image.shape[:2]
    if height * width > _MAX_PIXELS:
        raise DataError(f"an image of {height} x {width} pixels is too large for corners: set INPUT.TILE")
    padded = np.pad(image, ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0)), "edge")
    inside = slice(_MARGIN, -_MARGIN)
    response = _corner_response(torch.from_numpy(padded).permute(2, 0, 1))[inside, inside]
    sums = torch.nn.functional.pad(response.double().cumsum(0).cumsum(1), (1, 0, 1, 0))  # (H + 1, W + 1)
    boxes, scores = [], []
    count = max(1, round(math.log(sides[1] / sides[0], _RATIO)))  # so that the longest side is sides[1]
    for short in (sides[0] * _RATIO**i for i in range(count)):
        for w, h in ((short, _RATIO * short), (_RATIO * short, short)):
            w, h = min(width, round(w)), min(height, round(h))
            x, y = _positions(width, w), _positions(height, h)
            total = sums[y + h][:, x + w] - sums[y][:, x + w] - sums[y + h][:, x] + sums[y][:, x]
            scores.append((total / math.sqrt(w * h)).flatten())
            top, left = torch.meshgrid(y, x, indexing="ij")
            boxes.append(torch.stack([left, top, left + w, top + h], dim=-1).flatten(0, 1))
    found, score = torch.cat(boxes).float(), torch.cat(scores)
    best = score.argsort(descending=True, stable=True)[:_MAX_CANDIDATES]
    found, score = found[best], score[best]
    return found[nms(found, score.float(), _MAX_IOU)[:_MAX_BOXES]].numpy()


def _corner_response(image: Tensor) -> Tensor:
    """The smaller eigenvalue of the structure tensor at each pixel (H, W) of an RGB image."""
    from torchvision.transforms.v2 import functional as F

    gray = F.gaussian_blur(F.rgb_to_grayscale(image).float() / 255, [9, 9], [1.5])
    (dy,), (dx,) = torch.gradient(gray, dim=(-2,)), torch.gradient(gray, dim=(-1,))
    xx, xy, yy = F.gaussian_blur(torch.cat([dx * dx, dx * dy, dy * dy]), [13, 13], [2.0])
    return (xx + yy) / 2 - ((xx - yy).square() / 4 + xy.square()).sqrt()


def _positions(length: int, side: int) -> Tensor:
    """Start positions of boxes with this side that cover the length from end to end."""
    count = 1 + math.ceil((length - side) / (_STEP * side))
    return torch.linspace(0, length - side, count).round().long()
