"""trilinear_interpolate: comparison with its reference."""

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
from op_samples import make_trilinear as make_inputs
from torch import Tensor

from detector.layers import TrilinearInterpolate, reference, trilinear_interpolate

FORWARD = torch.ops.detector.trilinear_interpolate_forward.default
BACKWARD = torch.ops.detector.trilinear_interpolate_backward.default


# ---- values and gradients ----


def test_corners_are_numbered_4x_2y_z(device: torch.device) -> None:
    corners = [[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]
    points = torch.tensor(corners, device=device)
    feats = torch.arange(8.0, device=device)[None, :, None].expand(8, 8, 1)
    assert trilinear_interpolate(feats, points)[:, 0].tolist() == list(range(8))


def test_by_hand(device: torch.device) -> None:
    feats = torch.arange(8.0, device=device)[None, :, None].requires_grad_()  # feature = 4x + 2y + z
    points = torch.tensor([[0.5, -0.5, 0.0]], device=device, requires_grad=True)
    output = trilinear_interpolate(feats, points)
    assert output.item() == 4 * 0.75 + 2 * 0.25 + 0.5
    output.backward(torch.tensor([[3.0]], device=device))
    assert points.grad.tolist() == [[3 * 4 / 2, 3 * 2 / 2, 3 * 1 / 2]]
    expected = [3 * x * y * z for x in (0.25, 0.75) for y in (0.75, 0.25) for z in (0.5, 0.5)]
    assert feats.grad.flatten().tolist() == expected


def test_extrapolates_outside_the_cell(device: torch.device) -> None:
    feats = torch.arange(8.0, device=device)[None, :, None]
    points = torch.tensor([[3.0, -3.0, 1.0]], device=device)
    assert trilinear_interpolate(feats, points).item() == 4 * 2 + 2 * -1 + 1


@pytest.mark.parametrize("num_channels", [1, 2, 3, 4, 6, 7, 8, 16, 24, 31, 100, 256, 257, 1100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_reference(dtype: torch.dtype, num_channels: int, device: torch.device) -> None:
    # The gradient of points is a sum over all channels, whose rounding error grows with their number.
    tolerance = {"rtol": 1e-5, "atol": 1e-4} if dtype == torch.float32 else {}
    feats, points = make_inputs(300, num_channels, dtype, device)
    if dtype in (torch.float16, torch.bfloat16):
        points = points.detach().float().requires_grad_()
        tolerance = {"rtol": 1e-2, "atol": 1e-2}
    assert_matches_reference(
        trilinear_interpolate, reference.trilinear_interpolate, [feats, points], **tolerance
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_points(dtype: torch.dtype, device: torch.device) -> None:
    feats, points = make_inputs(dtype=dtype, device=device)
    expected = outputs_and_gradients(trilinear_interpolate, [feats, points.detach().float().requires_grad_()])
    actual = outputs_and_gradients(trilinear_interpolate, [feats, points])
    assert_equal(actual, [*expected[:2], expected[2].to(dtype)])
    with torch.no_grad():  # the op reads half precision points directly
        assert_equal([trilinear_interpolate(feats, points)], expected[:1])
    torch.library.opcheck(FORWARD, (feats.detach(), points.detach()))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(num_points=st.integers(0, 70), num_channels=st.integers(0, 70), seed=st.integers(0, 99))
def test_matches_reference_on_random_shapes(
    num_points: int, num_channels: int, seed: int, device: torch.device
) -> None:
    inputs = make_inputs(num_points, num_channels, device=device, seed=seed)
    assert_matches_reference(trilinear_interpolate, reference.trilinear_interpolate, inputs)


@pytest.mark.parametrize(("num_points", "num_channels"), [(0, 5), (4, 0), (0, 0)])
def test_empty(num_points: int, num_channels: int, device: torch.device) -> None:
    inputs = make_inputs(num_points, num_channels, device=device)
    output, grad_feats, grad_points = outputs_and_gradients(trilinear_interpolate, inputs)
    assert output.shape == (num_points, num_channels)
    assert grad_feats.shape == (num_points, 8, num_channels)
    assert torch.equal(grad_points, torch.zeros_like(inputs[1]))


@pytest.mark.parametrize("needed", ["feats", "points", "neither"])
def test_only_needed_gradients_are_computed(needed: str, device: torch.device) -> None:
    feats, points = make_inputs(device=device)
    names = ("output", "feats", "points")
    expected = dict(zip(names, outputs_and_gradients(trilinear_interpolate, (feats, points)), strict=True))
    feats.requires_grad_(needed == "feats"), points.requires_grad_(needed == "points")
    output, *gradients = outputs_and_gradients(trilinear_interpolate, (feats, points))
    assert torch.equal(output, expected["output"])
    assert len(gradients) == (needed != "neither")
    if gradients:
        assert torch.equal(gradients[0], expected[needed])


def test_feats_are_saved_only_for_the_gradient_of_points(device: torch.device) -> None:
    feats, points = make_inputs(device=device)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape) or t, lambda t: t):
        trilinear_interpolate(feats, points.detach())
        assert saved == [points.shape]
        saved.clear()
        trilinear_interpolate(feats, points)
        assert saved == [points.shape, feats.shape]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_nan_and_inf_stay_in_their_point(value: float, device: torch.device) -> None:
    feats, points = make_inputs(device=device)
    expected = outputs_and_gradients(trilinear_interpolate, (feats, points))
    for broken in ([feats.detach().clone(), points], [feats, points.detach().clone()]):
        (broken[0] if not broken[0].requires_grad else broken[1])[3] = value
        actual = outputs_and_gradients(trilinear_interpolate, [t.requires_grad_() for t in broken])
        assert not actual[0][3].isfinite().any()
        keep = torch.arange(len(points), device=device) != 3
        assert_equal([t[keep] for t in actual], [t[keep] for t in expected])


@pytest.mark.parametrize("constant", [0, 1])
def test_second_derivative_with_one_constant(constant: int, device: torch.device) -> None:
    inputs = make_inputs(4, 5, device=device)
    inputs[constant].requires_grad_(False)
    assert torch.autograd.gradgradcheck(trilinear_interpolate, inputs, nondet_tol=0.0)


def test_module_equals_function() -> None:
    inputs = make_inputs()
    assert torch.equal(TrilinearInterpolate()(*inputs), trilinear_interpolate(*inputs))
    assert repr(TrilinearInterpolate()) == "TrilinearInterpolate()"


# ---- layouts and reproducibility ----


def test_unaligned_and_expanded(device: torch.device) -> None:
    feats, points = make_inputs(9, 20, torch.float32, device)
    for view in (feats[..., 1:17], feats[..., 4:], feats[:, :, :1], feats[:1].expand(9, -1, -1)):
        expected = trilinear_interpolate(view.contiguous(), points)
        assert_equal([trilinear_interpolate(view, points)], [expected])


# ---- torch.library, compile, export, autocast ----


def test_autocast_does_not_round_second_derivatives(device: torch.device) -> None:
    """A gradient penalty whose backward pass runs under autocast."""

    def second(enabled: bool) -> list[Tensor]:
        inputs = [tensor.detach().float().requires_grad_() for tensor in make_inputs(device=device)]
        with torch.autocast(device.type, torch.bfloat16, enabled=enabled):
            loss = trilinear_interpolate(*inputs).pow(2).sum()
            first = torch.autograd.grad(loss, inputs, create_graph=True)
            return list(torch.autograd.grad(sum(grad.pow(2).sum() for grad in first), inputs))

    for found, expected in zip(second(True), second(False), strict=True):
        assert torch.equal(found, expected)


# ---- invalid arguments ----

BAD_ARGUMENTS = [
    ({"feats": torch.zeros(4, 8)}, r"feats has shape \(4, 8\), expected \(N, 8, F\)"),
    ({"feats": torch.zeros(4, 7, 5)}, r"feats has shape \(4, 7, 5\), expected \(N, 8, F\)"),
    ({"feats": torch.zeros(8)}, r"feats has shape \(8,\), expected \(N, 8, F\)"),
    ({"points": torch.zeros(4, 2)}, r"points has shape \(4, 2\), expected \(4, 3\)"),
    ({"points": torch.zeros(5, 3)}, r"points has shape \(5, 3\), expected \(4, 3\)"),
    ({"points": torch.zeros(12)}, r"points has shape \(12,\), expected \(4, 3\)"),
    ({"feats": torch.zeros(4, 8, 5).int()}, "feats is Int, expected Double, Float, Half or BFloat16"),
    ({"points": torch.zeros(4, 3).long()}, "points is Long, expected Float"),
    ({"points": torch.zeros(4, 3).double()}, "points is Double, expected Float"),
    ({"feats": torch.zeros(4, 8, 5).double()}, "points is Float, expected Double"),
    ({"feats": torch.zeros(4, 8, 5).half(), "points": torch.zeros(4, 3).bfloat16()}, "points is BFloat16"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    arguments = {"feats": torch.zeros(4, 8, 5), "points": torch.zeros(4, 3)} | changes
    with pytest.raises(RuntimeError, match=f"^trilinear_interpolate: {message}"):
        trilinear_interpolate(**{name: tensor.to(device) for name, tensor in arguments.items()})


BAD_BACKWARD_ARGUMENTS = [
    ({"grad": torch.zeros(4)}, r"grad has shape \(4,\), expected 2 dimensions"),
    ({"points": torch.zeros(5, 3)}, r"points has shape \(5, 3\), expected \(4, 3\)"),
    ({"grad": torch.zeros(4, 5).int()}, "grad is Int, expected Double, Float, Half or BFloat16"),
    ({"points": torch.zeros(4, 3).double()}, "points is Double, expected Float"),
    ({"feats": torch.zeros(4, 8, 6)}, r"feats has shape \(4, 8, 6\), expected \(4, 8, 5\)"),
    ({"feats": torch.zeros(4, 8, 5).double()}, "feats is Double, expected Float"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_BACKWARD_ARGUMENTS)
def test_bad_backward_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    tensors = {"grad": torch.zeros(4, 5), "points": torch.zeros(4, 3), "feats": torch.zeros(4, 8, 5)}
    arguments = {name: tensor.to(device) for name, tensor in (tensors | changes).items()}
    with pytest.raises(RuntimeError, match=f"^trilinear_interpolate_backward: {message}"):
        BACKWARD(**arguments, needs_feats=True)


# ---- CUDA ----


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_equals_cpu(dtype: torch.dtype) -> None:
    feats, points = make_inputs(3000, 44, dtype)
    expected = outputs_and_gradients(trilinear_interpolate, [feats, points])
    on_gpu = [t.detach().cuda().requires_grad_() for t in (feats, points)]
    actual = [t.cpu() for t in outputs_and_gradients(trilinear_interpolate, on_gpu)]
    torch.testing.assert_close(actual[:2], expected[:2])
    torch.testing.assert_close(actual[2], expected[2], rtol=1e-2 if dtype.itemsize == 2 else 1e-5, atol=1e-4)


@pytest.mark.cuda
def test_cuda_synchronization_streams_and_graphs() -> None:
    inputs = make_inputs(500, 64, torch.float32, "cuda")
    assert_no_synchronization(trilinear_interpolate, inputs)
    assert_uses_current_stream(trilinear_interpolate, inputs)
    others = make_inputs(500, 64, torch.float32, "cuda", seed=7)
    assert_graph_capture(trilinear_interpolate, inputs, others)


@pytest.mark.cuda
@pytest.mark.parametrize("num_channels", [257, 264])  # scalar and vector access
@pytest.mark.gpu_memory(32)
def test_cuda_more_than_2_to_31_elements(num_channels: int) -> None:
    num_points = 2**31 // (8 * num_channels) + 100
    feats = torch.ones(num_points, 8, num_channels, dtype=torch.float16, device="cuda")
    assert feats.numel() > 2**31
    feats[-3:] = torch.arange(8, device="cuda")[:, None]
    points = torch.zeros(num_points, 3, device="cuda")
    points[-3:] = torch.tensor([[1.0, 1, 1], [-1, -1, -1], [0.5, -0.5, 0]], device="cuda")
    feats.requires_grad_(), points.requires_grad_()
    output = trilinear_interpolate(feats, points)
    assert output[-3:, -1].tolist() == [7, 0, 4]
    assert (output[:-3] == 1).all()
    grad = torch.zeros_like(output)
    grad[-3:, -1] = 1
    grad_feats, grad_points = torch.autograd.grad(output, (feats, points), grad)
    assert grad_points[-3:].tolist() == [[2, 1, 0.5]] * 3
    assert grad_feats[-3, :, -1].tolist() == [0] * 7 + [1]
    assert grad_feats[:-3].count_nonzero() == 0


@pytest.mark.cuda
def test_cuda_small_enough_for_the_sanitizer() -> None:
    for dtype in DTYPES:
        for num_channels in (1, 2, 3, 4, 5, 8, 16, 64, 272):
            feats, points = make_inputs(270, num_channels, dtype, "cuda")
            points = points.detach().to(torch.float64 if dtype == torch.float64 else torch.float32)
            for needs in [(True, True), (True, False), (False, True)]:
                inputs = [feats.requires_grad_(needs[0]), points.requires_grad_(needs[1])]
                outputs_and_gradients(trilinear_interpolate, inputs)
