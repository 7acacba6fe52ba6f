"""The context of a proposal: a part of an object has the rest of it around itself, a whole object has not."""

import torch
from torch import Tensor


def enlarge_rois(rois: Tensor, scale: float) -> Tensor:
    """RoIs (R, 5) about the same middles, `scale` times as wide and high; they may leave the image."""
    corners, others = rois[:, 1:3], rois[:, 3:]
    middles, halves = (corners + others) / 2, (others - corners) * (scale / 2)
    return torch.cat([rois[:, :1], middles - halves, middles + halves], dim=1)


def ring(size: int, scale: float) -> Tensor:
    """1 for the cells (size, size) of an enlarged RoI's grid whose middle is outside the RoI, else 0.

    Raises:
        ValueError: none is.
    """
    inside = ((torch.arange(size) + 0.5) * 2 / size - 1).abs() < 1 / scale
    outside = ~(inside[:, None] & inside)
    if not outside.any():
        least = size / (size - 1) if size > 1 else float("inf")
        raise ValueError(
            f"context is {scale}, expected at least {least:.3g}: else no cell of a grid of {size} x {size} "
            "lies outside the proposal"
        )
    return outside.float()
