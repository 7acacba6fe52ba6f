"""Functions on boxes: float tensors (N, 4) holding (x1, y1, x2, y2) in pixels.

Coordinates are continuous and half-open: width = x2 - x1. Readers of inclusive 1-based files (VOC XML)
convert at the door, after which the plain IoU equals the "+1" IoU of the VOC development kit.
"""

import torch
from torch import Tensor


def box_area(boxes: Tensor) -> Tensor:
    """Areas (N,) of boxes (N, 4), in square pixels."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def box_intersection(boxes: Tensor, others: Tensor) -> Tensor:
    """Areas (N, M) shared by each of boxes (N, 4) and each of others (M, 4)."""
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
    """Boxes (N, 4) of an image of the given width mirrored left to right."""
    x1, y1, x2, y2 = boxes.unbind(dim=1)
    return torch.stack([width - x2, y1, width - x1, y2], dim=1)


def boxes_to_rois(boxes: list[Tensor]) -> Tensor:
    """RoIs (sum R, 5) of (image index, x1, y1, x2, y2), from the boxes (R_i, 4) of each image of a batch."""
    return torch.cat([torch.cat([b.new_full((len(b), 1), i), b], dim=1) for i, b in enumerate(boxes)])
