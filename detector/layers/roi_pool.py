"""RoI pooling. Kernels: csrc/cpu/roi_pool.cpp, csrc/cuda/roi_pool."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable, linear
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.layers._sizes import Size, as_pair
from detector.layers._vmap import fold
from detector.layers.roi_boxes import Boxes, as_rois

_C = load_extension()
torch.fx.wrap("roi_pool")  # torch.fx.symbolic_trace records the call instead of what it does


def roi_pool(
    input: Tensor,
    boxes: Boxes,
    output_size: Size,
    spatial_scale: float = 1.0,
) -> Tensor:
    r"""Max-pool each box into a fixed grid of bins, as `torchvision.ops.roi_pool`.

    Box corners are multiplied by `spatial_scale` and rounded, halves away from zero. Both corners belong to
    the box, whose height H' and width are at least one cell. Bin p of PH covers the rows

    .. math:: \lfloor p H' / PH \rfloor \ldots \lceil (p + 1) H' / PH \rceil - 1

    of the box, clipped to the input; columns likewise. A bin outside of the input gives 0. NaN is never the
    maximum; a bin that contains only NaN or minus infinity gives the lowest float32. Source: Girshick,
    "Fast R-CNN", https://arxiv.org/abs/1504.08083.

    The gradient goes to the first of equal maxima; `boxes` receive none. Second derivatives are supported.
    Results are bitwise reproducible. On a GPU the call does not synchronize with the host and can be captured
    in a CUDA graph.

    On a GPU the gradient of a channel of an image is summed in fixed point: each of its T terms, up to
    R PH PW, is rounded to a multiple of at most 2^-60 T times the largest (a float32 has 2^-24 of its own
    value). So terms far smaller than the largest of their channel lose digits, and those below 2^-61 T times
    it may vanish. In float64 the multiple is 2^-124 T.

    Args:
        input (Tensor[N, C, H, W]): float64, float32, float16 or bfloat16, any strides. The result and the
            gradient are contiguous, for a channels_last input too.
        boxes (Tensor[R, 5] or list of Tensor[L, 4]): (image, x1, y1, x2, y2), or (x1, y1, x2, y2) as one
            tensor per image; any floating dtype. Half precision features may have float32 boxes.
        output_size (int or (int, int)): PH and PW.
        spatial_scale (float): factor from box coordinates to feature coordinates.

    Returns:
        Tensor[R, C, PH, PW]: in the dtype of `input`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device, or an `output_size` or `spatial_scale` that is not
            positive. Boxes with an invalid image index or non-finite coordinates raise on the CPU, and on a
            GPU if the environment variable DETECTOR_VALIDATE is 1; otherwise they give 0 on a GPU.
    """
    rois = as_rois(boxes, input)
    height, width = as_pair("roi_pool", "output_size", output_size)
    options = (height, width, spatial_scale)
    if torch.jit.is_scripting():
        pooled, _ = _C.roi_pool_forward(input, rois, *options)
    else:
        pooled, _ = _forward(input, rois, *options)
    return pooled  # (R, C, PH, PW)


class RoIPool(nn.Module):
    """See :func:`roi_pool`."""

    def __init__(self, output_size: Size, spatial_scale: float) -> None:
        super().__init__()
        self.output_size = output_size
        self.spatial_scale = spatial_scale

    def forward(self, input: Tensor, rois: Boxes) -> Tensor:
        return roi_pool(input, rois, self.output_size, self.spatial_scale)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}, spatial_scale={self.spatial_scale}"


def _setup_context(ctx, inputs: tuple, output: tuple) -> None:
    input, boxes, _, _, ctx.spatial_scale = inputs
    _, argmax = output
    ctx.mark_non_differentiable(argmax)
    ctx.set_materialize_grads(False)  # avoids allocating a gradient of zeros for argmax
    ctx.save_for_backward(argmax, boxes)
    images, _, *size = input.shape
    ctx.sizes = (images, *size)


def _backward(ctx, grad: Tensor | None, _grad_argmax: None) -> tuple[Tensor | None, ...]:
    if grad is None or not ctx.needs_input_grad[0]:
        return (None,) * 5
    return _grad_input(grad, *ctx.saved_tensors, *ctx.sizes, ctx.spatial_scale), *(None,) * 4


def _setup_backward_context(ctx, inputs: tuple, output: Tensor) -> None:
    _, argmax, boxes, *_ = inputs
    ctx.save_for_backward(argmax, boxes)


def _double_backward(ctx, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The backward op is linear; its transpose gathers the values at the maxima."""
    if not ctx.needs_input_grad[0]:
        return (None,) * 7
    return _at_maxima(grad, *ctx.saved_tensors), *(None,) * 6


def _at_maxima(cells: Tensor, argmax: Tensor, boxes: Tensor) -> Tensor:
    """The values (R, C, PH, PW) of features (N, C, H, W) where the bins have their maxima."""
    channel = torch.arange(argmax.shape[1], device=argmax.device)[:, None, None]
    cells = cells.flatten(2).mT  # (N, H W, C)
    # Bins without a maximum, for example of invalid boxes, which a GPU accepts, have argmax -1.
    found = (argmax >= 0) & (argmax < cells.shape[1])
    image = torch.where(found, boxes[:, 0, None, None, None].long(), 0)
    values = cells[image, torch.where(found, argmax, 0).long(), channel]
    return values.where(found, 0)


@register_fake("roi_pool_forward")
def _fake_forward(input, boxes, pooled_height, pooled_width, spatial_scale):
    pooled = input.new_empty(boxes.shape[0], input.shape[1], pooled_height, pooled_width)
    return pooled, torch.empty_like(pooled, dtype=torch.int32)


@register_fake("roi_pool_backward")
def _fake_backward(grad, argmax, boxes, images, height, width, spatial_scale):
    return grad.new_empty(images, grad.shape[1], height, width)


def _derivative(call, arguments: tuple, tangents: tuple) -> tuple[Tensor, None]:
    """Only what is the maximum moves it."""
    _, argmax = call(*arguments)
    return _at_maxima(tangents[0], argmax, arguments[1]), None


# No autocast rule: the kernels compute in float32, and box coordinates are never in half precision.
_forward = differentiable(_C.roi_pool_forward, _backward, _setup_context, fold, jvp=_derivative)
_grad_input = differentiable(
    _C.roi_pool_backward, _double_backward, _setup_backward_context, fold, jvp=linear
)
