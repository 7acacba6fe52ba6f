"""quick_gelu: comparison with its reference."""

from functools import partial

import pytest
import torch
from functorch.compile import make_boxed_func
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_contract import (
    DTYPES,
    assert_compiles,
    assert_equal,
    assert_graph_capture,
    assert_matches_reference,
    assert_no_synchronization,
    assert_uses_current_stream,
    outputs_and_gradients,
    random,
)
from torch._dynamo.backends.common import aot_autograd

from detector import _C
from detector.layers import QuickGELU, quick_gelu, reference

# ---- values and gradients ----


def test_by_hand(device: torch.device) -> None:
    output = quick_gelu(torch.tensor([0.0, 1, -1, 2], dtype=torch.float64, device=device))
    expected = torch.tensor([0.0, 0.8457957659, -0.1542042341, 1.9356586231], dtype=torch.float64)
    torch.testing.assert_close(output.cpu(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5, 7), (4099,), (2, 3, 64, 65)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_reference(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    assert_matches_reference(quick_gelu, reference.quick_gelu, [random(*shape, dtype=dtype, device=device)])


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=st.lists(st.integers(0, 9), max_size=5), seed=st.integers(0, 99), scale=st.floats(0.01, 100))
def test_matches_reference_on_random_shapes(
    shape: list[int], seed: int, scale: float, device: torch.device
) -> None:
    input = (random(*shape, device=device, seed=seed).detach() * scale).requires_grad_()
    assert_matches_reference(quick_gelu, reference.quick_gelu, [input])


def test_float32_accuracy(device: torch.device) -> None:
    input = torch.linspace(-50, 50, 1_000_001, device=device)
    exact = reference.quick_gelu(input.double())
    # The rounding error of 1.702 x becomes a relative error of the exponential.
    bound = exact.abs() * (1.702 * input.double().abs() + 6) * 2.0**-23 + 1e-36
    assert bool(((quick_gelu(input) - exact).abs() <= bound).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_extreme_and_nan_input(dtype: torch.dtype, device: torch.device) -> None:
    values = [torch.nan, 0.0, -0.0, 6e4, -6e4, 88.0, -88.0, 60.0, -60.0, 1e-7]
    input = torch.tensor(values, dtype=dtype, device=device).requires_grad_()
    assert_matches_reference(quick_gelu, reference.quick_gelu, [input], equal_nan=True, atol=1e-6, rtol=1e-2)
    assert torch.signbit(quick_gelu(input)[2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_first_and_second_derivatives_are_finite(dtype: torch.dtype, device: torch.device) -> None:
    largest = torch.finfo(dtype).max
    shares = torch.tensor([1, 0.99, 0.6, 0.5875, 0.58, 0.3, 1e-3, 1e-5], dtype=torch.float64, device=device)
    exact = torch.cat([largest * shares, -largest * shares])  # 1.702 x overflows above a share of 0.5875
    input = exact.to(dtype).requires_grad_()
    (grad,) = torch.autograd.grad(quick_gelu(input).sum(), input, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), input)
    if dtype == torch.float64:  # no wider type; the derivative is 0 or 1 at these values
        expected, curve = (input > 0).double(), torch.zeros_like(input)
    else:
        wide = input.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(reference.quick_gelu(wide).sum(), wide, create_graph=True)
        (curve,) = torch.autograd.grad(expected.sum(), wide)
    torch.testing.assert_close(grad.double(), expected, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(second.double(), curve, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinite_input(dtype: torch.dtype, device: torch.device) -> None:
    input = torch.tensor([torch.inf, -torch.inf], dtype=dtype, device=device).requires_grad_()
    output = quick_gelu(input)
    (grad,) = torch.autograd.grad(output.sum(), input)
    assert output[0] == torch.inf
    assert output[1].isnan()
    assert grad.tolist() == [1, 0]


def test_empty(device: torch.device) -> None:
    output, grad = outputs_and_gradients(quick_gelu, [random(3, 0, 2, device=device)])
    assert output.shape == grad.shape == (3, 0, 2)


def test_module_equals_function() -> None:
    input = random(5, 3)
    assert torch.equal(QuickGELU()(input), quick_gelu(input))
    assert repr(QuickGELU()) == "QuickGELU()"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_second_derivative_in_lower_precision(dtype: torch.dtype, device: torch.device) -> None:
    def slope(function, input):
        return torch.autograd.grad(function(input).sum(), input, create_graph=True)[0]

    input = random(50, dtype=dtype, device=device)
    assert_matches_reference(partial(slope, quick_gelu), partial(slope, reference.quick_gelu), [input])


# ---- layouts ----


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)])
def test_dense_layouts_are_kept_without_copies(order: tuple[int, ...], device: torch.device) -> None:
    input = random(3, 5, 4, 6, device=device, requires_grad=False).permute(order).requires_grad_()
    output, grad = outputs_and_gradients(quick_gelu, [input])
    assert output.stride() == grad.stride() == input.stride()
    with torch.profiler.profile() as profile:
        quick_gelu(input.detach())
    assert not {"aten::copy_", "aten::clone"} & {event.name for event in profile.events()}


def test_unaligned_memory(device: torch.device) -> None:
    base = random(4100, dtype=torch.float32, device=device)
    for start in (1, 2, 3):
        assert_matches_reference(quick_gelu, reference.quick_gelu, [base.detach()[start:].requires_grad_()])


# ---- torch.library, compile, export, autocast ----


def test_compile_full_graph(device: torch.device) -> None:
    # In float32 it is the formula. test_contract.py compiles around the op in float64.
    inputs = [[random(*shape, dtype=torch.float32, device=device)] for shape in ((5, 7), (6, 9))]
    assert_compiles(quick_gelu, *inputs, backend="inductor", rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_compiled_is_the_formula_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    """As the kernel, also where the value overflows and at infinity, and no op of ours is in the graph."""
    largest = torch.finfo(dtype).max
    ends = [-torch.inf, -largest, -100, -3, 0, 0.3, 2, 100, largest, torch.inf]
    inputs = [torch.tensor(ends, dtype=dtype, device=device).requires_grad_()]
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _examples: list):
        graphs.append(graph)
        return make_boxed_func(graph)

    compiled = torch.compile(quick_gelu, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    actual, expected = outputs_and_gradients(compiled, inputs), outputs_and_gradients(quick_gelu, inputs)
    tolerance = max(torch.finfo(dtype).eps, 1e-5)
    torch.testing.assert_close(actual, expected, equal_nan=True, rtol=tolerance, atol=1e-6)
    assert len(graphs) == 2
    assert not any("detector" in str(node.target) for graph in graphs for node in graph.graph.nodes)


# ---- invalid arguments ----


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_bad_dtype(dtype: torch.dtype, device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"^quick_gelu: input is \w+, expected Double, Float, Half or BF"):
        quick_gelu(torch.zeros(3, device=device).to(dtype))


def test_bad_backward_arguments(device: torch.device) -> None:
    input = torch.zeros(3, 2, device=device)
    for grad, message in [
        (torch.zeros(3, 1, device=device), r"grad has shape \(3, 1\), expected \(3, 2\)"),
        (torch.zeros(6, device=device), r"grad has shape \(6,\), expected \(3, 2\)"),
        (torch.zeros(3, 2, device=device).half(), "grad is Half, expected Float"),
    ]:
        with pytest.raises(RuntimeError, match=f"^quick_gelu_backward: {message}"):
            _C.quick_gelu_backward(grad, input)


# ---- CUDA ----


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_equals_cpu(dtype: torch.dtype) -> None:
    input = random(3, 1000, dtype=dtype)
    on_cpu = outputs_and_gradients(quick_gelu, [input])
    on_gpu = outputs_and_gradients(quick_gelu, [input.detach().cuda().requires_grad_()])
    for a, e in zip(on_gpu, on_cpu, strict=True):
        torch.testing.assert_close(a.cpu(), e)


@pytest.mark.cuda
def test_cuda_synchronization_streams_and_graphs() -> None:
    input, other = (random(3, 1001, device="cuda", seed=seed) for seed in (0, 1))
    assert_no_synchronization(quick_gelu, [input])
    assert_uses_current_stream(quick_gelu, [input])
    assert_graph_capture(quick_gelu, [input], [other])


@pytest.mark.cuda
@pytest.mark.gpu_memory(32)
def test_cuda_more_than_2_to_31_elements() -> None:
    input = torch.randn(2**31 + 4099, device="cuda", dtype=torch.float16)
    output, grad = quick_gelu(input), _C.quick_gelu_backward(input, input)
    tail = input[-5000:].clone()
    assert_equal([output[-5000:], grad[-5000:]], [quick_gelu(tail), _C.quick_gelu_backward(tail, tail)])
    head = input[:5000].clone()
    assert_equal([output[:5000], grad[:5000]], [quick_gelu(head), _C.quick_gelu_backward(head, head)])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    for size, start in ((5, 0), (4101, 0), (4101, 1)):  # less than a vector, several blocks, unaligned
        input = random(start + size, dtype=dtype, device="cuda").detach()[start:].requires_grad_()
        assert_matches_reference(quick_gelu, reference.quick_gelu, [input])
