"""Functions on boxes: float tensors (N, 4) holding (x1, y1, x2, y2) in pixels.

Coordinates are continuous and half-open: width = x2 - x1. Readers of inclusive 1-based files (VOC XML)
convert on load, after which the plain IoU equals the "+1" IoU of the VOC development kit.
"""

import math

import torch
from torch import Tensor

# Units of regression targets: tenths of the box size for the center, fifths of the log scale for the size.
# They are plain numbers because copying a tensor to the GPU would synchronize with the host.
_CENTER_UNIT, _SIZE_UNIT = 0.1, 0.2
_MAX_LOG_SCALE = math.log(1000 / 16)  # limits the growth of a predicted box over its proposal
_MIN_SIZE = 1e-3  # pixels; keeps the targets of empty boxes finite


def box_area(boxes: Tensor) -> Tensor:
    """Areas (N,) of boxes (N, 4), in square pixels."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_intersection(boxes: Tensor, others: Tensor) -> Tensor:
    """Areas (N, M) of the pairwise intersections of boxes (N, 4) and others (M, 4)."""
    top_left = torch.maximum(boxes[:, None, :2], others[None, :, :2])  # (N, M, 2)
    bottom_right = torch.minimum(boxes[:, None, 2:], others[None, :, 2:])  # (N, M, 2)
    return (bottom_right - top_left).clamp(min=0).prod(dim=2)


def box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """Intersection over union (N, M) of boxes (N, 4) and others (M, 4); 0 where the union is empty."""
    intersection = box_intersection(boxes, others)
    union = box_area(boxes)[:, None] + box_area(others)[None, :] - intersection
    return torch.where(union > 0, intersection / union, torch.zeros_like(union))


def scale_boxes(boxes: Tensor, scale_x: float, scale_y: float) -> Tensor:
    """Boxes (N, 4) of an image resized by the factors (scale_x, scale_y)."""
    return boxes * boxes.new_tensor([scale_x, scale_y, scale_x, scale_y])


def flip_boxes(boxes: Tensor, width: float) -> Tensor:
    """Boxes (N, 4) of an image of the given width flipped left to right."""
    x1, y1, x2, y2 = boxes.unbind(dim=1)
    return torch.stack([width - x2, y1, width - x1, y2], dim=1)


def boxes_to_rois(boxes: list[Tensor]) -> Tensor:
    """RoIs (sum R, 5) of (image index, x1, y1, x2, y2), from the boxes (R_i, 4) of each image of a batch."""
    return torch.cat([torch.cat([b.new_full((len(b), 1), i), b], dim=1) for i, b in enumerate(boxes)])


def clip_boxes(boxes: Tensor, height: float, width: float) -> Tensor:
    """Boxes (..., 4) clipped to an image of the given size."""
    # By axis, with plain numbers: torch.export may keep the sizes symbolic, and copies would synchronize.
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)  # (..., 2)
    return torch.stack([x, y], dim=-1).flatten(start_dim=-2)


def encode_boxes(boxes: Tensor, others: Tensor) -> Tensor:
    """Regression targets (..., 4) from boxes (..., 4) to others (..., 4), see Fast R-CNN (arXiv 1504.08083).

    (dx, dy, dw, dh): the offset of the center in tenths of the width and height of the box, and the natural
    logarithms of the ratios of width and height in fifths.
    """
    (center, size), (other_center, other_size) = _center_and_size(boxes), _center_and_size(others)
    offset, log_scale = (other_center - center) / size, (other_size / size).log()
    return torch.cat([offset / _CENTER_UNIT, log_scale / _SIZE_UNIT], dim=-1)


def decode_boxes(boxes: Tensor, deltas: Tensor) -> Tensor:
    """Boxes (..., 4) moved by the targets `deltas` (..., 4); the inverse of :func:`encode_boxes`."""
    center, size = _center_and_size(boxes)
    offset, log_scale = deltas.split(2, dim=-1)
    center = center + offset * _CENTER_UNIT * size
    half = size * (log_scale * _SIZE_UNIT).clamp(max=_MAX_LOG_SCALE).exp() / 2
    return torch.cat([center - half, center + half], dim=-1)


def _center_and_size(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Centers (..., 2) and sizes (..., 2) of boxes (..., 4), x before y."""
    first, last = boxes.split(2, dim=-1)
    return (first + last) / 2, (last - first).clamp(min=_MIN_SIZE)
