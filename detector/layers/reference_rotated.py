"""Reference implementations of RoI align and NMS of rotated boxes, and of soft-NMS, in plain PyTorch."""

import torch
from torch import Tensor

from detector.layers._sizes import Size, as_pair
from detector.structures import box_iou


def _axes(box: Tensor) -> Tensor:
    """Unit vectors (2, 2) along the width and the height of a box that ends with its angle."""
    angle = torch.deg2rad(box[-1])
    return torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)


def roi_align_rotated(
    input: Tensor, boxes: Tensor, output_size: Size, spatial_scale: float = 1.0, sampling_ratio: int = 0
) -> Tensor:
    """See :func:`detector.layers.roi_align_rotated`."""
    height, width = as_pair("roi_align_rotated", "output_size", output_size)
    pooled = []
    for box in boxes.cpu():
        x, y, *size = box[1:5] * spatial_scale
        along = []
        for length, bins in zip(size, (width, height), strict=True):
            samples = sampling_ratio if sampling_ratio > 0 else int((length / bins).ceil())
            number = torch.arange(bins * samples, dtype=box.dtype) + 0.5
            along.append(number * (length / bins / max(samples, 1)) - length / 2)
        u, v = torch.meshgrid(*along, indexing="xy")  # (PH samples, PW samples)
        at = torch.stack([x, y]) - 0.5 + torch.stack([u, v], dim=-1) @ _axes(box)  # x and y of each sample
        values = _interpolate(input[int(box[0])], at[..., 1].to(input), at[..., 0].to(input))
        bins = values.unflatten(2, (width, -1)).unflatten(1, (height, -1))  # (C, PH, samples, PW, samples)
        pooled.append(bins.sum(dim=(2, 4)) / max(bins[0, 0, :, 0].numel(), 1))
    return torch.stack(pooled) if pooled else input.new_zeros(0, input.shape[1], height, width)


def _interpolate(image: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Bilinear samples (C, ...) of an image (C, H, W) as in roi_align; 0 more than one cell outside."""
    height, width = image.shape[1:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    top, left = y.long(), x.long()
    bottom, right = (top + 1).clamp(max=height - 1), (left + 1).clamp(max=width - 1)
    upper = torch.lerp(image[:, top, left], image[:, top, right], x - left)
    lower = torch.lerp(image[:, bottom, left], image[:, bottom, right], x - left)
    return torch.lerp(upper, lower, y - top).where(inside, 0)


def iou_rotated(a: Tensor, b: Tensor) -> float:
    """IoU of two rotated boxes (5,), from corners inside of the other box and crossings of sides."""
    a, b = a.double(), b.double()
    if min(*a[2:4], *b[2:4]) <= 0:
        return 0.0
    signs = torch.tensor([[1, 1], [-1, 1], [-1, -1], [1, -1]], dtype=torch.float64)
    corners = [box[:2] - a[:2] + signs * box[2:4] / 2 @ _axes(box) for box in (a, b)]
    points = []
    for other, own in zip([a, b], corners[::-1], strict=True):
        at = (own + a[:2] - other[:2]) @ _axes(other).T
        points += list(own[(at.abs() <= other[2:4] / 2 + 1e-12).all(dim=1)])
    for i in range(4):
        for j in range(4):
            start, side = corners[0][i], corners[0][(i + 1) % 4] - corners[0][i]
            other_start, other_side = corners[1][j], corners[1][(j + 1) % 4] - corners[1][j]
            matrix = torch.stack([side, -other_side], dim=1)
            if matrix.det().abs() > 1e-12:
                shares = torch.linalg.solve(matrix, other_start - start)
                if ((shares >= 0) & (shares <= 1)).all():
                    points.append(start + shares[0] * side)
    if len(points) < 3:
        return 0.0
    hull = torch.stack(points) - torch.stack(points).mean(dim=0)
    hull = hull[torch.atan2(hull[:, 1], hull[:, 0]).argsort()]
    following = hull.roll(-1, dims=0)
    common = (hull[:, 0] * following[:, 1] - hull[:, 1] * following[:, 0]).sum() / 2
    return float(common / (a[2] * a[3] + b[2] * b[3] - common))


def nms_rotated(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """See :func:`detector.layers.nms_rotated`."""
    return batched_nms_rotated(boxes, scores, torch.zeros(len(boxes)), iou_threshold)


def batched_nms_rotated(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """See :func:`detector.layers.batched_nms_rotated`."""
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        rivals = [j for j in kept if idxs[i] == idxs[j]]
        if all(iou_rotated(boxes[j].cpu(), boxes[i].cpu()) <= iou_threshold for j in rivals):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64, device=boxes.device)


def soft_nms(
    boxes: Tensor,
    scores: Tensor,
    idxs: Tensor | None = None,
    *,
    method: str = "linear",
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 0.001,
) -> tuple[Tensor, Tensor]:
    """See :func:`detector.layers.soft_nms`."""
    wide = boxes.double()
    lowered, groups = scores.double(), torch.zeros_like(scores) if idxs is None else idxs
    taken: list[int] = []
    left = torch.ones_like(scores, dtype=torch.bool)
    while left.any():
        best = int(lowered.where(left, -1).argmax())
        if lowered[best] < min_score:
            break
        taken.append(best)
        left[best] = False
        iou = box_iou(wide[best, None], wide)[0]
        factor = (
            (-iou.square() / sigma).exp() if method == "gaussian" else (1 - iou).where(iou > iou_threshold, 1)
        )
        lowered = torch.where(left & (groups == groups[best]), lowered * factor, lowered)
    kept = torch.tensor(taken, dtype=torch.int64, device=boxes.device)
    return kept, lowered[kept].to(scores.dtype)
