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

from detector.layers._vmap import Rule, call_for_each, no_examples

Op = TypeVar("Op", bound=Callable)
# The forward-mode derivative of an op. It takes the function to call, the arguments of the op and their
# tangents (None of what is no tensor), and returns the tangents of the outputs (None of one that is marked as
# not differentiable).
Derivative = Callable[[Callable[..., Any], tuple, tuple], Any]


def differentiable(
    op: Op,
    backward: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
    vmap_rule: Rule = call_for_each,
    autocast: torch.dtype | None = None,
    few: int = 2**12,
    jvp: Derivative | None = None,
) -> Op:
    """Register a gradient formula for an op, and return a function that calls the op.

    The function works in eager mode, in the transforms of torch.func (grad, vjp, jacrev and vmap, nested in
    any way), in torch.compile and in torch.export.

    Args:
        op: an op of detector._C. The returned function takes positional arguments only.
        backward: as in torch.library.register_autograd. It must call other ops through the functions that
            `differentiable` returned for them.
        setup_context: as in torch.library.register_autograd.
        vmap_rule: how the op runs on the examples of torch.func.vmap.
        autocast: dtype that autocast casts floating-point tensors to, except float64; None: it casts none.
        few: where the incoming gradient has fewer elements than that on a CPU, or 256 times as many on a GPU,
            every gradient that an input requires is computed, although the backward pass may have asked for
            fewer: finding out takes longer.
        jvp: the derivative in forward mode (torch.func.jvp, jacfwd), :func:`linear` for most; None: it
            raises NotImplementedError.
    """
    overload = op.default  # type: ignore[attr-defined]
    torch.library.register_autograd(overload, backward, setup_context=setup_context)
    if autocast is not None:
        for device_type in ("cpu", "cuda"):
            torch.library.register_autocast(overload, device_type, autocast)
    save = setup_context or _save_nothing
    num_tensors = sum("Tensor" in str(argument.type) for argument in overload._schema.arguments)
    call_op = overload._op  # what overload(...) calls

    def forward(*arguments):
        with torch._C._AutoDispatchBelowAutograd():  # this call needs no bookkeeping of autograd
            return call_op(*arguments)

    def forward_and_save(ctx, *arguments):
        output = forward(*arguments)
        save(ctx, arguments, output)
        return output

    def backward_of_wanted(ctx, *grads):
        if all(g is None or g.numel() < (256 * few if g.is_cuda else few) for g in grads):
            return backward(ctx, *grads)
        wanted = _wanted_gradients(ctx)
        return backward(ctx if wanted == ctx.needs_input_grad else _PassContext(ctx, wanted), *grads)

    name = overload.name()
    eager_backward = backward if num_tensors == 1 else backward_of_wanted
    eager = _function(name, forward=forward_and_save, backward=eager_backward)
    transformed = _for_transforms(
        overload, forward, save, backward, vmap_rule, jvp, lambda *arguments: call(*arguments)
    )

    def call(*arguments):
        if torch.compiler.is_compiling() or torch._C._is_tracing():
            return overload(*arguments)
        in_forward_mode = forward_ad._current_level >= 0
        if in_forward_mode and jvp is None:
            refuse_tangents(name, *arguments)
        if torch._C._are_functorch_transforms_active() or (in_forward_mode and jvp is not None):
            # Below the transforms autocast would come too late: the tensors are saved before.
            return transformed.apply(*(arguments if autocast is None else as_autocast(arguments, autocast)))
        if torch._C._is_any_autocast_enabled():
            return overload(*arguments)
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
            return eager.apply(*arguments)
        return forward(*arguments)

    return call  # type: ignore[return-value]


def as_autocast(arguments: tuple, dtype: torch.dtype) -> list:
    """The arguments as autocast casts them: floating-point tensors other than float64 to `dtype`."""
    return [
        argument.to(dtype)
        if isinstance(argument, torch.Tensor)
        and argument.is_floating_point()
        and argument.dtype != torch.float64
        and torch.is_autocast_enabled(argument.device.type)
        else argument
        for argument in arguments
    ]


def _function(name: str, **methods: Callable[..., Any]) -> type[torch.autograd.Function]:
    statics = {key: staticmethod(method) for key, method in methods.items()}
    return type(name.replace("::", "_"), (torch.autograd.Function,), statics)


class _PassContext:
    """The context of a Function for a backward pass that asks for fewer gradients than the inputs require.

    The context itself stays as it is: other passes over a retained graph use it too, at the same time if they
    run in other threads.
    """

    def __init__(self, ctx, needs_input_grad: tuple[bool, ...]) -> None:
        self.ctx, self.needs_input_grad = ctx, needs_input_grad

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ctx, name)


def _wanted_gradients(ctx) -> tuple[bool, ...]:
    """Which inputs of a Function get a gradient in this backward pass.

    ctx.needs_input_grad tells which require one. torch.autograd.grad may ask for fewer: for that of an input
    of a convolution, say, and not for that of its weight.
    """
    nodes = [node for node, _ in ctx.next_functions if node is not None]
    if len(nodes) == 1 or torch.compiler.is_compiling():
        return ctx.needs_input_grad
    wanted = iter([_is_wanted(node) for node in nodes])
    return tuple(needs and next(wanted) for needs in ctx.needs_input_grad)


def _is_wanted(node: Any) -> bool:
    """Whether the backward pass reaches a node."""
    try:
        return torch._C._will_engine_execute_node(node)
    except RuntimeError:  # a leaf that torch.autograd.grad has asked for; this takes 20 us
        return True


def _for_transforms(
    overload: Any,
    forward: Callable[..., Any],
    save: Callable[..., None],
    backward: Callable[..., Any],
    vmap_rule: Rule,
    jvp: Derivative | None,
    call: Callable[..., Any],
) -> type[torch.autograd.Function]:
    """The Function of torch.func and forward mode: the newer form, whose forward takes no context.

    Applying it takes longer than applying one of the other form.
    """
    names = [argument.name for argument in overload._schema.arguments]

    def setup_context(ctx, inputs, output):
        save(ctx, inputs, output)
        ctx.primals = inputs if forward_ad._current_level >= 0 else None

    def vmap(info, in_dims, *arguments):
        if info.batch_size == 0:
            return no_examples(overload, in_dims, arguments)
        return vmap_rule(call, names, info.batch_size, in_dims, arguments)

    def derivative(ctx, *tangents):
        assert jvp is not None
        primals, ctx.primals = ctx.primals, None  # of one forward pass, which this call ends
        return jvp(call, primals, tangents)

    return _function(
        overload.name(),
        forward=forward,
        setup_context=setup_context,
        backward=backward,
        vmap=vmap,
        jvp=derivative,
    )


def linear(call: Callable[..., Any], arguments: tuple, tangents: tuple) -> Any:
    """Of an op that is linear in its first argument; the others are constants."""
    return call(tangents[0], *arguments[1:])


def _save_nothing(ctx, inputs: tuple, output: Any) -> None: ...


def refuse_tangents(name: str, *arguments: Any) -> None:
    """Raise on forward-mode differentiation, which would otherwise treat the op as a constant."""
    if any(
        isinstance(argument, torch.Tensor) and forward_ad.unpack_dual(argument).tangent is not None
        for argument in arguments
    ):
        raise NotImplementedError(f"{name} has no forward-mode derivative; differentiate it in reverse mode")
