"""The LLTM recurrent cell, for one step or a sequence. Kernels: csrc/cpu/lltm.cpp, csrc/cuda/lltm.cu."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import as_autocast, differentiable
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake

_C = load_extension()


def lltm(input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    r"""One step of an LSTM cell without a forget gate and with an ELU instead of a tanh.

    .. math::
        (i, o, g) = [h, x]\, W^\top + b, \qquad
        c' = c + \mathrm{elu}(g)\, \sigma(i), \qquad
        h' = \tanh(c')\, \sigma(o)

    The matrix products are torch's and follow its settings (TF32, for example); one kernel computes the rest.
    Source: the cell named LLTM in PyTorch's tutorial "Custom C++ and CUDA Extensions".

    All five arguments receive gradients; second derivatives are not supported. Results are bitwise
    reproducible wherever torch's matrix products are. Half precision computes in float32. On a GPU the call
    does not synchronize with the host and can be captured in a CUDA graph.

    Args:
        input (Tensor[N, I]): x; float64, float32, float16 or bfloat16, any strides.
        weight (Tensor[3 S, S + I]): W; rows in the order input gate, output gate, candidate; columns in the
            order h, x.
        bias (Tensor[3 S]): b.
        h (Tensor[N, S]): the output of the previous step.
        c (Tensor[N, S]): the cell state of the previous step.

    Returns:
        tuple[Tensor[N, S], Tensor[N, S]]: h' and c', in the dtype of `input`.

    Raises:
        RuntimeError: on a wrong shape, dtype or device.
    """
    _check_rank("lltm", input, 2)
    return _apply(input, weight, bias, h, c)


def lltm_sequence(
    input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Apply :func:`lltm` to input[0], input[1] and so on.

    Args:
        input (Tensor[T, N, I]): T >= 1 steps. The other arguments are those of :func:`lltm`.

    Returns:
        tuple[Tensor[T, N, S], Tensor[N, S], Tensor[N, S]]: h of every step, then h and c of the last step.
    """
    _check_rank("lltm_sequence", input, 3)
    outputs, last_c = _apply(input, weight, bias, h, c)
    return outputs, outputs[-1], last_c


class LLTM(nn.Module):
    """See :func:`lltm`. The state is (h, c) and defaults to zeros."""

    def __init__(self, input_size: int, state_size: int) -> None:
        super().__init__()
        self.input_size, self.state_size = input_size, state_size
        self.weight = nn.Parameter(torch.empty(3 * state_size, state_size + input_size))
        self.bias = nn.Parameter(torch.empty(3 * state_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw from U(-a, a) with a = 1 / sqrt(state_size), as in torch's LSTM."""
        for parameter in self.parameters():
            bound = max(self.state_size, 1) ** -0.5  # a state of size 0 has no weights to draw
            nn.init.uniform_(parameter, -bound, bound)

    def extra_repr(self) -> str:
        return f"input_size={self.input_size}, state_size={self.state_size}"

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return lltm(input, self.weight, self.bias, *self._state(input, state, 2))

    def _state(self, input: Tensor, state: tuple[Tensor, Tensor] | None, rank: int) -> tuple[Tensor, Tensor]:
        if state is not None:
            return state
        _check_rank("lltm" if rank == 2 else "lltm_sequence", input, rank)
        zeros = input.new_zeros(input.shape[-2], self.state_size)
        return zeros, zeros


class LLTMSequence(LLTM):
    """See :func:`lltm_sequence`. The state is (h, c) and defaults to zeros."""

    def forward(  # type: ignore[override]
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return lltm_sequence(input, self.weight, self.bias, *self._state(input, state, 3))


def _check_rank(op: str, input: Tensor, rank: int) -> None:
    if input.dim() != rank:
        shape = tuple(input.shape)
        raise RuntimeError(f"{op}: input has shape {shape}, expected {rank} dimensions")


def _apply(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    """h of every step and c of the last."""
    input = tensors[0]
    # Under autocast the op computes in float32, or in float64. The first condition is the cheaper one.
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(input.device.type):
        wide = as_autocast(tensors, torch.float32)
        with torch.autocast(input.device.type, enabled=False):
            h, c, *_ = _forward(*wide)
            return h.to(input.dtype), c.to(input.dtype)
    h, c, *_ = _forward(*tensors)
    return h, c


def _setup_context(ctx, inputs: tuple, output: tuple) -> None:
    input, weight, bias, _, _ = inputs
    _, last_c, *for_backward = output
    ctx.mark_non_differentiable(*for_backward)
    ctx.set_materialize_grads(False)  # avoids allocating gradients of zeros for them
    cs, gates, xh = for_backward
    ctx.save_for_backward(weight, bias, last_c if input.dim() == 2 else cs, gates, xh)


def _backward(ctx, grad_h: Tensor | None, grad_c: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad
    gradients = _gradients(grad_h, grad_c, *ctx.saved_tensors, *needs[:4])
    return tuple(gradient if needed else None for gradient, needed in zip(gradients, needs, strict=True))


def _no_second_derivative(ctx, *grads: Tensor) -> None:
    raise NotImplementedError("lltm has no second derivative; differentiate it only once")


@register_fake("lltm_forward")
def _fake_forward(input, weight, bias, h, c):
    state = h.shape[1]
    hs, gates, xh = (
        input.new_empty((*input.shape[:-1], n)) for n in (state, 3 * state, state + input.shape[-1])
    )
    return hs, h.new_empty(h.shape), input.new_empty((0,) if input.dim() == 2 else hs.shape), gates, xh


@register_fake("lltm_backward")
def _fake_backward(
    grad_h, grad_c, weight, bias, cs, gates, xh, needs_input, needs_weight, needs_bias, needs_h
):
    state = cs.shape[-1]
    input_shape, h_shape = (*cs.shape[:-1], weight.shape[1] - state), cs.shape[-2:]
    wanted = [(needs_input, input_shape), (needs_weight, weight.shape), (needs_bias, weight.shape[:1])]
    wanted += [(needs_h, h_shape), (True, h_shape)]
    return tuple(cs.new_empty(shape if needed else (0,)) for needed, shape in wanted)


_forward = differentiable(_C.lltm_forward, _backward, _setup_context, few=2**9)  # each element is a sum
# once_differentiable would silently return zero second derivatives if the incoming gradient is a constant.
_gradients = differentiable(_C.lltm_backward, _no_second_derivative)
