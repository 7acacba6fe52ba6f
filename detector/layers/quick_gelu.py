"""Quick GELU. Kernels: csrc/cpu/quick_gelu.cpp, csrc/cuda/quick_gelu.cu."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake

_C = load_extension()

SCALE = 1.702


def quick_gelu(input: Tensor) -> Tensor:
    r"""The fast approximation of GELU, element by element.

    .. math::
        y = x \, \sigma(1.702 \, x)

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", https://arxiv.org/abs/1606.08415, section 2;
    CLIP's models use it.

    In float32 the exponential is within 2 ulp. The gradient is finite for every finite input; at infinity it
    is 1 and at minus infinity 0, which are its limits, while the value at minus infinity is NaN, as the
    formula says. The gradient has a derivative too, in plain PyTorch. Equal inputs give equal bits. One pass
    over memory and nothing saved but the input; on a GPU the host never waits, and the call can be captured
    in a CUDA graph.

    Args:
        input (Tensor): any shape; float64, float32, float16 or bfloat16 (half precision computes in float32).
            Any strides: a tensor that fills its memory, in whatever order of dimensions, is not copied.

    Returns:
        Tensor: in the shape, dtype and order of dimensions of `input`.

    Raises:
        RuntimeError: if `input` is of another dtype.
    """
    return _forward(input)


class QuickGELU(nn.Module):
    """See :func:`quick_gelu`."""

    def forward(self, input: Tensor) -> Tensor:
        return quick_gelu(input)


def _save_inputs(ctx, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad: Tensor) -> Tensor:
    (input,) = ctx.saved_tensors
    return _grad_input(grad, input)


def _second_backward(ctx, grad_grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    grad, input = ctx.saved_tensors
    for_grad = for_input = None
    if ctx.needs_input_grad[0]:
        for_grad = _grad_input(grad_grad, input)
    if ctx.needs_input_grad[1]:
        wide = torch.promote_types(input.dtype, torch.float32)
        z = SCALE * input.to(wide)
        s = z.sigmoid()
        largest = torch.finfo(wide).max
        # The second derivative of y. Where z overflows, s * (1 - s) is 0, and 0 times infinity would be NaN.
        curve = SCALE * s * (1 - s) * (2 + z.clamp(-largest, largest) * (1 - 2 * s))
        for_input = (grad_grad * grad * curve).to(input.dtype)
    return for_grad, for_input


@register_fake("quick_gelu_forward")
def _fake_forward(input):
    return torch.empty_like(input)


@register_fake("quick_gelu_backward")
def _fake_backward(grad, input):
    return torch.empty_like(input)


# No autocast: the kernels compute half precision in float32 already.
_forward = differentiable(_C.quick_gelu_forward, _backward, _save_inputs)
_grad_input = differentiable(_C.quick_gelu_backward, _second_backward, _save_inputs)
