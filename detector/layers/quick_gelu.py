"""Quick GELU. Kernels: csrc/cpu/quick_gelu.cpp, csrc/cuda/quick_gelu.cu."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake
from detector.utils.exporting import is_exporting

_C = load_extension()

SCALE = 1.702


def quick_gelu(input: Tensor) -> Tensor:
    r"""The sigmoid approximation of GELU, applied elementwise.

    .. math::
        y = x \, \sigma(1.702 \, x)

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", https://arxiv.org/abs/1606.08415, section 2.
    It is the activation of the original CLIP models.

    In float32 the exponential is accurate to 2 ulp. The gradient is finite for every finite input, 1 at
    infinity and 0 at minus infinity; the value at minus infinity is NaN. Second derivatives are supported.
    Results are bitwise reproducible. Only the input is saved for the backward pass. On a GPU the call does
    not synchronize with the host and can be captured in a CUDA graph. Under torch.compile it is the formula
    in float32, which the compiler fuses with the ops around it (float64: the kernel); results may then
    differ by rounding.

    Args:
        input (Tensor): any shape; float64, float32, float16 or bfloat16 (half precision computes in float32).
            Any strides: a non-overlapping and dense tensor is not copied.

    Returns:
        Tensor: with the shape, dtype and dimension order of `input`.

    Raises:
        RuntimeError: if `input` has another dtype.
    """
    if torch.compiler.is_compiling() and input.dtype in _COMPILED and not is_exporting():
        return _Formula.apply(input)  # type: ignore[no-any-return]
    return _forward(input)


class QuickGELU(nn.Module):
    """See :func:`quick_gelu`."""

    def forward(self, input: Tensor) -> Tensor:
        return quick_gelu(input)


_COMPILED = (torch.float32, torch.float16, torch.bfloat16)


class _Formula(torch.autograd.Function):
    """What the kernels compute, for torch.compile. Autograd's own gradient is NaN at infinity."""

    @staticmethod
    def forward(ctx, input: Tensor) -> Tensor:
        ctx.save_for_backward(input)
        wide = input.float()
        output = wide * (SCALE * wide).sigmoid()
        # If forward() returns a conversion that changes nothing, torch 2.11 compiles the gradient to zeros.
        return output if output.dtype == input.dtype else output.to(input.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[override]
        (input,) = ctx.saved_tensors
        z, largest = SCALE * input.float(), torch.finfo(torch.float32).max
        s = z.sigmoid()
        return (grad * (s * (1 + z.clamp(-largest, largest) * (1 - s)))).to(input.dtype)


def _save_inputs(ctx, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, grad: Tensor) -> Tensor:
    (input,) = ctx.saved_tensors
    return _grad_input(grad, input)


def _second_backward(ctx, grad_grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    grad, input = ctx.saved_tensors
    grad_of_grad = grad_of_input = None
    if ctx.needs_input_grad[0]:
        grad_of_grad = _grad_input(grad_grad, input)
    if ctx.needs_input_grad[1]:
        grad_of_input = (grad_grad * grad * _curvature(input)).to(input.dtype)
    return grad_of_grad, grad_of_input


def _curvature(input: Tensor) -> Tensor:
    """The second derivative of quick GELU, in at least float32."""
    wide = torch.promote_types(input.dtype, torch.float32)
    z = SCALE * input.to(wide)
    s = z.sigmoid()
    largest = torch.finfo(wide).max
    # z is clamped because s * (1 - s) is 0 where z overflows, and 0 times infinity would be NaN.
    return SCALE * s * (1 - s) * (2 + z.clamp(-largest, largest) * (1 - 2 * s))


def _derivative(call, arguments: tuple, tangents: tuple) -> Tensor:
    return _grad_input(tangents[0], arguments[0])


def _second_derivative(call, arguments: tuple, tangents: tuple) -> Tensor:
    """Of the backward op, which is linear in the gradient."""
    (grad, input), (grad_tangent, input_tangent) = arguments, tangents
    return call(grad_tangent, input) + (input_tangent * grad * _curvature(input)).to(input.dtype)


@register_fake("quick_gelu_forward")
def _fake_forward(input):
    return torch.empty_like(input)


@register_fake("quick_gelu_backward")
def _fake_backward(grad, input):
    return torch.empty_like(input)


# No autocast rule: the kernels already compute half precision in float32.
_forward = differentiable(_C.quick_gelu_forward, _backward, _save_inputs, jvp=_derivative)
_grad_input = differentiable(_C.quick_gelu_backward, _second_backward, _save_inputs, jvp=_second_derivative)
