"""RoI align of rotated boxes. Kernels: csrc/cpu/roi_align_rotated.cpp, csrc/cuda/roi_align_rotated.cu."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable, linear
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._layout import is_channels_last
from detector.layers._sizes import Size, as_pair
from detector.layers._vmap import fold

_C = load_extension()


def roi_align_rotated(
    input: Tensor,
    boxes: Tensor,
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
) -> Tensor:
    """Average bilinear samples of each rotated box in a grid of bins, as detectron2's `ROIAlignRotated`.

    As ``roi_align`` with `aligned=True`, but rows and columns of bins lie along the sides
    of the box. Source: Ma et al., "Arbitrary-Oriented Scene Text Detection via Rotation Proposals",
    https://arxiv.org/abs/1703.01086.

    `boxes` receive no gradient. Second derivatives are supported. Results are bitwise reproducible. On a GPU
    the call does not synchronize with the host and can be captured in a CUDA graph.

    Args:
        input (Tensor[N, C, H, W]): float64, float32, float16 or bfloat16, any strides. Half precision is
            converted to float32, and the result back.
        boxes (Tensor[R, 6]): (image, center x, center y, width, height, angle) in degrees; a positive angle
            turns the box counter-clockwise in the image. Any floating dtype.
        output_size (int or (int, int)): PH and PW.
        spatial_scale (float): factor from box coordinates to feature coordinates.
        sampling_ratio (int): samples of a bin on each axis; if not positive, the size of the bin in cells,
            rounded up.

    Returns:
        Tensor[R, C, PH, PW]: in the dtype of `input`, channels_last if `input` is.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, or an `output_size` or `spatial_scale` that is not
            positive. Boxes with an invalid image index, numbers that are not finite or a negative size raise
            on the CPU, and on a GPU if the environment variable DETECTOR_VALIDATE is 1; otherwise they give 0
            on a GPU.
    """
    if input.dim() != 4:
        shape = tuple(input.shape)
        raise RuntimeError(f"roi_align_rotated: input has shape {shape}, expected 4 dimensions")
    height, width = as_pair("roi_align_rotated", "output_size", output_size)
    cells = input.permute(0, 2, 3, 1)  # (N, H, W, C)
    if input.dtype in (torch.float16, torch.bfloat16):
        cells = cells.float()
    rois = boxes.to(cells.dtype) if boxes.is_floating_point() else boxes
    pooled = _forward(cells, rois, height, width, spatial_scale, sampling_ratio)
    pooled = pooled.permute(0, 3, 1, 2).to(input.dtype)  # (R, C, PH, PW)
    return pooled if is_channels_last(input) else pooled.contiguous()


class RoIAlignRotated(nn.Module):
    """See :func:`roi_align_rotated`."""

    def __init__(self, output_size: Size, spatial_scale: float, sampling_ratio: int) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        return roi_align_rotated(input, rois, self.output_size, self.spatial_scale, self.sampling_ratio)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}"
        )


def _setup_context(ctx, inputs: tuple, output: Tensor) -> None:
    input, boxes, _, _, *ctx.options = inputs  # spatial_scale, sampling_ratio
    ctx.save_for_backward(boxes)
    ctx.sizes = tuple(input.shape[:3])


def _backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _grad_input(grad, *ctx.saved_tensors, *ctx.sizes, *ctx.options), *(None,) * 5


def _setup_backward_context(ctx, inputs: tuple, output: Tensor) -> None:
    grad, boxes, _, _, _, *ctx.options = inputs
    ctx.save_for_backward(boxes)
    ctx.output_size = tuple(grad.shape[1:3])


def _double_backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The forward and backward ops are linear and transposes of each other."""
    return _forward(grad, *ctx.saved_tensors, *ctx.output_size, *ctx.options), *(None,) * 6


@register_fake("roi_align_rotated_forward")
def _fake_forward(input, boxes, pooled_height, pooled_width, spatial_scale, sampling_ratio):
    return input.new_empty(boxes.shape[0], pooled_height, pooled_width, input.shape[3])


@register_fake("roi_align_rotated_backward")
def _fake_backward(grad, boxes, images, height, width, spatial_scale, sampling_ratio):
    return grad.new_empty(images, height, width, grad.shape[3])


_forward = differentiable(_C.roi_align_rotated_forward, _backward, _setup_context, fold, jvp=linear)
_grad_input = differentiable(
    _C.roi_align_rotated_backward, _double_backward, _setup_backward_context, fold, jvp=linear
)
