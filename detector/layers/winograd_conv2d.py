"""3 x 3 convolution by Winograd's way. Kernels: winograd_conv2d.cpp in csrc/cpu, .cu in csrc/cuda."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable
from detector.layers._extension import load_extension

_C = load_extension()

Pair = int | tuple[int, int]


def winograd_conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, padding: Pair = 0, dilation: Pair = 1
) -> Tensor:
    """A 3 x 3 convolution with 16 multiplications for four outputs in place of 36.

    It equals ``torch.nn.functional.conv2d`` up to rounding; in VGG16's layers on an H200 it rounds about as
    much as cuDNN or less, in the gradients too. It pays in float32 on a GPU, without TF32, from 128 channels
    on: its work is 16 matrix products, which follow torch's setting for those
    (``torch.backends.cuda.matmul``). Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural
    Networks", F(2 x 2, 3 x 3), https://arxiv.org/abs/1509.09308.

    The gradient goes to `input`, `weight` and `bias`, and may be differentiated again, any number of times.
    Equal inputs give equal bits, in the gradients too. On a GPU the host never waits, and the call can be
    captured in a CUDA graph. Half types compute in float32; under autocast everything does, and the output
    has the dtype of `input`. Between the passes it keeps four times as many numbers as the input has. A NaN
    or infinity reaches all outputs of the tiles that see it, one row and column further than it should.

    Args:
        input (Tensor[N, C, H, W]): float64, float32, float16 or bfloat16; what is not contiguous is copied.
        weight (Tensor[K, C, 3, 3]): in the dtype of `input`.
        bias (Tensor[K], optional): added to the output.
        padding (int or tuple[int, int]): one number, or (rows, columns).
        dilation (int or tuple[int, int]): as padding.

    Returns:
        Tensor[N, K, H + 2 padding - 2 dilation, W + 2 padding - 2 dilation]: contiguous.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, a dilation below 1, a negative padding, or a kernel
            that is larger than the padded input.
        ValueError: if padding or dilation is neither an integer nor a pair of them.
    """
    _check(input, weight, bias)
    padding, dilation = _pair("padding", padding), _pair("dilation", dilation)
    exact = torch.promote_types(input.dtype, torch.float32)
    with torch.autocast(input.device.type, enabled=False):
        tiles = _input_map(input.to(exact), padding, dilation)
        products = torch.bmm(_weight_map(weight.to(exact)), tiles)
        size = [n + 2 * (p - d) for n, p, d in zip(input.shape[2:], padding, dilation, strict=True)]
        output = _output_map(products, [input.shape[0], *size], dilation)
        if bias is not None:
            output = output + bias.to(exact)[:, None, None]
    return output.to(input.dtype)


class WinogradConv2d(nn.Conv2d):
    """An ``nn.Conv2d`` of 3 x 3 weights, stride 1 and zeros around that computes by :func:`winograd_conv2d`.

    Parameters, their names and first values, and so checkpoints, are those of ``nn.Conv2d``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        padding: Pair = 0,
        dilation: Pair = 1,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, 3, padding=padding, dilation=dilation, bias=bias, device=device,
            dtype=dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        padding, dilation = self.padding, self.dilation  # pairs; nn.Conv2d would take other things too
        return winograd_conv2d(input, self.weight, self.bias, padding, dilation)  # type: ignore[arg-type]


def _check(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if weight.dim() != 4 or input.dim() != 4 or weight.shape[1:] != (input.shape[1], 3, 3):
        shapes = f"weight has shape {tuple(weight.shape)}, input {tuple(input.shape)}"
        raise RuntimeError(f"winograd_conv2d: {shapes}, expected (K, C, 3, 3) and (N, C, H, W)")
    if bias is not None and bias.shape != weight.shape[:1]:
        found = f"bias has shape {tuple(bias.shape)}"
        raise RuntimeError(f"winograd_conv2d: {found}, expected {tuple(weight.shape[:1])}")
    if not input.is_floating_point():
        raise RuntimeError(f"winograd_conv2d: input is {input.dtype}, expected a floating dtype")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and (other.dtype, other.device) != (input.dtype, input.device):
            found = f"{name} is {other.dtype} on {other.device}"
            raise RuntimeError(f"winograd_conv2d: {found}, expected {input.dtype} on {input.device}")


def _pair(name: str, value: Pair) -> tuple[int, int]:
    pair = value if isinstance(value, tuple | list) else (value, value)
    if len(pair) != 2 or not all(isinstance(n, int | torch.SymInt) for n in pair):
        raise ValueError(f"winograd_conv2d: {name} is {value!r}, expected an integer or a pair of them")
    return pair[0], pair[1]


# ---- autograd: the maps are linear, and the gradient of each is its transpose ----


def _setup_input(ctx, inputs: tuple, output: Tensor) -> None:
    input, *ctx.sizes = inputs
    ctx.size = [input.shape[0], *input.shape[2:]]


def _backward_input(ctx, grad: Tensor) -> tuple:
    return _input_map_transposed(grad, ctx.size, *ctx.sizes), None, None


def _setup_input_backward(ctx, inputs: tuple, output: Tensor) -> None:
    _, _, *ctx.sizes = inputs


def _double_backward_input(ctx, grad: Tensor) -> tuple:
    return _input_map(grad, *ctx.sizes), None, None, None


def _setup_output(ctx, inputs: tuple, output: Tensor) -> None:
    _, _, ctx.dilation = inputs


def _backward_output(ctx, grad: Tensor) -> tuple:
    return _output_map_transposed(grad, ctx.dilation), None, None


def _setup_output_backward(ctx, inputs: tuple, output: Tensor) -> None:
    grad, ctx.dilation = inputs
    ctx.size = [grad.shape[0], *grad.shape[2:]]


def _double_backward_output(ctx, grad: Tensor) -> tuple:
    return _output_map(grad, ctx.size, ctx.dilation), None


def _backward_weight(ctx, grad: Tensor) -> Tensor:
    return _weight_map_transposed(grad)


def _double_backward_weight(ctx, grad: Tensor) -> Tensor:
    return _weight_map(grad)


# ---- shapes ----


def _number_of_tiles(images: int, height: int, width: int, dilation: list[int]) -> int:
    """Of all images, rounded up to a multiple of four (csrc/winograd_conv2d.h)."""
    rows, columns = (d * ((-(-n // d) + 1) // 2) for n, d in zip((height, width), dilation, strict=True))
    return -(-images * rows * columns // 4) * 4


@torch.library.register_fake("detector::winograd_conv2d_input_forward")
def _fake_input_forward(input, padding, dilation):
    size = [n + 2 * (p - d) for n, p, d in zip(input.shape[2:], padding, dilation, strict=True)]
    return input.new_empty((16, input.shape[1], _number_of_tiles(input.shape[0], *size, dilation)))


@torch.library.register_fake("detector::winograd_conv2d_input_backward")
def _fake_input_backward(grad, size, padding, dilation):
    return grad.new_empty((size[0], grad.shape[1], *size[1:]))


@torch.library.register_fake("detector::winograd_conv2d_output_forward")
def _fake_output_forward(products, size, dilation):
    return products.new_empty((size[0], products.shape[1], *size[1:]))


@torch.library.register_fake("detector::winograd_conv2d_output_backward")
def _fake_output_backward(grad, dilation):
    images, channels, *size = grad.shape
    return grad.new_empty((16, channels, _number_of_tiles(images, *size, dilation)))


@torch.library.register_fake("detector::winograd_conv2d_weight_forward")
def _fake_weight_forward(weight):
    return weight.new_empty((16, *weight.shape[:2]))


@torch.library.register_fake("detector::winograd_conv2d_weight_backward")
def _fake_weight_backward(grad):
    return grad.new_empty((*grad.shape[1:], 3, 3))


_input_map = differentiable(_C.winograd_conv2d_input_forward, _backward_input, _setup_input)
_input_map_transposed = differentiable(
    _C.winograd_conv2d_input_backward, _double_backward_input, _setup_input_backward
)
_output_map = differentiable(_C.winograd_conv2d_output_forward, _backward_output, _setup_output)
_output_map_transposed = differentiable(
    _C.winograd_conv2d_output_backward, _double_backward_output, _setup_output_backward
)
_weight_map = differentiable(_C.winograd_conv2d_weight_forward, _backward_weight)
_weight_map_transposed = differentiable(_C.winograd_conv2d_weight_backward, _double_backward_weight)
