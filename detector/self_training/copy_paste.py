"""Copy-paste: objects of other images in new places, for a detector that is trained on boxes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from detector.structures import box_area, box_intersection

_MOST = 2  # objects pasted into an image
_SCALES = 0.5, 1.5  # range of the scale of an object, relative to the shorter sides of the images
_AREA = 0.5  # of the image that one object covers at most
_COVERED = 0.5  # share of a box above which it counts as covered and is dropped


@dataclass(frozen=True)
class BoxedImage:
    """An image and its boxes, of which the reviewed ones come first."""

    image: Tensor  # (3, H, W) uint8
    boxes: Tensor  # (G, 4) float32 xyxy in pixels
    labels: Tensor  # (G,) int64
    reviewed: Tensor  # (G,) bool, whether a person has reviewed the box
    weights: Tensor  # (G,) float32, of the losses at each box
    complete: bool  # whether the reviewed boxes are all objects of the image


def paste_objects(
    target: BoxedImage, source: Callable[[], BoxedImage], rng: np.random.Generator
) -> BoxedImage:
    """`target` with one or two objects of other images at random places, scaled at random.

    As in Simple Copy-Paste (Ghiasi et al., arXiv 2012.07177) and Cut, Paste and Learn (Dwibedi et al., arXiv
    1708.01642), but with whole boxes, since nobody drew outlines, and without blending. Of each class only
    the first box of an image is pasted: pseudo boxes are sorted by score, and the best is right most often.
    An object covers at most half of the target; boxes are dropped if more than half of them is covered.

    Args:
        target: its tensors stay as they are.
        source: another image; called for each object. If it has no boxes, nothing is pasted.

    Returns:
        A new image. Its reviewed boxes come first, pasted ones after its own.
    """
    target = replace(target, image=target.image.clone())
    for _ in range(int(rng.integers(1, _MOST + 1))):
        other = source()
        labels = other.labels.tolist()
        best = [row for row, label in enumerate(labels) if label not in labels[:row]]
        if best:
            target = _paste(target, other, best[int(rng.integers(len(best)))], rng)
    return reviewed_first(target)


def reviewed_first(image: BoxedImage) -> BoxedImage:
    """The image with its reviewed boxes before the others, both in the order in which they were."""
    order = image.reviewed.logical_not().sort(stable=True).indices
    return replace(
        image,
        boxes=image.boxes[order],
        labels=image.labels[order],
        reviewed=image.reviewed[order],
        weights=image.weights[order],
    )


def resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """The image (3, H, W) uint8 with another (height, width), antialiased."""
    if size == (1, 1):  # which torch cannot do from uint8
        return image.float().mean(dim=(1, 2), keepdim=True).round().to(image.dtype)
    return F.interpolate(image[None], size, mode="bilinear", antialias=True)[0]


def _paste(target: BoxedImage, other: BoxedImage, row: int, rng: np.random.Generator) -> BoxedImage:
    """`target`, whose image is changed in place, with the object of box `row` of the other image."""
    x1, y1, x2, y2 = (max(0, round(side)) for side in other.boxes[row].tolist())
    crop, (height, width) = other.image[:, y1:y2, x1:x2], target.image.shape[1:]
    if 0 in crop.shape:
        return target
    h, w = crop.shape[1:]
    scale = rng.uniform(*_SCALES) * min(height, width) / min(other.image.shape[1:])
    scale = min(scale, height / h, width / w, (_AREA * height * width / (h * w)) ** 0.5)
    h, w = min(height, max(2, round(h * scale))), min(width, max(2, round(w * scale)))
    top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
    target.image[:, top : top + h, left : left + w] = resized(crop, (h, w))
    box = target.boxes.new_tensor([[left, top, left + w, top + h]])
    visible = box_intersection(target.boxes, box)[:, 0] <= _COVERED * box_area(target.boxes)
    return replace(
        target,
        boxes=torch.cat([target.boxes[visible], box]),
        labels=torch.cat([target.labels[visible], other.labels[row : row + 1]]),
        reviewed=torch.cat([target.reviewed[visible], other.reviewed[row : row + 1]]),
        weights=torch.cat([target.weights[visible], other.weights[row : row + 1]]),
    )
