"""Boxes of every kind for the tests of roi_pool and roi_align, and both ops with their references."""

from functools import partial
from typing import NamedTuple

import torch
from op_contract import random
from torch import Tensor

from detector import layers
from detector.layers import reference


def make_boxes(
    number: int,
    images: int = 2,
    size: tuple[int, int] = (9, 13),
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    seed: int = 0,
    inverted: bool = True,
) -> Tensor:
    """(R, 5) on features of `size`: by turns plain, inverted, on cell borders, zero-sized, huge, on halves.

    Many are partly or wholly outside. Without `inverted` the second corner is never before the first.
    """
    generator = torch.Generator().manual_seed(seed)
    height, width = size
    corners = torch.rand(number, 4, generator=generator, dtype=torch.float64) * 2 - 0.5
    corners *= torch.tensor([width, height, width, height])
    kind = torch.arange(number) % 6
    boxes = torch.cat(
        [torch.minimum(corners[:, :2], corners[:, 2:]), torch.maximum(corners[:, :2], corners[:, 2:])], dim=1
    )
    if inverted:
        boxes[kind == 1] = corners[kind == 1]
    boxes[kind == 2] = boxes[kind == 2].round()
    boxes[kind == 3, 2:] = boxes[kind == 3, :2]
    boxes[kind == 4] *= 9
    boxes[kind == 5] = (boxes[kind == 5] * 2).round() / 2
    image = torch.randint(0, max(images, 1), (number, 1), generator=generator)
    return torch.cat([image.double(), boxes], dim=1).to(device, dtype)


class Op(NamedTuple):
    """An op with its options bound: what is left are input, boxes and output_size."""

    name: str
    function: partial
    reference: partial
    module: torch.nn.Module  # with output_size (2, 3)


def _op(name: str, module: type[torch.nn.Module], **options: object) -> Op:
    functions = (partial(getattr(of, name), **options) for of in (layers, reference))
    return Op(name, *functions, module((2, 3), **options))


OPS = [
    _op("roi_pool", layers.RoIPool, spatial_scale=0.5),
    _op("roi_align", layers.RoIAlign, spatial_scale=0.5, sampling_ratio=2, aligned=True),
    _op("roi_align", layers.RoIAlign, spatial_scale=0.5, sampling_ratio=0, aligned=False),
]


def features(
    *shape: int, channels_last: bool = False, dtype=torch.float64, device="cpu", seed: int = 0
) -> Tensor:
    values = random(*shape, dtype=dtype, device=device, seed=seed, requires_grad=False)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return values.contiguous(memory_format=layout).requires_grad_()
