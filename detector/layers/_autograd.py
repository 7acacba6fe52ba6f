"""Gradients of ops, for little time of the host.

torch.library.register_autograd gives an op its gradient wherever torch meets it. But each call then passes
torch's dispatcher twice and its Python wrapper once, which takes the host longer than many a kernel takes a
GPU: in eager mode :func:`differentiable` goes around them. What it calls of torch._C that wrapper calls too.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

Op = TypeVar("Op", bound=Callable)


def differentiable(
    op: Op, backward: Callable[..., Any], setup_context: Callable[..., None] | None = None
) -> Op:
    """Registers a gradient formula, and returns a function to call the op by.

    Args:
        op: of detector._C. Its arguments are given by place.
        backward: as for torch.library.register_autograd. It calls other ops by what this function returned.
        setup_context: likewise.
    """
    overload = op.default  # type: ignore[attr-defined]
    torch.library.register_autograd(overload, backward, setup_context=setup_context)

    def forward(ctx, *arguments):
        output = _past_autograd(overload, *arguments)
        if setup_context is not None:
            setup_context(ctx, arguments, output)
        return output

    formulas = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    name = overload.name()
    name_of_grad_fn = name.replace("::", "_")
    function = type(name_of_grad_fn, (torch.autograd.Function,), formulas)

    def call(*arguments):
        refuse_tangents(name, *arguments)
        if _is_watched():
            return overload(*arguments)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            return function.apply(*arguments)
        return _past_autograd(overload, *arguments)

    return call  # type: ignore[return-value]


def refuse_tangents(name: str, *arguments: Any) -> None:
    """Raises where forward-mode differentiation arrives, which would take the op for a constant."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:  # as nearly always
        return
    if any(
        isinstance(argument, torch.Tensor) and forward_ad.unpack_dual(argument).tangent is not None
        for argument in arguments
    ):
        raise NotImplementedError(f"{name} has no forward-mode derivative; differentiate it in reverse mode")


def _past_autograd(op: Callable[..., Any], *arguments: Any) -> Any:
    """Calls an op where no gradient is wanted, without a look at whether one is."""
    with torch._C._AutoDispatchBelowAutograd():
        return op(*arguments)


def _is_watched() -> bool:
    """Whether more than autograd must see an op: a compiler, a tracer, a transform or autocast."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._is_any_autocast_enabled()
    )
