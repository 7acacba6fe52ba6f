"""The LLTM cell, one step or a sequence. Kernels: csrc/cpu/lltm.cpp, csrc/cuda/lltm.cu."""

import torch
from torch import Tensor, nn

from detector.layers._autograd import differentiable, refuse_tangents
from detector.layers._extension import load_extension
from detector.layers._fake import register_fake

_C = load_extension()


def lltm(input: Tensor, weight: Tensor, bias: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    r"""One step of an LSTM cell that has no forget gate and an ELU in place of a tanh.

    .. math::
        (i, o, g) = [h, x]\, W^\top + b, \qquad
        c' = c + \mathrm{elu}(g)\, \sigma(i), \qquad
        h' = \tanh(c')\, \sigma(o)

    The matrix products are torch's and follow its settings (TF32, for example); one kernel does the rest.
    Source: PyTorch's tutorial "Custom C++ and CUDA Extensions", which calls it LLTM.

    Gradients go to all five arguments; there is no second derivative. Equal inputs give equal bits wherever
    torch's matrix products do, backward too. Half precision computes in float32. On a GPU the host never
    waits, and the call can be captured in a CUDA graph.

    Args:
        input (Tensor[N, I]): x; float64, float32, float16 or bfloat16, any strides.
        weight (Tensor[3 S, S + I]): W; rows in the order input gate, output gate, candidate, columns in the
            order h, x.
        bias (Tensor[3 S]): b.
        h (Tensor[N, S]): the output of the step before.
        c (Tensor[N, S]): the cell state of the step before.

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
    """All the steps of a sequence: :func:`lltm` on input[0], input[1] and so on.

    The product of W with the inputs is one for all steps; each step then has one more and one kernel.

    Args:
        input (Tensor[T, N, I]): one step or more. The other arguments are those of :func:`lltm`.

    Returns:
        tuple[Tensor[T, N, S], Tensor[N, S], Tensor[N, S]]: h of every step, and h and c of the last.
    """
    _check_rank("lltm_sequence", input, 3)
    outputs, last_c = _apply(input, weight, bias, h, c)
    return outputs, outputs[-1], last_c


class LLTM(nn.Module):
    """One step. See :func:`lltm`; the state is (h, c), zeros where it is not given."""

    def __init__(self, input_size: int, state_size: int) -> None:
        super().__init__()
        self.input_size, self.state_size = input_size, state_size
        self.weight = nn.Parameter(torch.empty(3 * state_size, state_size + input_size))
        self.bias = nn.Parameter(torch.empty(3 * state_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(state_size), as in torch's LSTM."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.state_size**-0.5), self.state_size**-0.5)

    def extra_repr(self) -> str:
        return f"input_size={self.input_size}, state_size={self.state_size}"

    def forward(self, input: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        return lltm(input, self.weight, self.bias, *(state or self._zero_state(input)))

    def _zero_state(self, input: Tensor) -> tuple[Tensor, Tensor]:
        zeros = input.new_zeros(input.shape[-2], self.state_size)
        return zeros, zeros


class LLTMSequence(LLTM):
    """A whole sequence. See :func:`lltm_sequence`; the state is (h, c), zeros where it is not given."""

    def forward(  # type: ignore[override]
        self, input: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return lltm_sequence(input, self.weight, self.bias, *(state or self._zero_state(input)))


def _check_rank(op: str, input: Tensor, rank: int) -> None:
    if input.dim() != rank:
        shape = tuple(input.shape)
        raise RuntimeError(f"{op}: input has shape {shape}, expected {rank} dimensions")


def _apply(input: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
    refuse_tangents("lltm", input, *others)
    # The first is the quicker to ask. Computes in float32 then, as all our ops do.
    if torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(input.device.type):
        with torch.autocast(input.device.type, enabled=False):
            outputs, last_c = _LLTM.apply(input.float(), *(tensor.float() for tensor in others))
            return outputs.to(input.dtype), last_c.to(input.dtype)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (input, *others)):
        return _LLTM.apply(input, *others)
    hs, cs, _, _ = _forward(input, *others)
    return hs, cs if input.dim() == 2 else cs[-1]


class _LLTM(torch.autograd.Function):
    """Not by :func:`differentiable`, as the op gives c of every step and the gradient arrives for the last.

    To select that outside would have autograd write a gradient of zeros for all the others.
    """

    @staticmethod
    def forward(ctx, input, weight, bias, h, c):
        hs, cs, gates, xh = _forward(input, weight, bias, h, c)
        ctx.save_for_backward(weight, bias, cs, gates, xh)
        ctx.set_materialize_grads(False)
        return hs, cs if input.dim() == 2 else cs[-1]

    @staticmethod
    def backward(ctx, grad_h, grad_c):
        needs = ctx.needs_input_grad
        gradients = _gradients(grad_h, grad_c, *ctx.saved_tensors, *needs[:4])
        return tuple(gradient if needed else None for gradient, needed in zip(gradients, needs, strict=True))


def _no_second_derivative(ctx, *grads: Tensor) -> None:
    raise NotImplementedError("lltm has no second derivative; differentiate it once only")


@register_fake("lltm_forward")
def _fake_forward(input, weight, bias, h, c):
    state = h.shape[1]
    columns = (state, state, 3 * state, state + input.shape[-1])
    return tuple(input.new_empty((*input.shape[:-1], number)) for number in columns)


@register_fake("lltm_backward")
def _fake_backward(
    grad_h, grad_c, weight, bias, cs, gates, xh, needs_input, needs_weight, needs_bias, needs_h
):
    state = cs.shape[-1]
    of_input, of_h = (*cs.shape[:-1], weight.shape[1] - state), cs.shape[-2:]
    wanted = [(needs_input, of_input), (needs_weight, weight.shape), (needs_bias, weight.shape[:1])]
    wanted += [(needs_h, of_h), (True, of_h)]
    return tuple(cs.new_empty(shape if needed else (0,)) for needed, shape in wanted)


_forward = torch.ops.detector.lltm_forward.default  # the overload: the packet, _C.lltm_forward, looks for it
# Not once_differentiable, which takes a second derivative for zero where the arriving gradient is constant.
_gradients = differentiable(_C.lltm_backward, _no_second_derivative)
