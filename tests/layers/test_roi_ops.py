"""roi_pool and roi_align: comparison with their references."""

import re

import op_contract
import pytest
import torch
import torchvision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from roi_cases import OPS, Op, features, make_boxes
from torch import Tensor

import detector.layers
from detector import _C

cuda = torch.device("cuda")


@pytest.fixture(params=OPS, ids=["pool", "align", "align adaptive"])
def op(request: pytest.FixtureRequest) -> Op:
    return request.param


def with_boxes(function, boxes: Tensor, output_size=(2, 3)):
    """A function of the features alone."""
    return lambda input: function(input, boxes, output_size)


# ---- values ----


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", op_contract.DTYPES)
def test_matches_reference(op: Op, dtype: torch.dtype, channels_last: bool, device: torch.device) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    boxes = make_boxes(60, dtype=wide, device=device)
    input = features(2, 5, 9, 13, dtype=dtype, channels_last=channels_last, device=device)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    ours, reference = with_boxes(op.function, boxes), with_boxes(op.reference, boxes)
    op_contract.assert_matches_reference(ours, reference, [input], **tolerance)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 70), st.integers(1, 12), st.integers(1, 40)),
    output_size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    number=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_matches_reference_on_random_shapes(
    op: Op, shape, output_size, number: int, seed: int, device
) -> None:
    boxes = make_boxes(number, shape[0], shape[2:], seed=seed, device=device)
    input = features(*shape, seed=seed, device=device)
    ours, reference = (
        with_boxes(op.function, boxes, output_size),
        with_boxes(op.reference, boxes, output_size),
    )
    op_contract.assert_matches_reference(ours, reference, [input])


def test_box_formats(op: Op, device: torch.device) -> None:
    input = features(2, 3, 9, 13, device=device)
    boxes = make_boxes(20, device=device)
    boxes = boxes[boxes[:, 0].argsort(stable=True)]
    listed = [boxes[boxes[:, 0] == n, 1:] for n in range(2)]
    expected = op.function(input, boxes, (2, 2))
    for form in (listed, tuple(listed)):
        assert torch.equal(op.function(input, form, 2), expected)
        assert torch.equal(op.function(input, form, [2, 2]), expected)
    assert op.function(input, [], 2).shape == (0, 3, 2, 2)
    wide = op.function(input.float(), boxes.float(), 2)
    assert torch.equal(op.function(input.float(), boxes.float().double(), 2), wide)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_features_with_float32_boxes(op: Op, dtype: torch.dtype, device: torch.device) -> None:
    """Half precision cannot represent 1001.3, so this fails if boxes are converted to it."""
    input = features(1, 3, 9, 13, dtype=dtype, device=device)
    boxes = torch.tensor([[1000.7, 1001.3, 1010.1, 1009.6]], device=device)
    shifted = (boxes - 1000).to(device)
    function = op.function.func
    options = {k: v for k, v in op.function.keywords.items() if k != "spatial_scale"}
    expected = function(input.float(), [shifted], 2, **options)
    far = torch.zeros(1, 3, 1009, 1013, dtype=dtype, device=device)
    far[:, :, 1000:, 1000:] = input.detach()
    torch.testing.assert_close(function(far, [boxes], 2, **options), expected.to(dtype), rtol=2e-2, atol=2e-2)


def test_module_equals_function(op: Op) -> None:
    input, boxes = features(2, 3, 9, 13), make_boxes(20)
    assert torch.equal(op.module(input, boxes), op.function(input, boxes, (2, 3)))


def test_repr_equals_torchvision() -> None:
    layers, ops = detector.layers, torchvision.ops
    assert repr(layers.RoIPool(7, 0.5)) == repr(ops.RoIPool(7, 0.5))
    assert repr(layers.RoIAlign((7, 3), 0.5, 2, True)) == repr(ops.RoIAlign((7, 3), 0.5, 2, True))
    assert layers.ROIPool is layers.RoIPool
    assert repr(layers.ROIAlign(7, 0.5, 2)) == repr(ops.RoIAlign(7, 0.5, 2, True)).replace("RoI", "ROI")


@pytest.mark.parametrize("shape", [(2, 3, 9, 13), (2, 0, 9, 13), (0, 3, 9, 13)])
def test_empty(op: Op, shape: tuple[int, ...], device: torch.device) -> None:
    input = features(*shape, device=device)
    boxes = make_boxes(6 if shape[1] == 0 else 0, device=device)
    pooled = op.function(input, boxes, (2, 3))
    assert pooled.shape == (len(boxes), shape[1], 2, 3)
    (grad,) = torch.autograd.grad(pooled.sum(), input)
    assert grad.shape == shape
    assert not grad.any()


def test_boxes_have_no_gradient(op: Op, device: torch.device) -> None:
    boxes = make_boxes(6, device=device).requires_grad_()
    input = features(2, 3, 9, 13, device=device)
    op.function(input, boxes, 2).sum().backward()
    assert boxes.grad is None
    assert not op.function(input.detach(), boxes.detach(), 2).requires_grad


# ---- gradients ----


def test_many_bins_and_channels(op: Op, device: torch.device) -> None:
    boxes = make_boxes(3, device=device)
    for channels_last in (False, True):
        input = features(2, 70, 9, 13, channels_last=channels_last, device=device)
        ours, reference = with_boxes(op.function, boxes, (33, 40)), with_boxes(op.reference, boxes, (33, 40))
        op_contract.assert_matches_reference(ours, reference, [input])


def test_workspace_is_independent_of_output_size(op: Op, device: torch.device) -> None:
    input = features(2, 1, 9, 13, dtype=torch.float32, device=device).detach()
    boxes = make_boxes(1, dtype=torch.float32, device=device)
    size = 1500
    written = 8 * size**2  # values and, for roi_pool, argmax
    with op_contract.peak_memory(most=written + 60e6):
        op.function(input, boxes, size)


def test_boxes_far_outside(op: Op, device: torch.device) -> None:
    input = features(2, 3, 9, 13, dtype=torch.float32, device=device)
    far = [[-1e30, -1e30, -1e29, -1e29], [1e29, 1e29, 1e30, 1e30], [3e38, 3e38, -3e38, -3e38]]
    boxes = torch.tensor([[1, *corners] for corners in far], device=device)
    pooled, grad = op_contract.outputs_and_gradients(with_boxes(op.function, boxes), [input])
    assert not pooled.any()
    assert not grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_spatial_scale_overflow(op: Op, dtype: torch.dtype, device: torch.device) -> None:
    input, boxes = features(2, 3, 9, 13, dtype=dtype, device=device), make_boxes(6, dtype=torch.float32)
    with pytest.raises(
        RuntimeError, match=r"spatial_scale is 1e\+300, expected a positive number up to 3\.4"
    ):
        op.function(input, boxes.to(device), 2, spatial_scale=1e300)


def test_features_are_not_saved_for_backward(op: Op, device: torch.device) -> None:
    input = features(2, 3, 9, 13, device=device)
    boxes = make_boxes(6, device=device)
    (expected,) = torch.autograd.grad(op.function(input, boxes, 2).sum(), input)
    changed = input * 1
    pooled = op.function(changed, boxes, 2)
    changed.mul_(2)  # the backward pass does not need the features
    (grad,) = torch.autograd.grad(pooled.sum(), input)
    assert torch.equal(grad, expected)


# ---- layouts ----


def test_memory_format(op: Op, device: torch.device) -> None:
    """roi_align keeps channels_last; roi_pool returns contiguous tensors."""
    input = features(2, 5, 9, 13, channels_last=True, device=device)
    expected = torch.channels_last if op.name == "roi_align" else torch.contiguous_format
    pooled = op.function(input, make_boxes(6, device=device), 2)
    assert pooled.is_contiguous(memory_format=expected)
    (grad,) = torch.autograd.grad(pooled.sum(), input)
    assert grad.is_contiguous(memory_format=expected)
    assert op.function(input.contiguous(), make_boxes(6, device=device), 2).is_contiguous()


# ---- invalid arguments ----


BAD_VALUES = [
    (2, 0, 2.0, r"boxes\[2, 0\] is 2, expected an image from 0 to 1"),
    (2, 0, -1.0, r"boxes\[2, 0\] is -1, expected an image from 0 to 1"),
    (1, 0, torch.nan, r"boxes\[1, 0\] is nan, expected an image from 0 to 1"),
    (3, 1, torch.nan, r"boxes\[3, 1\] is nan, expected a finite number"),
    (0, 4, torch.inf, r"boxes\[0, 4\] is inf, expected a finite number"),
]


@pytest.mark.parametrize(("row", "column", "value", "message"), BAD_VALUES)
def test_bad_values(op: Op, row: int, column: int, value: float, message: str, device, monkeypatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")  # a GPU checks values on request only
    boxes = make_boxes(6, device=device)
    boxes[row, column] = value
    with pytest.raises(RuntimeError, match=f"^{op.name}: {message}"):
        op.function(features(2, 3, 9, 13, device=device), boxes, 2)
    if device.type == "cpu":
        monkeypatch.delenv("DETECTOR_VALIDATE")
        with pytest.raises(RuntimeError, match=f"^{op.name}: {message}"):
            op.function(features(2, 3, 9, 13), boxes, 2)


BAD_ARGUMENTS = [
    ({"input": torch.zeros(3, 9, 13)}, r"input has shape \(3, 9, 13\), expected 4 dimensions"),
    ({"input": torch.zeros(2, 3, 0, 13)}, r"input is 0 x 13, expected from 1 to 2\^31 - 1 cells an image"),
    ({"input": torch.zeros(2, 3, 9, 13).int()}, "input is Int, expected Double, Float, Half or BFloat16"),
    ({"boxes": torch.zeros(6, 5).int()}, "boxes is Int, expected Double"),
    ({"output_size": (0, 3)}, r"output_size is \(0, 3\), expected positive numbers"),
    ({"output_size": (2, -1)}, r"output_size is \(2, -1\), expected positive numbers"),
    ({"output_size": 10**5}, r"output_size is \(100000, 100000\), expected .* up to 2\^31 - 1 cells a box"),
    ({"spatial_scale": 0.0}, "spatial_scale is 0, expected a positive number"),
    ({"spatial_scale": -0.5}, "spatial_scale is -0.5, expected a positive number"),
    ({"spatial_scale": torch.nan}, "spatial_scale is nan, expected a positive number"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(op: Op, changes: dict, message: str, device: torch.device) -> None:
    arguments = {"input": features(2, 3, 9, 13), "boxes": make_boxes(6), "output_size": (2, 3), **changes}
    moved = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in arguments.items()}
    with pytest.raises(RuntimeError, match=f"^{op.name}: {message}"):
        op.function(**moved)


def test_bad_python_arguments(op: Op) -> None:
    input = features(2, 3, 9, 13)
    with pytest.raises(ValueError, match=r"boxes\[1\] has shape \(6, 5\), expected \(L, 4\)"):
        op.function(input, [torch.zeros(2, 4), torch.zeros(6, 5)], 2)
    for shape in ((5,), (6, 4)):
        with pytest.raises(
            RuntimeError, match=rf"boxes has shape {re.escape(str(shape))}, expected \(R, 5\)"
        ):
            op.function(input, torch.zeros(shape), 2)
    with pytest.raises(TypeError, match="boxes is int, expected a Tensor"):
        op.function(input, 3, 2)
    with pytest.raises(TypeError, match=r"boxes\[1\] is list, expected a Tensor"):
        op.function(input, [torch.zeros(2, 4), [0, 0, 1, 1]], 2)
    with pytest.raises(RuntimeError, match=r"boxes\[1\] is on meta, but boxes\[0\] is on cpu"):
        op.function(input, [torch.zeros(2, 4), torch.zeros(2, 4, device="meta")], 2)
    with pytest.raises(
        ValueError, match=r"output_size is \(1, 2, 3\), expected an integer or a pair of them"
    ):
        op.function(input, make_boxes(6), (1, 2, 3))


def test_sampling_ratio_above_int32() -> None:
    with pytest.raises(RuntimeError, match=r"^roi_align: sampling_ratio is 2147483648, expected less than"):
        detector.layers.roi_align(features(2, 3, 9, 13), make_boxes(6), 2, sampling_ratio=2**31)


def test_bad_backward_arguments(device: torch.device) -> None:
    grad = torch.zeros(6, 2, 3, 4, device=device)
    argmax, boxes = grad.int(), torch.zeros(6, 5, device=device)
    for arguments, message in [
        ((grad[0], argmax, boxes, 2, 9, 13), r"grad has shape \(2, 3, 4\), expected 4 dimensions"),
        ((grad.int(), argmax, boxes, 2, 9, 13), "grad is Int, expected Double"),
        ((grad, argmax, boxes[1:], 2, 9, 13), r"boxes has shape \(5, 5\), expected \(6, 5\)"),
        ((grad, argmax, boxes.double(), 2, 9, 13), "boxes is Double, expected Float"),
        ((grad, argmax, boxes, 2, 0, 13), "input is 0 x 13, expected"),
        ((grad, argmax[:, :1], boxes, 2, 9, 13), r"argmax has shape \(6, 1, 3, 4\), expected \(6, 2, 3, 4\)"),
        ((grad, argmax[0], boxes, 2, 9, 13), r"argmax has shape \(2, 3, 4\), expected \(6, 2, 3, 4\)"),
        ((grad, argmax.long(), boxes, 2, 9, 13), "argmax is Long, expected Int"),
    ]:
        with pytest.raises(RuntimeError, match=f"^roi_pool_backward: {message}"):
            _C.roi_pool_backward(*arguments, 0.5)
        if message.startswith("argmax"):
            continue
        with pytest.raises(RuntimeError, match=f"^roi_align_backward: {message}"):
            _C.roi_align_backward(arguments[0], *arguments[2:], 0.5, 2, True, True)


# ---- CUDA ----


@pytest.mark.cuda
@pytest.mark.parametrize("value", [torch.nan, torch.inf, 2.0, -1.0])
def test_cuda_invalid_boxes_give_zero(op: Op, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    boxes = make_boxes(20, device=cuda)
    bad = boxes.clone()
    bad[[3, 4, 11], 0] = value
    keep = (bad == boxes).all(dim=1)
    for channels_last in (False, True):
        input = features(2, 5, 9, 13, channels_last=channels_last, device=cuda)
        pooled = op.function(input, bad, 2)
        assert not pooled[~keep].any()
        part = op.function(input, boxes[keep], 2)
        assert torch.equal(pooled[keep], part)
        grads = [torch.autograd.grad(p.sum(), input)[0] for p in (pooled, part)]
        torch.testing.assert_close(*grads)


@pytest.mark.cuda
def test_cuda_synchronization_streams_and_graphs(op: Op) -> None:
    inputs = [features(2, 5, 9, 13, device=cuda, seed=i) for i in range(2)]
    boxes = [make_boxes(60, device=cuda, seed=i) for i in range(2)]
    function = lambda input, boxes: op.function(input, boxes, (2, 3))  # noqa: E731
    op_contract.assert_no_synchronization(function, [inputs[0], boxes[0]])
    op_contract.assert_uses_current_stream(function, [inputs[0], boxes[0]])
    op_contract.assert_graph_capture(function, [inputs[0], boxes[0]], [inputs[1], boxes[1]])


@pytest.mark.cuda
@pytest.mark.gpu_memory(32)
def test_cuda_more_than_2_to_31_elements(op: Op) -> None:
    """Check the last image, channel and box of tensors with more than 2^31 elements."""
    input = torch.zeros(3, 90000, 90, 90, dtype=torch.float16, device=cuda)
    input[2, -1] = features(1, 1, 90, 90, dtype=torch.float16, device=cuda).detach()[0, 0]
    boxes = make_boxes(40, 1, (90, 90), dtype=torch.float32, device=cuda)
    expected = op.function(input[2:, -1:].contiguous(), boxes, 7)
    boxes[:, 0] = 2
    assert torch.equal(op.function(input, boxes, 7)[:, -1:], expected)
    few = input[2:, -8:]
    many = boxes.repeat(140000, 1)  # 2.2 * 10^9 pooled values
    many[:, 0] = 0
    assert torch.equal(op.function(few, many, 7)[-40:, -1:], expected)


@pytest.mark.cuda
def test_cuda_small_enough_for_the_sanitizer(op: Op) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        for shape in ((2, 9, 9, 13), (2, 8, 9, 13), (2, 3, 30, 31), (1, 3, 241, 243)):
            boxes = make_boxes(14, 2, shape[2:], dtype=wide, device=cuda)  # some with an invalid image index
            for channels_last in (False, True):
                input = features(*shape, dtype=dtype, channels_last=channels_last, device=cuda)
                op_contract.outputs_and_gradients(with_boxes(op.function, boxes), [input])
