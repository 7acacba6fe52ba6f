"""RoI align. Kernels: csrc/cpu/roi_align.cpp, csrc/cuda/roi_align."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable, linear
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._layout import is_channels_last
from detector.layers._sizes import Size, as_pair
from detector.layers._vmap import fold
from detector.layers.roi_boxes import Boxes, as_rois

_C = load_extension()
torch.fx.wrap("roi_align")  # torch.fx.symbolic_trace records the call instead of what it does


def roi_align(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    r"""Average bilinear samples of each box in a fixed grid of bins, as `torchvision.ops.roi_align`.

    Box corners are multiplied by `spatial_scale` and not rounded. With `aligned` they are shifted by -0.5;
    without, boxes are at least one cell wide and high. Each bin of size b is sampled at g x g points,

    .. math:: y_i = y_1 + p b + (i + 1/2) b / g, \quad g = \text{sampling\_ratio or } \lceil b \rceil

    A sample is interpolated bilinearly from its four neighbors. It is 0 if it lies more than one cell outside
    of the input; otherwise its coordinates are clamped to the input. A bin without samples (inverted boxes
    with `aligned`) gives 0. Source: He et al., "Mask R-CNN", https://arxiv.org/abs/1703.06870.

    `boxes` receive no gradient. Second derivatives are supported. Results are bitwise reproducible. On a GPU
    the call does not synchronize with the host and can be captured in a CUDA graph.

    Args:
        input (Tensor[N, C, H, W]): float64, float32, float16 or bfloat16, any strides. A
            channels_last input is not copied and gives a channels_last result.
        boxes (Tensor[R, 5] or list of Tensor[L, 4]): (image, x1, y1, x2, y2), or (x1, y1, x2, y2) as one
            tensor per image; any floating dtype. Half precision features may have float32 boxes.
        output_size (int or (int, int)): PH and PW.
        spatial_scale (float): factor from box coordinates to feature coordinates.
        sampling_ratio (int): g; if not positive, the size of the bin in cells, rounded up, on each axis.
        aligned (bool): whether cell i is located at coordinate i + 0.5 (True) or at i (False).

    Returns:
        Tensor[R, C, PH, PW]: in the dtype of `input`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, or an `output_size` or `spatial_scale` that is not
            positive. Boxes with an invalid image index or non-finite coordinates raise on the CPU, and on a
            GPU if the environment variable DETECTOR_VALIDATE is 1; otherwise they give 0 on a GPU.
    """
    rois = as_rois(boxes, input)
    height, width = as_pair("roi_align", "output_size", output_size)
    options = (height, width, spatial_scale, sampling_ratio, aligned, is_channels_last(input))
    if torch.jit.is_scripting():
        pooled = _C.roi_align_forward(input, rois, *options)
    else:
        pooled = _forward(input, rois, *options)
    return _to_nchw(pooled, options[-1])  # (R, C, PH, PW)


class RoIAlign(nn.Module):
    """See :func:`roi_align`."""

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float,
        sampling_ratio: int,
        aligned: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        return roi_align(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned}"
        )


class ROIAlign(RoIAlign):
    """:class:`RoIAlign` with the name and the default of `aligned` that detectron2 has."""

    def __init__(
        self, output_size: Size, spatial_scale: float, sampling_ratio: int, aligned: bool = True
    ) -> None:
        super().__init__(output_size, spatial_scale, sampling_ratio, aligned)


def _to_nchw(result: Tensor, channels_last: bool) -> Tensor:
    """View the output of an op as (N, C, H, W) or (R, C, PH, PW)."""
    return result.permute(0, 3, 1, 2) if channels_last else result


def _setup_context(ctx, inputs: tuple, output: Tensor) -> None:
    input, boxes, _, _, *ctx.options = inputs  # spatial_scale, sampling_ratio, aligned, channels_last
    ctx.save_for_backward(boxes)
    images, _, *size = input.shape
    ctx.sizes = (images, *size)


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    if not ctx.needs_input_grad[0]:
        return (None,) * 8
    grad_input = _grad_input(grad, *ctx.saved_tensors, *ctx.sizes, *ctx.options)
    return _to_nchw(grad_input, ctx.options[-1]), *(None,) * 7


def _setup_backward_context(ctx, inputs: tuple, output: Tensor) -> None:
    grad, boxes, _, _, _, *ctx.options = inputs
    ctx.save_for_backward(boxes)
    ctx.output_size = tuple(grad.shape[1:3] if ctx.options[-1] else grad.shape[2:])


def _double_backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The forward and backward ops are linear and transposes of each other."""
    if not ctx.needs_input_grad[0]:
        return (None,) * 9
    input = _to_nchw(grad, ctx.options[-1])  # (N, C, H, W)
    return _forward(input, *ctx.saved_tensors, *ctx.output_size, *ctx.options), *(None,) * 8


@register_fake("roi_align_forward")
def _fake_forward(
    input, boxes, pooled_height, pooled_width, spatial_scale, sampling_ratio, aligned, channels_last
):
    channels, size = input.shape[1], (pooled_height, pooled_width)
    return input.new_empty(boxes.shape[0], *((*size, channels) if channels_last else (channels, *size)))


@register_fake("roi_align_backward")
def _fake_backward(grad, boxes, images, height, width, spatial_scale, sampling_ratio, aligned, channels_last):
    channels, size = grad.shape[3 if channels_last else 1], (height, width)
    return grad.new_empty(images, *((*size, channels) if channels_last else (channels, *size)))


# No autocast rule: the kernels compute in float32, and box coordinates are never in half precision.
_forward = differentiable(_C.roi_align_forward, _backward, _setup_context, fold, jvp=linear)
_grad_input = differentiable(
    _C.roi_align_backward, _double_backward, _setup_backward_context, fold, jvp=linear
)
