"""Depthwise convolution in plain PyTorch: a sum over the taps of the kernel."""

import torch
from torch import Tensor

from detector.layers.depthwise_conv2d import Pair


def depthwise_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
) -> Tensor:
    """See :func:`detector.layers.depthwise_conv2d`."""
    stride, padding, dilation = (
        pair if isinstance(pair, tuple) else (pair, pair) for pair in (stride, padding, dilation)
    )
    multiplier = weight.shape[0] // input.shape[1]
    (pad_h, pad_w), kernel = padding, weight.shape[2:]
    padded = torch.nn.functional.pad(input, (pad_w, pad_w, pad_h, pad_h))
    padded = padded.repeat_interleave(multiplier, dim=1)  # (N, C m, H + 2 pad_h, W + 2 pad_w)
    starts = [padded.shape[2 + i] - (kernel[i] - 1) * dilation[i] for i in range(2)]
    total = padded.new_zeros(()) if bias is None else bias[:, None, None]
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = padded[:, :, i * dilation[0] :][:, :, : starts[0] : stride[0]]
            pixels = rows[:, :, :, j * dilation[1] :][:, :, :, : starts[1] : stride[1]]  # (N, C m, OH, OW)
            total = total + weight[:, :, i, j, None] * pixels
    return total
