"""upsample_bilinear2d in plain PyTorch: see reference.py."""

import torch
from torch import Tensor


def upsample_bilinear2d(
    input: Tensor,
    size: tuple[int, int] | None = None,
    scale_factor: tuple[float, float] | None = None,
    coordinate_mode: str = "half_pixel",
) -> Tensor:
    """See :func:`detector.layers.upsample_bilinear2d`; here sizes and factors are pairs."""
    for dim in (2, 3):
        if size is not None:
            length, factor = size[dim - 2], None
        elif scale_factor is not None:
            factor = scale_factor[dim - 2]
            length = int(input.shape[dim] * factor)
        input = _resize(input, dim, length, factor, coordinate_mode)
    return input


def _resize(input: Tensor, dim: int, length: int, factor: float | None, mode: str) -> Tensor:
    """`dim` of `input` resized to `length`; `factor` is None where a size was given."""
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
