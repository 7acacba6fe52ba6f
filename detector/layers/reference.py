"""Reference implementations of the ops in plain PyTorch, for tests and benchmarks of the kernels.

For `nms`, `roi_pool` and `roi_align` the reference is torchvision, for `depthwise_conv2d` torch's conv2d.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from detector.layers.reference_clusters import proposal_clusters
from detector.layers.reference_rotated import batched_nms_rotated, nms_rotated, roi_align_rotated, soft_nms

__all__ = [
    "batched_nms_rotated",
    "lltm",
    "lltm_sequence",
    "nms_rotated",
    "pcl_loss",
    "proposal_clusters",
    "quick_gelu",
    "roi_align_rotated",
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
