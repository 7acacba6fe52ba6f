"""winograd_conv2d beside cuDNN's convolution in float32 without TF32: VGG16's layers, an image of 688 x 917.

Predicted for 512 to 512 channels on 86 x 114 cells: 20.6 GFLOP of matrix products at 50 TFLOP/s are 0.41 ms,
the maps move 240 MB in 0.06 ms: 0.47 ms, where cuDNN takes 1.74 ms for 46 GFLOP. Measured 0.56: products
0.44, maps 0.05 each, bias 0.02. What was tried:

* the gradient of the input cell by cell, whose neighbours read every second number of two places: 0.24 ms
  for that map; two by two cells a thread: 0.05, kept
* the gradient of the weights of large planes is one product of few rows and very many columns, at 12 to 36
  TFLOP/s: 0.60 ms for 256 to 256 channels on 172 x 229, where cuDNN takes 0.42 in all; nothing tried

On a CPU there are no rows: there a layer takes a third longer than torch's (0.171 s, not 0.129, for 512
channels on 43 x 57, one core).
"""

from collections.abc import Callable
from functools import partial

import torch
from measure import Row, time_queued
from torch import Tensor
from torch.nn.functional import conv2d

from detector.layers import winograd_conv2d

CASES = [  # channels in and out, height, width, dilation
    (128, 256, 172, 229, 1),
    (256, 256, 172, 229, 1),
    (256, 512, 86, 114, 1),
    (512, 512, 86, 114, 1),
    (512, 512, 86, 114, 2),
]
NUM_INPUTS = 3  # rotated


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    if device.type == "cpu":
        return []
    tf32 = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        return [row for case in CASES for row in _rows_of(case, device, bandwidth)]
    finally:
        torch.backends.cudnn.allow_tf32 = tf32


def _rows_of(case: tuple[int, ...], device: torch.device, bandwidth: float) -> list[Row]:
    channels, filters, height, width, dilation = case
    inputs = [torch.randn(1, channels, height, width, device=device).relu() for _ in range(NUM_INPUTS)]
    weight = torch.randn(filters, channels, 3, 3, device=device) / (4.5 * channels) ** 0.5
    ours, peer = (
        _times(partial(op, padding=dilation, dilation=dilation), inputs, weight)
        for op in (winograd_conv2d, conv2d)
    )
    text = f"winograd_conv2d {channels} to {filters}, {height}x{width}, dilation {dilation}"
    numbers = (channels + filters) * height * width + weight.numel()
    fewest_bytes = {"forward": 4 * numbers, "backward": 8 * numbers}
    return [
        Row(
            case=text,
            pass_=pass_,
            dtype="float32",
            layout="contiguous",
            ours_ms=ours_ms,
            peer="torch, cuDNN",
            peer_ms=peer[pass_],
            copy_percent=100 * fewest_bytes[pass_] / bandwidth / ours_ms,
            target="peer_ms",
            reached=ours_ms <= peer[pass_],
        )
        for pass_, ours_ms in ours.items()
    ]


def _times(op: Callable[..., Tensor], inputs: list[Tensor], weight: Tensor) -> dict[str, float]:
    leaves = [input.requires_grad_() for input in inputs]
    weight = weight.detach().requires_grad_()
    calls = [partial(op, input, weight) for input in leaves]
    forward = time_queued(calls, weight.device)
    outputs = [call() for call in calls]
    upstream = torch.randn_like(outputs[0])
    calls = [
        partial(torch.autograd.grad, output, (input, weight), upstream, retain_graph=True)
        for output, input in zip(outputs, leaves, strict=True)
    ]
    return {"forward": forward, "backward": time_queued(calls, weight.device)}
