"""Depthwise convolution. Kernels: csrc/cpu/depthwise_conv2d, csrc/cuda/depthwise_conv2d."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from detector.layers._autograd import as_autocast, differentiable
from detector.layers._depthwise_by_torch import conv2d_by_groups, torch_is_faster
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._layout import is_channels_last, memory_format
from detector.layers._sizes import Size, as_pair

_C = load_extension()


def depthwise_conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:
    r"""2-D convolution in which each output channel reads a single input channel.

    .. math::
        output_{n, c m + k, y, x} = b_{c m + k} + \sum_{i, j} w_{c m + k, 0, i, j}
            \, input_{n, c, \, y s_h - p_h + i d_h, \, x s_w - p_w + j d_w}

    with zero padding. Equivalent to ``torch.nn.functional.conv2d(..., groups=C)``: the output has
    (H + 2 p_h - d_h (kh - 1) - 1) // s_h + 1 rows, and columns likewise. Source: Chollet, "Xception: Deep
    Learning with Depthwise Separable Convolutions", https://arxiv.org/abs/1610.02357.

    `input`, `weight` and `bias` receive gradients of any order. Outputs and gradients are bitwise
    reproducible. On a GPU the call does not synchronize with the host and can be captured in a CUDA graph.
    Half precision computes in float32. Under autocast every tensor that is not float64 is cast to autocast's
    dtype, which is then the output's, as in torch's convolutions. A NaN or infinity affects only the outputs
    whose window contains it. On a GPU it may turn the whole weight gradient of its channel into NaN.

    Where torch's own convolution takes less time it is called instead: on a GPU for contiguous inputs with a
    kernel, stride or dilation that has no kernel here (square kernels of 3, 5 and 7 with stride 1 or 2 have)
    and for channels-last inputs with more than 81 taps. It is bitwise reproducible with
    ``torch.backends.cudnn.deterministic``, and has torch's limits and precision, also that of
    ``torch.backends.cudnn.allow_tf32``. float64 and several filters per channel are always computed here.

    Args:
        input (Tensor[N, C, H, W]): float64, float32, float16 or bfloat16, any strides. A channels-last input
            is not copied and gives a channels-last output; any other gives a contiguous one.
        weight (Tensor[C * m, 1, kh, kw]): the m filters of channel 0, then those of channel 1, and so on.
        bias (Tensor[C * m], optional): added to the output.
        stride (int or (int, int)): one number for both axes, or (rows, columns).
        padding (int or (int, int)): like stride.
        dilation (int or (int, int)): like stride.

    Returns:
        Tensor[N, C * m, OH, OW]

    Raises:
        RuntimeError: on a wrong shape, dtype or device, a stride, dilation or kernel below 1, a negative
            padding, or a kernel larger than the padded input.
        ValueError: if stride, padding or dilation is neither an integer nor a pair of them.
    """
    sizes = (
        as_pair("depthwise_conv2d", "stride", stride),
        as_pair("depthwise_conv2d", "padding", padding),
        as_pair("depthwise_conv2d", "dilation", dilation),
    )
    device = input.device.type
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(device):  # the first is the cheaper
        input, weight, bias = as_autocast((input, weight, bias), torch.get_autocast_dtype(device))
    if torch_is_faster(input, weight, *sizes):
        return conv2d_by_groups(input, weight, bias, *sizes)
    return _forward(input, weight, bias, *sizes)


class DepthwiseConv2d(nn.Module):
    """See :func:`depthwise_conv2d`. Parameter names and initialization are those of ``nn.Conv2d``."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        multiplier: int = 1,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.channels, self.multiplier = channels, multiplier
        self.kernel_size = as_pair("DepthwiseConv2d", "kernel_size", kernel_size)
        self.stride = as_pair("DepthwiseConv2d", "stride", stride)
        self.padding = as_pair("DepthwiseConv2d", "padding", padding)
        self.dilation = as_pair("DepthwiseConv2d", "dilation", dilation)
        shape = (channels * multiplier, 1, *self.kernel_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(shape[:1], device=device, dtype=dtype)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(max(math.prod(self.kernel_size), 1))  # a kernel without taps has no weights
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return depthwise_conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        return (
            f"{self.channels}, kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, multiplier={self.multiplier}, bias={self.bias is not None}"
        )


# ---- autograd: each of the three ops is bilinear, and its gradients are given by the other two ----


def _setup_forward(ctx, inputs: tuple, output: Tensor) -> None:
    input, weight, _, *ctx.sizes = inputs
    ctx.save_for_backward(input, weight)


def _backward_forward(ctx, grad: Tensor) -> tuple:
    input, weight = ctx.saved_tensors
    wants_input, wants_weight, wants_bias = ctx.needs_input_grad[:3]
    if is_channels_last(input):  # grad_input has the format of grad; vmap does not know memory_format
        grad = grad.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    else:
        grad = grad.contiguous()
    return (
        _grad_input_like(input, grad, weight, ctx.sizes) if wants_input else None,
        _grad_weight(input, grad, weight.shape[2:], *ctx.sizes) if wants_weight else None,
        grad.sum((0, 2, 3)) if wants_bias else None,
        *(None for _ in ctx.sizes),
    )


def _setup_grad_input(ctx, inputs: tuple, output: Tensor) -> None:
    grad, weight, _, _, *ctx.sizes = inputs
    ctx.save_for_backward(grad, weight)


def _backward_grad_input(ctx, upstream: Tensor) -> tuple:
    grad, weight = ctx.saved_tensors
    wants_grad, wants_weight = ctx.needs_input_grad[:2]
    return (
        _forward(upstream, weight, None, *ctx.sizes) if wants_grad else None,
        _grad_weight(upstream, grad, weight.shape[2:], *ctx.sizes) if wants_weight else None,
        *(None for _ in range(2 + len(ctx.sizes))),
    )


def _setup_grad_weight(ctx, inputs: tuple, output: Tensor) -> None:
    input, grad, _, *ctx.sizes = inputs
    ctx.save_for_backward(input, grad)


def _backward_grad_weight(ctx, upstream: Tensor) -> tuple:
    input, grad = ctx.saved_tensors
    wants_input, wants_grad = ctx.needs_input_grad[:2]
    return (
        _grad_input_like(input, grad, upstream, ctx.sizes) if wants_input else None,
        _forward(input, upstream, None, *ctx.sizes) if wants_grad else None,
        *(None for _ in range(1 + len(ctx.sizes))),
    )


def _grad_input_like(input: Tensor, grad: Tensor, weight: Tensor, sizes: list) -> Tensor:
    return _grad_input(grad, weight, input.shape[1], input.shape[2:], *sizes)


def _derivative(call: Callable, arguments: tuple, tangents: tuple) -> Tensor:
    """In forward mode: each of the three ops is linear in its first two arguments and in the bias."""
    (first, second, *others), (first_tangent, second_tangent, *_) = arguments, tangents
    bias_tangent = [t if isinstance(a, Tensor) else a for a, t in zip(others, tangents[2:], strict=True)]
    no_bias = [None if isinstance(a, Tensor) else a for a in others]
    return call(first_tangent, second, *no_bias) + call(first, second_tangent, *bias_tangent)


# ---- shapes ----


def _empty_with_format_of(tensor: Tensor, shape: tuple) -> Tensor:
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device, memory_format=memory_format(tensor))


@register_fake("depthwise_conv2d_forward")
def _fake_forward(input, weight, bias, stride, padding, dilation):
    out = [
        (input.shape[2 + i] + 2 * padding[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    return _empty_with_format_of(input, (input.shape[0], weight.shape[0], *out))


@register_fake("depthwise_conv2d_grad_input")
def _fake_grad_input(grad, weight, channels, size, stride, padding, dilation):
    return _empty_with_format_of(grad, (grad.shape[0], channels, *size))


@register_fake("depthwise_conv2d_grad_weight")
def _fake_grad_weight(input, grad, kernel, stride, padding, dilation):
    return input.new_empty((grad.shape[1], 1, *kernel))


_forward = differentiable(_C.depthwise_conv2d_forward, _backward_forward, _setup_forward, jvp=_derivative)
_grad_input = differentiable(
    _C.depthwise_conv2d_grad_input, _backward_grad_input, _setup_grad_input, jvp=_derivative
)
_grad_weight = differentiable(
    _C.depthwise_conv2d_grad_weight, _backward_grad_weight, _setup_grad_weight, jvp=_derivative
)
