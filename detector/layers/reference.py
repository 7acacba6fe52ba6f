"""Each op in plain PyTorch: the executable specification; tests and benchmarks set it beside the kernels."""

import torch
from torch import Tensor
from torch.nn import functional as F

from detector.layers.reference_clusters import proposal_clusters

__all__ = ["lltm", "lltm_sequence", "pcl_loss", "proposal_clusters", "trilinear_interpolate"]


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
