"""lltm and lltm_sequence: comparison with their references."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_contract import (
    DTYPES,
    assert_equal,
    assert_graph_capture,
    assert_matches_reference,
    assert_no_synchronization,
    assert_uses_current_stream,
    outputs_and_gradients,
)
from op_samples import make_lltm as make_inputs
from torch import Tensor

from detector.layers import LLTM, LLTMSequence, lltm, lltm_sequence, reference

FORWARD = torch.ops.detector.lltm_forward.default
BACKWARD = torch.ops.detector.lltm_backward.default
NAMES = ("input", "weight", "bias", "h", "c")
PAIRS = [(lltm, reference.lltm, None), (lltm_sequence, reference.lltm_sequence, 4)]
BOTH = pytest.mark.parametrize(("function", "reference", "steps"), PAIRS, ids=["cell", "sequence"])
# Sums are in another order than in the reference.
TOLERANCE = {torch.float64: {}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}
TOLERANCE |= {dtype: {"rtol": 5e-2, "atol": 5e-2} for dtype in (torch.float16, torch.bfloat16)}


@pytest.fixture(autouse=True)
def exact_products() -> None:
    assert not torch.backends.cuda.matmul.allow_tf32  # torch's default, which the GPU tests require


# ---- values and gradients ----


def test_by_hand(device: torch.device) -> None:
    one = torch.ones(1, 1, dtype=torch.float64, device=device)
    weight = torch.tensor([[0.5, 0.25], [1.0, 0.0], [0.0, 2.0]], dtype=torch.float64, device=device)
    bias = torch.tensor([0.0, -1.0, -5.0], dtype=torch.float64, device=device)
    h, c = lltm(2 * one, weight, bias, 3 * one, 4 * one)
    in_gate, out_gate, candidate = torch.tensor([2.0, 2.0, -1.0], dtype=torch.float64).unbind()
    expected_c = 4 + (candidate.exp() - 1) * in_gate.sigmoid()
    assert c.item() == pytest.approx(expected_c.item(), rel=1e-12)
    assert h.item() == pytest.approx((expected_c.tanh() * out_gate.sigmoid()).item(), rel=1e-12)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(3, 5, 7), (16, 32, 128), (1, 1, 1), (5, 3, 33)])
def test_matches_reference(
    function: Callable,
    reference: Callable,
    steps: int | None,
    sizes: tuple,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    inputs = make_inputs(*sizes, steps, dtype, device)
    assert_matches_reference(function, reference, inputs, **TOLERANCE[dtype])


# For large products a GPU adds the bias in the next kernel, and from 2^16 states on uses vector loads.
@BOTH
@pytest.mark.parametrize("sizes", [(130, 20, 200), (330, 20, 200), (330, 21, 200)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_large_products_match_reference(
    function: Callable,
    reference: Callable,
    steps: int | None,
    dtype: torch.dtype,
    sizes: tuple[int, int, int],
    device: torch.device,
) -> None:
    inputs = make_inputs(*sizes, steps, dtype=dtype, device=device)
    inputs[2] = inputs[2].detach().repeat_interleave(2)[::2].requires_grad_()  # a strided bias
    assert_matches_reference(
        function, reference, inputs, **({"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {})
    )


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.tuples(*[st.integers(0, 12)] * 3), steps=st.integers(0, 5), seed=st.integers(0, 99))
def test_matches_reference_on_random_shapes(
    sizes: tuple, steps: int, seed: int, device: torch.device
) -> None:
    function, expected = (lltm_sequence, reference.lltm_sequence) if steps else (lltm, reference.lltm)
    sizes = (sizes[0], sizes[1], max(sizes[2], 1))  # torch's linear does not support an empty state
    assert_matches_reference(function, expected, make_inputs(*sizes, steps or None, device=device, seed=seed))


@pytest.mark.parametrize("sizes", [(0, 5, 7), (3, 0, 7), (3, 5, 0), (0, 0, 0)])
def test_empty(sizes: tuple[int, int, int], device: torch.device) -> None:
    rows, inputs, state = sizes
    h, c, *gradients = outputs_and_gradients(lltm, make_inputs(*sizes, device=device))
    assert h.shape == c.shape == (rows, state)
    shapes = [(rows, inputs), (3 * state, state + inputs), (3 * state,), (rows, state), (rows, state)]
    assert [gradient.shape for gradient in gradients] == shapes
    if rows == 0:
        assert not gradients[1].any()
        assert not gradients[2].any()


@pytest.mark.parametrize("used", [0, 1, 2])
def test_gradients_of_one_output(used: int, device: torch.device) -> None:
    inputs = make_inputs(steps=4, device=device)
    actual = outputs_and_gradients(lambda *tensors: lltm_sequence(*tensors)[used], inputs)
    expected = outputs_and_gradients(lambda *tensors: reference.lltm_sequence(*tensors)[used], inputs)
    torch.testing.assert_close(actual, expected)


@BOTH
@pytest.mark.parametrize("needed", NAMES)
def test_only_needed_gradients_are_computed(
    needed: str, function: Callable, reference: Callable, steps: int | None, device: torch.device
) -> None:
    inputs = make_inputs(steps=steps, device=device)
    expected = outputs_and_gradients(function, inputs)
    number = len(expected) - len(NAMES)
    for name, tensor in zip(NAMES, inputs, strict=True):
        tensor.requires_grad_(name == needed)
    actual = outputs_and_gradients(function, inputs)
    assert_equal(actual, [*expected[:number], expected[number + NAMES.index(needed)]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_gates_give_no_nan(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.tensor([-1e30, -1e4, -89, -88, -1e-30, 0, 1e-30, 88, 89, 1e4, 1e30])
    gates = torch.cartesian_prod(values, values, values).to(device, dtype)  # (11^3, 3)
    rows = len(gates)
    zero = torch.zeros(rows, 1, dtype=dtype, device=device)
    weight = torch.cat([torch.zeros(3, 1), torch.eye(3)], dim=1).to(device, dtype)
    inputs = [gates, weight, weight.new_zeros(3), zero, zero]
    tensors = [tensor.clone().requires_grad_(i != 1) for i, tensor in enumerate(inputs)]
    assert_matches_reference(lltm, reference.lltm, tensors, **TOLERANCE[dtype])
    assert all(tensor.isfinite().all() for tensor in outputs_and_gradients(lltm, tensors))


def test_elu_derivative_at_zero(device: torch.device) -> None:
    weight = torch.tensor([[0.0, 0], [0, 0], [0, 1]], device=device)
    zero = torch.zeros(1, 1, device=device)
    x = zero.clone().requires_grad_()
    _, c = lltm(x, weight, torch.zeros(3, device=device), zero, zero)
    assert torch.autograd.grad(c, x)[0].item() == 0.5  # sigmoid(0) times the derivative


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_inf_stay_in_their_row(value: float, device: torch.device) -> None:
    inputs = [tensor.detach() for tensor in make_inputs(device=device)]
    expected = lltm(*inputs)
    for broken in (0, 3, 4):
        changed = [tensor.clone() for tensor in inputs]
        changed[broken][1] = value
        actual = lltm(*changed)
        assert_equal([tensor[[0, 2]] for tensor in actual], [tensor[[0, 2]] for tensor in expected])
        torch.testing.assert_close(actual, reference.lltm(*changed), equal_nan=True)


def test_sequence_equals_steps(device: torch.device) -> None:
    x, weight, bias, h, c = make_inputs(steps=3, device=device)
    outputs, last_h, last_c = lltm_sequence(x, weight, bias, h, c)
    for t in range(3):
        h, c = lltm(x[t], weight, bias, h, c)
        torch.testing.assert_close(outputs[t], h)
    torch.testing.assert_close((last_h, last_c), (h, c))


@pytest.mark.parametrize(("module_type", "shape"), [(LLTM, (3, 5)), (LLTMSequence, (2, 3, 5))])
def test_modules(module_type: type[LLTM], shape: tuple[int, ...]) -> None:
    module = module_type(5, 7)
    assert repr(module) == f"{module_type.__name__}(input_size=5, state_size=7)"
    assert all((p.abs() <= 7**-0.5).all() and p.any() for p in module.parameters())
    function = lltm if module_type is LLTM else lltm_sequence
    x, h, c = torch.randn(shape), torch.randn(3, 7), torch.randn(3, 7)
    assert_equal(module(x, (h, c)), function(x, module.weight, module.bias, h, c))
    zero = torch.zeros(3, 7)
    assert_equal(module(x), function(x, module.weight, module.bias, zero, zero))
    with pytest.raises(RuntimeError, match=rf"^{function.__name__}: input has shape \(5,\), expected"):
        module(torch.zeros(5))
    assert module_type(5, 0)(x)[0].shape == (*shape[:-1], 0)


# ---- torch.library, compile, export, autocast ----


@pytest.mark.parametrize("module_type", [LLTM, LLTMSequence])
def test_parameters_of_an_exported_or_traced_module_get_gradients(
    module_type: type[LLTM], device: torch.device
) -> None:
    module = module_type(5, 7).to(device)
    input = torch.randn(*([4] if module_type is LLTMSequence else []), 3, 5, device=device)
    expected = torch.autograd.grad(sum(out.sum() for out in module(input)), list(module.parameters()))
    for other in (torch.export.export(module, (input,)).module(), torch.jit.trace(module, input)):
        outputs = other(input)
        actual = torch.autograd.grad(sum(out.sum() for out in outputs), list(other.parameters()))
        torch.testing.assert_close(actual, expected)


def test_the_op_gives_gradients_and_only_of_the_outputs(device: torch.device) -> None:
    inputs = make_inputs(steps=4, device=device)
    hs, last_c, *saved = FORWARD(*inputs)
    assert not any(tensor.requires_grad for tensor in saved)
    actual = torch.autograd.grad(hs.sum() + last_c.sum(), inputs)
    outputs, _, expected_c = lltm_sequence(*inputs)
    assert_equal(actual, torch.autograd.grad(outputs.sum() + expected_c.sum(), inputs))


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_autocast_computes_in_float32_and_keeps_the_dtype(
    function: Callable, reference: Callable, steps: int | None, dtype: torch.dtype, device: torch.device
) -> None:
    inputs = make_inputs(steps=steps, dtype=dtype, device=device)
    expected = outputs_and_gradients(function, [t.detach().float().requires_grad_() for t in inputs])
    with torch.autocast(device.type, torch.bfloat16):
        actual = outputs_and_gradients(function, inputs)
    tolerance = (
        {} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    )  # upstream gradients are rounded
    torch.testing.assert_close(actual, [t.to(dtype) for t in expected], **tolerance)


@BOTH
def test_autocast_leaves_float64(
    function: Callable, reference: Callable, steps: int | None, device: torch.device
) -> None:
    inputs = make_inputs(steps=steps, dtype=torch.float64, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        actual = outputs_and_gradients(function, inputs)
    assert_equal(actual, outputs_and_gradients(function, inputs), rtol=1e-12, atol=1e-12)


# ---- invalid arguments ----

BAD_ARGUMENTS = [
    ({"input": torch.zeros(3)}, r"input has shape \(3,\), expected 2 dimensions"),
    ({"input": torch.zeros(2, 3, 5)}, r"input has shape \(2, 3, 5\), expected 2 dimensions"),
    ({"input": torch.zeros(3, 5).long()}, "input is Long, expected Double, Float, Half or BFloat16"),
    ({"weight": torch.zeros(21, 11)}, r"weight has shape \(21, 11\), expected \(21, 12\)"),
    ({"weight": torch.zeros(28, 12)}, r"weight has shape \(28, 12\), expected \(21, 12\)"),
    ({"weight": torch.zeros(252)}, r"weight has shape \(252,\), expected \(21, 12\)"),
    ({"weight": torch.zeros(21, 12).double()}, "weight is Double, expected Float"),
    ({"bias": torch.zeros(7)}, r"bias has shape \(7,\), expected \(21,\)"),
    ({"bias": torch.zeros(21).half()}, "bias is Half, expected Float"),
    ({"h": torch.zeros(3)}, r"h has shape \(3,\), expected 2 dimensions"),
    ({"h": torch.zeros(4, 7)}, r"h has shape \(4, 7\), expected \(3, 7\)"),
    ({"h": torch.zeros(3, 7).int()}, "h is Int, expected Float"),
    ({"c": torch.zeros(3, 8)}, r"c has shape \(3, 8\), expected \(3, 7\)"),
    ({"c": torch.zeros(1, 7)}, r"c has shape \(1, 7\), expected \(3, 7\)"),
    ({"c": torch.zeros(3, 7).double()}, "c is Double, expected Float"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    good = (t.detach() for t in make_inputs(dtype=torch.float32, device=device))
    arguments = dict(zip(NAMES, good, strict=True)) | {name: t.to(device) for name, t in changes.items()}
    with pytest.raises(RuntimeError, match=f"^lltm: {message}"):
        lltm(**arguments)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 5), r"^lltm_sequence: input has shape \(3, 5\), expected 3 dimensions"),
        ((0, 3, 5), r"^lltm: input has shape \(0, 3, 5\), expected at least one step"),
    ],
)
def test_bad_sequences(shape: tuple[int, ...], message: str, device: torch.device) -> None:
    _, *others = make_inputs(dtype=torch.float32, device=device)
    with pytest.raises(RuntimeError, match=message):
        lltm_sequence(torch.zeros(shape, device=device), *others)


BAD_BACKWARD_ARGUMENTS = [
    ({"cs": torch.zeros(7)}, r"cs has shape \(7,\), expected \(N, S\) or \(T, N, S\)"),
    ({"weight": torch.zeros(21)}, r"weight has shape \(21,\), expected 2 dimensions"),
    ({"weight": torch.zeros(20, 12)}, r"weight has shape \(20, 12\), expected \(21, 12\)"),
    ({"weight": torch.zeros(21, 6)}, r"weight has shape \(21, 6\), expected \(21, 7\)"),
    ({"bias": torch.zeros(20)}, r"bias has shape \(20,\), expected \(21,\)"),
    ({"gates": torch.zeros(3, 20)}, r"gates has shape \(3, 20\), expected \(3, 21\)"),
    ({"xh": torch.zeros(3, 11)}, r"xh has shape \(3, 11\), expected \(3, 12\)"),
    ({"grad_h": torch.zeros(2, 7)}, r"grad_h has shape \(2, 7\), expected \(3, 7\)"),
    ({"grad_c": torch.zeros(1, 3, 7)}, r"grad_c has shape \(1, 3, 7\), expected \(3, 7\)"),
    ({"grad_c": torch.zeros(3, 7).half()}, "grad_c is Half, expected Float"),
    (
        {"gates": torch.zeros(21, 3).t()},
        "cs, gates and xh are expected as lltm_forward made them, contiguous",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD_BACKWARD_ARGUMENTS)
def test_bad_backward_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    shapes = {"grad_h": (3, 7), "grad_c": (3, 7), "weight": (21, 12), "cs": (3, 7), "gates": (3, 21)}
    shapes |= {"xh": (3, 12), "bias": (21,)}
    arguments = {name: torch.zeros(shape) for name, shape in shapes.items()} | changes
    needs = dict.fromkeys(("needs_input", "needs_weight", "needs_bias", "needs_h"), True)
    with pytest.raises(RuntimeError, match=f"^lltm_backward: {message}"):
        BACKWARD(**{name: tensor.to(device) for name, tensor in arguments.items()}, **needs)


# ---- CUDA ----


@pytest.mark.cuda
@BOTH
def test_cuda_equals_cpu(function: Callable, reference: Callable, steps: int | None) -> None:
    inputs = make_inputs(300, 40, 70, steps, torch.float32)
    expected = outputs_and_gradients(function, inputs)
    actual = outputs_and_gradients(function, [t.detach().cuda().requires_grad_() for t in inputs])
    torch.testing.assert_close([t.cpu() for t in actual], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@BOTH
def test_cuda_synchronization_streams_and_graphs(
    function: Callable, reference: Callable, steps: int | None
) -> None:
    inputs = make_inputs(16, 32, 128, steps, torch.float32, "cuda")
    assert_no_synchronization(function, inputs)
    assert_uses_current_stream(function, inputs)
    others = make_inputs(16, 32, 128, steps, torch.float32, "cuda", seed=50)
    assert_graph_capture(function, inputs, others)


@pytest.mark.cuda
@pytest.mark.gpu_memory(32)
def test_cuda_more_than_2_to_31_elements() -> None:
    rows, state = 2**22 + 5, 180
    assert 3 * rows * state > 2**31
    x = torch.zeros(rows, 1, dtype=torch.float16, device="cuda")
    h = torch.zeros(rows, state, dtype=torch.float16, device="cuda")
    c = torch.ones_like(h).requires_grad_()
    weight = torch.zeros(3 * state, state + 1, dtype=torch.float16, device="cuda")
    bias = torch.zeros(3 * state, dtype=torch.float16, device="cuda", requires_grad=True)
    new_h, new_c = lltm(x, weight, bias, h, c)
    assert (new_c == 1).all()
    assert (new_h == torch.tensor(0.5).double().mul(torch.tensor(1.0).double().tanh()).half().item()).all()
    (grad_c,) = torch.autograd.grad(new_c, c, torch.ones_like(new_c))
    assert (grad_c == 1).all()


@pytest.mark.cuda
def test_cuda_small_enough_for_the_sanitizer() -> None:
    for dtype in DTYPES:
        for steps in (None, 2):
            for sizes in [(3, 5, 7), (5, 3, 300), (130, 20, 200), (330, 20, 200)]:
                function = lltm if steps is None else lltm_sequence
                outputs_and_gradients(function, make_inputs(*sizes, steps, dtype, "cuda"))
