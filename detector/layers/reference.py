"""Reference implementations of the ops in plain PyTorch, for tests and benchmarks of the kernels."""

import torch
from torch import Tensor
from torch.nn import functional as F

from detector.layers._sizes import Size, as_pair
from detector.layers.reference_clusters import proposal_clusters
from detector.layers.reference_roi import roi_align, roi_pool
from detector.layers.reference_rotated import batched_nms_rotated, nms_rotated, roi_align_rotated, soft_nms

__all__ = [
    "batched_nms",
    "batched_nms_rotated",
    "depthwise_conv2d",
    "lltm",
    "lltm_sequence",
    "nms",
    "nms_mask",
    "nms_rotated",
    "pcl_loss",
    "proposal_clusters",
    "quick_gelu",
    "roi_align",
    "roi_align_rotated",
    "roi_pool",
    "soft_nms",
    "trilinear_interpolate",
    "upsample_bilinear2d",
]


def pcl_loss(
    probs: Tensor, labels: Tensor, weights: Tensor, clusters: Tensor, counts: Tensor | None = None
) -> Tensor:
    """See :func:`detector.layers.pcl_loss`."""
    if counts is not None:
        sizes = counts.tolist()
        images = zip(*(tensor.split(sizes) for tensor in (probs, labels, weights, clusters)), strict=True)
        return torch.stack([pcl_loss(*image) for image in images]) if sizes else probs.new_empty(0)
    num_rows = len(probs)
    prob = probs.gather(1, labels[:, None])[:, 0]  # (R,)
    background = clusters == -1
    # Each background row r is a cluster of its own, with index R + r.
    cluster = torch.where(background, torch.arange(num_rows, 2 * num_rows, device=probs.device), clusters)

    def sum_members(values: Tensor) -> Tensor:
        return values.new_zeros(2 * num_rows).index_add(0, cluster, values)  # (2R,)

    members = sum_members(torch.ones_like(prob))
    mean = sum_members(prob) / members.clamp(min=1)
    logs = mean.clamp(min=1e-9).log()
    return -(sum_members(weights) * logs).sum() / max(num_rows, 1)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """See :func:`detector.layers.nms`."""
    return batched_nms(boxes, scores, torch.zeros_like(scores, dtype=torch.int64), iou_threshold)


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """See :func:`detector.layers.batched_nms`."""
    order = scores.sort(descending=True, stable=True).indices  # (N,)
    boxes, idxs = boxes[order], idxs[order]
    if boxes.dtype in (torch.float16, torch.bfloat16):
        boxes = boxes.float()
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])  # (N,)
    top_left = torch.maximum(boxes[:, None, :2], boxes[:, :2])  # (N, N, 2)
    bottom_right = torch.minimum(boxes[:, None, 2:], boxes[:, 2:])  # (N, N, 2)
    width, height = (bottom_right - top_left).clamp(min=0).unbind(dim=2)  # (N, N), (N, N)
    intersection = width * height
    iou = intersection / (areas[:, None] + areas - intersection)
    # Compare with the threshold in float64, without rounding it to the dtype of the boxes.
    suppresses = (iou.double() > iou_threshold) & (idxs[:, None] == idxs)  # (N, N)
    suppressed = torch.zeros_like(idxs, dtype=torch.bool)
    kept = []
    for i in range(len(order)):
        if not suppressed[i]:
            kept.append(i)
            suppressed |= suppresses[i]
    return order[kept]


def nms_mask(
    boxes: Tensor, scores: Tensor, iou_threshold: float, idxs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See :func:`detector.layers.nms_mask`."""
    idxs = torch.zeros_like(scores, dtype=torch.int64) if idxs is None else idxs
    kept = batched_nms(boxes, scores, idxs, iou_threshold)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    mask[kept] = True
    return mask, mask.sum()


def quick_gelu(input: Tensor) -> Tensor:
    """See :func:`detector.layers.quick_gelu`."""
    return input * torch.sigmoid(1.702 * input)


def trilinear_interpolate(feats: Tensor, points: Tensor) -> Tensor:
    """See :func:`detector.layers.trilinear_interpolate`."""
    upper = (points + 1) / 2
    for u in upper[:, :, None, None].unbind(1):  # x, y, z: each step halves the number of corners
        low, high = feats.unflatten(1, (2, feats.shape[1] // 2)).unbind(1)
        feats = (1 - u) * low + u * high
    return feats[:, 0]


def lltm(input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """See :func:`detector.layers.lltm`."""
    in_gate, out_gate, candidate = F.linear(torch.cat([h, input], dim=1), weight, bias).chunk(3, dim=1)
    c = c + F.elu(candidate) * in_gate.sigmoid()
    return c.tanh() * out_gate.sigmoid(), c


def lltm_sequence(
    input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`detector.layers.lltm_sequence`."""
    outputs = []
    for x in input:
        h, c = lltm(x, weight, bias, h, c)
        outputs.append(h)
    return torch.stack(outputs), h, c


def depthwise_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:
    """See :func:`detector.layers.depthwise_conv2d`."""
    steps = as_pair("depthwise_conv2d", "stride", stride)
    gaps = as_pair("depthwise_conv2d", "dilation", dilation)
    pad_h, pad_w = as_pair("depthwise_conv2d", "padding", padding)
    multiplier, kernel = weight.shape[0] // input.shape[1], weight.shape[2:]
    padded = F.pad(input, (pad_w, pad_w, pad_h, pad_h))
    padded = padded.repeat_interleave(multiplier, dim=1)  # (N, C m, H + 2 pad_h, W + 2 pad_w)
    starts = [padded.shape[2 + i] - (kernel[i] - 1) * gaps[i] for i in range(2)]
    total = padded.new_zeros(()) if bias is None else bias[:, None, None]
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = padded[:, :, i * gaps[0] :][:, :, : starts[0] : steps[0]]
            pixels = rows[:, :, :, j * gaps[1] :][:, :, :, : starts[1] : steps[1]]  # (N, C m, OH, OW)
            total = total + weight[:, :, i, j, None] * pixels
    return total


def upsample_bilinear2d(
    input: Tensor,
    size: tuple[int, int] | None = None,
    scale_factor: tuple[float, float] | None = None,
    coordinate_mode: str = "half_pixel",
) -> Tensor:
    """See :func:`detector.layers.upsample_bilinear2d`. Sizes and factors must be pairs."""
    for dim in (2, 3):
        if size is not None:
            length, factor = size[dim - 2], None
        elif scale_factor is not None:
            factor = scale_factor[dim - 2]
            length = int(input.shape[dim] * factor)
        input = _resize(input, dim, length, factor, coordinate_mode)
    return input


def _resize(input: Tensor, dim: int, length: int, factor: float | None, mode: str) -> Tensor:
    """Resize dimension `dim` of `input` to `length`. `factor` is None if a size was given."""
    old = input.shape[dim]
    outputs = torch.arange(length, dtype=input.dtype, device=input.device)
    if mode == "align_corners":
        position = outputs * ((old - 1) / max(length - 1, 1))
    elif mode == "asymmetric":
        position = outputs * (old / length)
    else:
        scale = old / length
        if factor is not None and mode == "half_pixel" and length != old:
            scale = 1 / factor
        position = (outputs + 0.5) * scale - 0.5
    position = position.clamp(0, old - 1)
    lower = position.long()
    upper = (lower + 1).clamp(max=old - 1)
    weight = (position - lower).view(-1, *[1] * (input.dim() - 1 - dim))
    return (1 - weight) * input.index_select(dim, lower) + weight * input.index_select(dim, upper)
