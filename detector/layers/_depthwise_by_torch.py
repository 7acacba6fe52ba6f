"""Depthwise convolution by torch's own convolution, where that takes less time than the kernels of csrc."""

import os
import sys

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from detector.layers._layout import is_channels_last
from detector.utils.exporting import is_exporting

# For explain().
TAKES = (
    "contiguous, what strips do not take; channels-last, more than 81 taps; not float64, one filter for each"
    " channel, below 2^30 elements"
)
WHY = "9 x 9 float32 on 32 x 128 x 28 x 28 forward 190 us, generic 500 (H100)"

_EXPLAINS = os.environ.get("DETECTOR_EXPLAIN") == "1"
# The kernels that run wherever they can, and those that do not run; csrc/plan.h reads the same.
_KERNELS, _WITHOUT = (os.environ.get(key, "").split(",") for key in ("DETECTOR_KERNEL", "DETECTOR_WITHOUT"))
_IS_FORCED = "depthwise_conv2d.torch" in _KERNELS
_IS_LEFT_OUT = "depthwise_conv2d.torch" in _WITHOUT or (
    not _IS_FORCED and any(kernel.startswith("depthwise_conv2d.") for kernel in _KERNELS)
)
_MOST_TAPS = 81  # of the channels-last kernels for CUDA
_MOST_ELEMENTS, _MOST_STEP = 2**30, 2**15  # torch's kernels compute with 32-bit integers


def torch_is_faster(
    input: Tensor,
    weight: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> bool:
    """Whether torch's convolution computes the same in less time, as csrc/*/depthwise_conv2d/README.md say.

    False also for invalid arguments, which the op refuses.
    """
    if input.device.type == "cpu" or input.dtype == torch.float64 or input.dim() != 4 or weight.dim() != 4:
        return False
    if _IS_LEFT_OUT:
        return False
    if weight.shape[0] != input.shape[1] or weight.shape[1] != 1:  # one filter for each channel
        return False
    kernel, channels_last = (weight.shape[2], weight.shape[3]), is_channels_last(input)
    if channels_last:
        faster = kernel[0] * kernel[1] > _MOST_TAPS
    else:
        has_kernel = kernel in ((3, 3), (5, 5), (7, 7)) and stride in ((1, 1), (2, 2)) and dilation == (1, 1)
        faster = not has_kernel
    valid = (faster or _IS_FORCED) and all(
        kernel[i] >= 1
        and 1 <= stride[i] < _MOST_STEP
        and 1 <= dilation[i] < _MOST_STEP
        and 0 <= padding[i] < _MOST_STEP
        and (kernel[i] - 1) * dilation[i] < input.shape[2 + i] + 2 * padding[i]
        for i in range(2)
    )
    return valid and _is_below(input.numel(), _MOST_ELEMENTS)


def _is_below(elements: int | torch.SymInt, limit: int) -> bool:
    """False where a program that torch.export makes would hold for smaller sizes only."""
    if is_exporting():
        from torch.fx.experimental.symbolic_shapes import statically_known_true  # takes long to import

        return statically_known_true(elements < limit)
    return bool(elements < limit)


def conv2d_by_groups(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """The output keeps the memory format of the input."""
    if _EXPLAINS and not torch.compiler.is_compiling():
        print("detector: depthwise_conv2d calls torch's convolution", file=sys.stderr)
    channels = input.shape[1]
    # If either tensor is channels-last, torch's large kernels take up to 9 times as long. A filter with one
    # channel may have the strides of both formats.
    filters = weight.reshape(-1).view(weight.shape)
    output = conv2d(input.contiguous(), filters, bias, stride, padding, dilation, channels)
    return output.contiguous(memory_format=torch.channels_last) if is_channels_last(input) else output
