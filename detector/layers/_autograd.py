"""Autograd registration with little overhead per call.

torch.library.register_autograd registers a gradient for every use of an op. In eager mode, however, each
call then goes through torch's dispatcher twice and through a Python wrapper once, which can take longer on
the host than the kernel takes on the GPU. :func:`differentiable` bypasses both in eager mode. The private
functions of torch._C that it uses are those that torch's own wrapper calls.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

Op = TypeVar("Op", bound=Callable)


def differentiable(
    op: Op, backward: Callable[..., Any], setup_context: Callable[..., None] | None = None
) -> Op:
    """Register a gradient formula for an op, and return a function that calls the op.

    Args:
        op: an op of detector._C. The returned function takes positional arguments only.
        backward: as in torch.library.register_autograd. It must call other ops through the functions that
            `differentiable` returned for them.
        setup_context: as in torch.library.register_autograd.
    """
    overload = op.default  # type: ignore[attr-defined]
    torch.library.register_autograd(overload, backward, setup_context=setup_context)

    def forward(ctx, *arguments):
        output = _call_below_autograd(overload, *arguments)
        if setup_context is not None:
            setup_context(ctx, arguments, output)
        return output

    formulas = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    name = overload.name()
    grad_fn_name = name.replace("::", "_")
    function = type(grad_fn_name, (torch.autograd.Function,), formulas)

    def call(*arguments):
        refuse_tangents(name, *arguments)
        if _needs_dispatcher():
            return overload(*arguments)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            return function.apply(*arguments)
        return _call_below_autograd(overload, *arguments)

    return call  # type: ignore[return-value]


def refuse_tangents(name: str, *arguments: Any) -> None:
    """Raise on forward-mode differentiation, which would otherwise treat the op as a constant."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:  # the common case
        return
    if any(
        isinstance(argument, torch.Tensor) and forward_ad.unpack_dual(argument).tangent is not None
        for argument in arguments
    ):
        raise NotImplementedError(f"{name} has no forward-mode derivative; differentiate it in reverse mode")


def _call_below_autograd(op: Callable[..., Any], *arguments: Any) -> Any:
    """Call an op without autograd's bookkeeping, for calls that need no gradient."""
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)


def _needs_dispatcher() -> bool:
    """Whether a compiler, a tracer, a functorch transform or autocast must see the op."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_any_autocast_enabled()
    )
