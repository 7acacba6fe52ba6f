"""Copy-paste: objects of other images in new places, for a detector that is trained on boxes."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from detector.structures import box_area, box_intersection

_MOST = 2  # objects that an image gets
_SCALES = 0.5, 1.5  # of an object, relative to the shorter sides of the two images
_AREA = 0.5  # of the image that one object covers at most
_COVERED = 0.5  # share of a box that is covered when its object counts as gone


def paste_objects(
    image: Tensor,
    boxes: Tensor,
    labels: Tensor,
    source: Callable[[], tuple[Tensor, Tensor, Tensor]],
    rng: np.random.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Paste one or two objects of other images at random places, scaled at random.

    As in Simple Copy-Paste (Ghiasi et al., arXiv 2012.07177), but with whole boxes, since nobody drew
    outlines. Of each class only the first box of an image is pasted: pseudo boxes are sorted by score, and
    the best is right most often.

    Args:
        image (Tensor[3, H, W]): uint8; it stays as it is.
        boxes (Tensor[G, 4]): float32 xyxy in pixels.
        labels (Tensor[G]): int64.
        source: another image with its boxes and labels; called for each object. If it has no boxes, nothing
            is pasted.

    Returns:
        The new image, boxes (K + P, 4), labels (K + P,), and kept (G,) bool: the K boxes that are covered by
        half at most. They come first.
    """
    image, kept = image.clone(), torch.ones(len(labels), dtype=torch.bool)
    height, width = image.shape[1:]
    pasted_boxes, pasted_labels = boxes[:0], labels[:0]
    for _ in range(int(rng.integers(1, _MOST + 1))):
        other, other_boxes, other_labels = source()
        found = other_labels.tolist()
        best = [row for row, label in enumerate(found) if label not in found[:row]]
        if not best:
            continue
        row = best[int(rng.integers(len(best)))]
        x1, y1, x2, y2 = (max(0, round(side)) for side in other_boxes[row].tolist())
        crop = other[:, y1:y2, x1:x2]
        if 0 in crop.shape:
            continue
        h, w = crop.shape[1:]
        scale = rng.uniform(*_SCALES) * min(height, width) / min(other.shape[1:])
        scale = min(scale, height / h, width / w, (_AREA * height * width / (h * w)) ** 0.5)
        h, w = min(height, max(2, round(h * scale))), min(width, max(2, round(w * scale)))
        top, left = int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1))
        resized = F.interpolate(crop[None], (h, w), mode="bilinear", antialias=True)[0]
        image[:, top : top + h, left : left + w] = resized
        box = boxes.new_tensor([[left, top, left + w, top + h]])
        kept &= _visible(boxes, box)
        visible = _visible(pasted_boxes, box)
        pasted_boxes = torch.cat([pasted_boxes[visible], box])
        pasted_labels = torch.cat([pasted_labels[visible], other_labels[row : row + 1]])
    return image, torch.cat([boxes[kept], pasted_boxes]), torch.cat([labels[kept], pasted_labels]), kept


def _visible(boxes: Tensor, above: Tensor) -> Tensor:
    """(G,) whether most of each box is not covered by the box `above` (1, 4)."""
    return box_intersection(boxes, above)[:, 0] <= _COVERED * box_area(boxes)
