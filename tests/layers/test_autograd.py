"""layers/_autograd.py: eager calls that bypass torch's wrapper, and the cases that must not bypass it."""

import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from detector.layers import depthwise_conv2d, lltm, quick_gelu, trilinear_interpolate

OP = torch.ops.detector.quick_gelu_forward.default
WEIGHT_BIAS_H_C = torch.ones(6, 5), torch.ones(6), torch.ones(5, 2), torch.ones(5, 2)  # arguments of lltm


def gradient(function: Callable[[Tensor], Tensor], x: Tensor, create_graph: bool = False) -> Tensor:
    return torch.autograd.grad(function(x).square().sum(), x, create_graph=create_graph)[0]


@pytest.fixture
def x() -> Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()


def test_gradients_equal_those_of_the_registered_op(x: Tensor) -> None:
    assert torch.equal(gradient(quick_gelu, x), gradient(OP, x))
    second = [torch.autograd.grad(gradient(f, x, create_graph=True).sum(), x)[0] for f in (quick_gelu, OP)]
    assert torch.equal(*second)


def test_eager_mode_bypasses_torchs_wrapper(x: Tensor) -> None:
    assert quick_gelu(x).grad_fn.name() == "detector_quick_gelu_forwardBackward"
    assert OP(x).grad_fn.name() != quick_gelu(x).grad_fn.name()


@pytest.mark.parametrize("leaf", [True, False])
def test_only_the_gradients_that_are_asked_for_are_computed(leaf: bool) -> None:
    leaves = [torch.rand(2, 3, 40, 40), torch.rand(3, 1, 3, 3), torch.rand(3)]
    inputs = [t.requires_grad_() if leaf else t.requires_grad_() * 1 for t in leaves]
    output = depthwise_conv2d(*inputs)
    expected = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    ops = ["detector::depthwise_conv2d_grad_input", "detector::depthwise_conv2d_grad_weight"]
    for wanted, needed_op in zip(inputs[:2], ops, strict=True):
        with torch.profiler.profile() as profile:
            (gradient,) = torch.autograd.grad(output.sum(), [wanted], retain_graph=True)
        assert {event.key for event in profile.key_averages()} & set(ops) == {needed_op}
        assert torch.equal(gradient, expected[[wanted is t for t in inputs].index(True)])
    output.sum().backward()
    if leaf:
        assert all(torch.equal(t.grad, e) for t, e in zip(inputs, expected, strict=True))


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list:
    """What each question for the fate of a node was answered with: whether it is wanted, or an error."""
    ask, answers = torch._C._will_engine_execute_node, []

    def ask_and_record(node) -> bool:
        try:
            answers.append(ask(node))
        except RuntimeError as error:
            answers.append(error)
            raise
        return answers[-1]

    monkeypatch.setattr(torch._C, "_will_engine_execute_node", ask_and_record)
    return answers


def test_small_ops_do_not_ask_for_wanted_gradients(questions: list) -> None:
    """They compute all, in less time, and torch drops what nobody wanted."""
    weight, bias = torch.rand(3, 1, 3, 3, requires_grad=True), torch.rand(3, requires_grad=True)
    x = torch.rand(2, 3, 9, 9, requires_grad=True)
    feats, points = torch.rand(4, 8, 3, requires_grad=True), torch.rand(4, 3, requires_grad=True)
    for output, inputs in [
        (depthwise_conv2d(x, weight, bias), [x, weight, bias]),
        (trilinear_interpolate(feats, points), [feats, points]),
    ]:
        expected = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
        for wanted, gradient in zip(inputs, expected, strict=True):
            found = torch.autograd.grad(output.sum(), [wanted], retain_graph=True)
            assert torch.equal(found[0], gradient)
    assert not questions


def test_large_ops_ask_for_wanted_gradients(questions: list) -> None:
    """By an error torch tells that torch.autograd.grad has asked for a leaf; backward() has none."""
    x, weight = torch.rand(2, 3, 40, 40, requires_grad=True), torch.rand(3, 1, 3, 3, requires_grad=True)
    bias = torch.rand(3, requires_grad=True)
    twice = depthwise_conv2d(depthwise_conv2d(x, weight, bias), weight, bias)
    for inputs, errors in (([x], 1), ([x, weight, bias], 5)):
        questions.clear()
        torch.autograd.grad(twice.sum(), inputs, retain_graph=True)
        assert len([answer for answer in questions if isinstance(answer, RuntimeError)]) == errors
    questions.clear()
    twice.sum().backward()
    assert all(answer is True for answer in questions)


def test_threads_may_ask_for_different_gradients_of_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one thread computes the gradient of the weight alone, another one asks for both."""
    inputs = torch.rand(2, 3, 40, 40, requires_grad=True), torch.rand(3, 1, 3, 3, requires_grad=True)
    output = depthwise_conv2d(*inputs)
    expected = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    module = sys.modules[depthwise_conv2d.__module__]
    compute, found = module._grad_weight, []

    def compute_while_another_thread_runs(*arguments):
        monkeypatch.setattr(module, "_grad_weight", compute)
        ask = threading.Thread(
            target=lambda: found.append(torch.autograd.grad(output.sum(), inputs, retain_graph=True))
        )
        ask.start()
        ask.join()
        return compute(*arguments)

    monkeypatch.setattr(module, "_grad_weight", compute_while_another_thread_runs)
    assert torch.equal(torch.autograd.grad(output.sum(), inputs[1], retain_graph=True)[0], expected[1])
    found.append(torch.autograd.grad(output.sum(), inputs))
    assert len(found) == 2
    assert all(torch.equal(f, e) for each in found for f, e in zip(each, expected, strict=True))


def test_no_autograd_graph_without_gradient(x: Tensor) -> None:
    assert quick_gelu(x.detach()).grad_fn is None
    with torch.no_grad():
        assert quick_gelu(x).grad_fn is None
    with torch.inference_mode():
        assert quick_gelu(x).is_inference()


def test_trace_contains_the_op(x: Tensor) -> None:
    traced = torch.jit.trace(quick_gelu, x)
    assert "detector::quick_gelu_forward" in str(traced.graph)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_forward_mode_raises_without_a_formula(requires_grad: bool, x: Tensor) -> None:
    def function(x: Tensor) -> Tensor:
        return lltm(x, *WEIGHT_BIAS_H_C)[0]

    x = x.detach().requires_grad_(requires_grad)
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(function, (x,), (torch.ones_like(x),))
    with forward_ad.dual_level():
        function(x)  # without a tangent
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            function(forward_ad.make_dual(x, torch.ones_like(x)))


def test_vmap_with_gradient(x: Tensor) -> None:
    torch.testing.assert_close(torch.vmap(quick_gelu)(x), quick_gelu(x))


def test_autocast_is_applied_before_tensors_are_saved() -> None:
    feats, points = torch.randn(4, 8, 3).bfloat16().requires_grad_(), torch.rand(4, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu"):
        output = trilinear_interpolate(feats, points)
    output.sum().backward()
    exact = trilinear_interpolate(feats.detach().float(), points.float())
    torch.testing.assert_close(output, exact.bfloat16(), atol=0, rtol=0)
    assert feats.grad.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: lltm(x.int(), *WEIGHT_BIAS_H_C), "lltm: input is Int"),
        (lambda x: depthwise_conv2d(x[None, None].int(), torch.ones(1, 1, 3, 3)), "depthwise_conv2d: input"),
    ],
)
def test_autocast_casts_no_integers(call: Callable, message: str, x: Tensor) -> None:
    with torch.autocast("cpu"), pytest.raises(RuntimeError, match=message):
        call(x)
