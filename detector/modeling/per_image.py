"""Reductions over the proposals of each image of a batch."""

import torch
from torch import Tensor

from detector.utils.exporting import is_exporting


def softmax_per_image(logits: Tensor, counts: Tensor, weights: Tensor | None = None) -> Tensor:
    """Softmax of logits (sum R, C) over the proposals of the same image; counts (B,) int64 on the CPU.

    With `weights` (sum R,), the number of proposals that each represents, exp(x_r) / sum_s w_s exp(x_s): the
    sum estimates that over all proposals of the image.
    """
    if weights is not None:
        shift = weights.log()[:, None]
        return softmax_per_image(logits + shift, counts) / weights[:, None]
    if is_exporting():
        return _softmax_by_membership(logits, counts)
    return torch.cat([rows.softmax(dim=0) for rows in logits.split(counts.tolist())])


def _softmax_by_membership(logits: Tensor, counts: Tensor) -> Tensor:
    """The same for torch.export, which does not support splitting by values; takes O(sum R B C) memory."""
    counts = counts.to(logits.device)
    rows = torch.arange(logits.shape[0], device=logits.device)
    image = (rows[:, None] >= counts.cumsum(dim=0)).sum(dim=1)  # (sum R,)
    member = image[:, None] == torch.arange(counts.shape[0], device=logits.device)  # (sum R, B)
    top = logits[:, None].masked_fill(~member[:, :, None], -torch.inf).amax(dim=0)  # (B, C)
    exps = (logits - top[image]).exp()  # (sum R, C)
    sums = member.to(exps.dtype).t() @ exps  # (B, C)
    return exps / sums[image]


def max_per_image(values: Tensor, counts: Tensor) -> Tensor:
    """Maxima (B, C) of values (sum T, C) of the same image; counts (B,) int64 on the CPU, none is 0."""
    return torch.stack([rows.amax(dim=0) for rows in values.split(counts.tolist())])


def sum_per_image(values: Tensor, counts: Tensor) -> Tensor:
    """Sums (B, C) of values (sum R, C) over the proposals of the same image; counts (B,) int64 on the CPU."""
    return torch.stack([rows.sum(dim=0) for rows in values.split(counts.tolist())])


def mean_per_image(values: Tensor, counts: Tensor) -> Tensor:
    """Mean (K,) over images of the mean of values (K, sum R) over their proposals, 0 without proposals."""
    sums = sum_per_image(values.t(), counts)  # (B, K)
    return (sums / counts.clamp(min=1).to(values.device, non_blocking=True)[:, None]).mean(dim=0)
