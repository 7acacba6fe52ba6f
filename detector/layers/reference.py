"""Each op in plain PyTorch: the executable specification; tests and benchmarks set it beside the kernels."""

import torch
from torch import Tensor

from detector.layers.reference_clusters import proposal_clusters
from detector.layers.reference_depthwise_conv2d import depthwise_conv2d

__all__ = ["depthwise_conv2d", "pcl_loss", "proposal_clusters"]


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
