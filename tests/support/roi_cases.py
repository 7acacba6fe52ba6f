"""Test inputs for roi_pool and roi_align, and both ops beside torchvision's."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torchvision
from op_contract import random
from torch import Tensor

from detector import layers


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
    """Boxes (R, 5), many partly or completely outside of features of `size`.

    They are in turn random, inverted, on cell borders, of zero size, huge, and on multiples of 1/2. With
    `inverted=False` no box is inverted.
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
    """An op as a function of input, boxes and output_size, with all other options bound."""

    name: str
    function: partial
    reference: partial
    module: torch.nn.Module  # with output_size (2, 3)


def _op(name: str, module_type: type[torch.nn.Module], **options: object) -> Op:
    function = partial(getattr(layers, name), **options)
    reference = partial(_on_cpu, getattr(torchvision.ops, name), **options)
    return Op(name, function, reference, module_type((2, 3), **options))


def _on_cpu(op: Callable, input: Tensor, boxes: Tensor, *arguments: object, **options: object) -> Tensor:
    """torchvision's op on the CPU, where division is exact; in the precision of the boxes, as ours."""
    return op(input.to("cpu", boxes.dtype), boxes.cpu(), *arguments, **options).to(input)


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


def values_and_gradient(function, input: Tensor, *arguments: object) -> tuple[Tensor, Tensor]:
    """The output, and the gradient of input for a fixed upstream gradient."""
    input = input.detach().requires_grad_()
    pooled = function(input, *arguments)
    upstream = torch.linspace(-1, 2, pooled.numel(), dtype=torch.float64).view(pooled.shape).to(input)
    return pooled.detach(), torch.autograd.grad(pooled, input, upstream)[0]
