"""Reductions over the proposals of each image of a batch: the one place that knows how rows map to images."""

import torch
from torch import Tensor


def softmax_per_image(logits: Tensor, counts: Tensor) -> Tensor:
    """Softmax of logits (sum R, C) over the proposals of the same image; counts (B,) int64 on the CPU."""
    return torch.cat([rows.softmax(dim=0) for rows in logits.split(counts.tolist())])


def sum_per_image(values: Tensor, counts: Tensor) -> Tensor:
    """Sums (B, C) of values (sum R, C) over the proposals of the same image; counts (B,) int64 on the CPU."""
    return torch.stack([rows.sum(dim=0) for rows in values.split(counts.tolist())])


def mean_per_image(values: Tensor, counts: Tensor) -> Tensor:
    """Means over images (K,) of means of values (K, sum R) over their proposals, 0 where there are none."""
    sums = sum_per_image(values.t(), counts)  # (B, K)
    return (sums / counts.clamp(min=1).to(values.device, non_blocking=True)[:, None]).mean(dim=0)
