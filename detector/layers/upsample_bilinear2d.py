"""Bilinear resizing. Kernels: csrc/cpu/upsample_bilinear2d.cpp, csrc/cuda/upsample_bilinear2d."""

from numbers import Real

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable, linear
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._layout import memory_format
from detector.layers._sizes import Size, as_pair
from detector.layers._vmap import fold

_C = load_extension()

COORDINATE_MODES = ("half_pixel", "align_corners", "asymmetric", "tf_half_pixel")

Scale = float | list[float] | tuple[float, float]


def upsample_bilinear2d(
    input: Tensor,
    size: Size | None = None,
    scale_factor: Scale | None = None,
    coordinate_mode: str = "half_pixel",
) -> Tensor:
    r"""Resize images, up or down, by bilinear interpolation.

    Output pixel o of an axis lies at position s(o) of the input axis, and is

    .. math::
        (1 - w) \, x_l + w \, x_u, \quad
        l = \lfloor s \rfloor, \; u = \min(l + 1, \text{in} - 1), \; w = s - l

    ================= ====================================== ==============================================
    `coordinate_mode` s(o), not below 0                      equals
    ================= ====================================== ==============================================
    half_pixel        (o + 0.5) in / out - 0.5               torch, align_corners=False
    align_corners     o (in - 1) / (out - 1), 0 if out is 1  torch and TensorFlow, align_corners=True
    asymmetric        o in / out                             TensorFlow 1: resize_bilinear's default
    tf_half_pixel     (o + 0.5) in / out - 0.5               TensorFlow 2: half_pixel_centers=True
    ================= ====================================== ==============================================

    A `scale_factor` f gives floor(in f) pixels. As in torch, half_pixel then uses 1 / f instead of in / out,
    except for an axis whose length does not change. The other modes depend on the sizes only.

    Modes are named as in ONNX Resize. The backward pass gathers the gradient of each pixel in a fixed order,
    so results are bitwise reproducible. The op is linear; second derivatives are supported. Positions and
    sums are computed in float32, or in float64 for float64 input. On a GPU the call does not synchronize with
    the host and can be captured in a CUDA graph.

    Args:
        input (Tensor[N, C, H, W]): float64, float32, float16 or bfloat16. Contiguous and channels_last images
            are not copied; other layouts are.
        size (int or (int, int), optional): height and width of the output.
        scale_factor (float or (float, float), optional): factors for height and width, instead of `size`.
        coordinate_mode (str): one of the modes above.

    Returns:
        Tensor[N, C, height, width]: in the dtype of `input`; channels_last if `input` is, else contiguous.

    Raises:
        ValueError: on an unknown mode, an invalid `size` or `scale_factor`, or unless exactly one of them is
            given.
        RuntimeError: on a wrong number of dimensions or dtype, or if the input or output has no pixels.
    """
    height, width, scale_height, scale_width = output_size(input, size, scale_factor)
    if coordinate_mode not in COORDINATE_MODES:
        raise ValueError(
            f"upsample_bilinear2d: coordinate_mode is {coordinate_mode!r}, expected one of"
            f" {', '.join(COORDINATE_MODES)}"
        )
    mode = COORDINATE_MODES.index(coordinate_mode)
    return _forward(input, height, width, mode, scale_height, scale_width)


class UpsampleBilinear2d(nn.Module):
    """See :func:`upsample_bilinear2d`."""

    def __init__(
        self,
        size: Size | None = None,
        scale_factor: Scale | None = None,
        coordinate_mode: str = "half_pixel",
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.coordinate_mode = coordinate_mode

    def forward(self, input: Tensor) -> Tensor:
        return upsample_bilinear2d(input, self.size, self.scale_factor, self.coordinate_mode)

    def extra_repr(self) -> str:
        return f"size={self.size}, scale_factor={self.scale_factor}, coordinate_mode={self.coordinate_mode!r}"


def output_size(
    input: Tensor, size: Size | None, scale_factor: Scale | None
) -> tuple[int, int, float, float]:
    """Height and width of the output, and the scale factors, which are 0 if a size is given."""
    if (size is None) == (scale_factor is None):
        raise ValueError(
            f"upsample_bilinear2d: size is {size} and scale_factor is {scale_factor}, expected exactly one of"
            " them"
        )
    if size is not None:
        return *as_pair("upsample_bilinear2d", "size", size), 0.0, 0.0
    factors = _both_axes(scale_factor)
    if len(factors) != 2 or not all(isinstance(f, int | float) and 0 < f < 2**31 for f in factors):
        raise ValueError(
            f"upsample_bilinear2d: scale_factor is {scale_factor}, expected a positive number or a pair of"
            " them, below 2^31"
        )
    if input.dim() != 4:  # checked here because the sizes are read next
        raise RuntimeError(
            f"upsample_bilinear2d: input has shape {tuple(input.shape)}, expected 4 dimensions"
        )
    _, _, height, width = input.shape
    return _floor(height * factors[0]), _floor(width * factors[1]), float(factors[0]), float(factors[1])


def _both_axes(scale: Scale | None) -> tuple:
    """Factors for height and width; numbers of numpy are converted."""
    factors = scale if isinstance(scale, list | tuple) else (scale, scale)
    return tuple(f if isinstance(f, int | float) or not isinstance(f, Real) else float(f) for f in factors)


def _floor(length):
    """Floor of a non-negative length. sym_int is slow and only needed for symbolic sizes."""
    return int(length) if isinstance(length, int | float) else torch.sym_int(length)


def _setup_context(ctx, inputs: tuple, output: Tensor) -> None:
    tensor, _, _, *ctx.resizing = inputs
    ctx.lengths = tensor.shape[2:]


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    grad_input = _grad_input(grad, *ctx.lengths, *ctx.resizing)
    return grad_input, None, None, None, None, None


def _second_backward(ctx, grad_grad: Tensor) -> tuple[Tensor | None, ...]:
    grad = _forward(grad_grad, *ctx.lengths, *ctx.resizing)
    return grad, None, None, None, None, None


@register_fake("upsample_bilinear2d_forward")
@register_fake("upsample_bilinear2d_backward")
def _fake(tensor, height, width, mode, scale_height, scale_width):
    shape = (*tensor.shape[:2], height, width)
    return tensor.new_empty(shape).contiguous(memory_format=memory_format(tensor))


# No autocast rule: the kernels already compute half precision in float32.
_forward = differentiable(_C.upsample_bilinear2d_forward, _backward, _setup_context, fold, jvp=linear)
_grad_input = differentiable(
    _C.upsample_bilinear2d_backward, _second_backward, _setup_context, fold, jvp=linear
)
