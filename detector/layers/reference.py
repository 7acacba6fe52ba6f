"""Each op in plain PyTorch: the executable specification; tests and benchmarks set it beside the kernels."""

import torch
from torch import Tensor
from torch.nn import functional as F

from detector.layers.reference_clusters import proposal_clusters
from detector.layers.reference_depthwise_conv2d import depthwise_conv2d
from detector.layers.reference_roi import roi_align, roi_pool
from detector.layers.reference_upsample import upsample_bilinear2d

__all__ = [
    "batched_nms",
    "depthwise_conv2d",
    "lltm",
    "lltm_sequence",
    "nms",
    "nms_mask",
    "pcl_loss",
    "proposal_clusters",
    "quick_gelu",
    "roi_align",
    "roi_pool",
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
    # A background row is a cluster of one: it takes the number R + r, after the at most R clusters.
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
    # The threshold is compared as a double, not rounded to the dtype of the boxes.
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
    for u in upper[:, :, None, None].unbind(1):  # x, y, z: each halves the corners, 8 to 4 to 2 to 1
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
