"""roi_align_rotated: comparison with its reference and with roi_align."""

from functools import partial

import pytest
import torch
from op_contract import (
    DTYPES,
    assert_equal,
    assert_graph_capture,
    assert_matches_reference,
    assert_no_synchronization,
    assert_uses_current_stream,
    outputs_and_gradients,
    random,
)
from op_samples import make_rotated_rois as make_boxes

from detector.layers import RoIAlignRotated, reference, roi_align, roi_align_rotated


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("output_size", "sampling_ratio"), [((7, 7), 2), ((3, 5), 0), ((1, 1), 3)])
def test_matches_reference(
    output_size: tuple[int, int], sampling_ratio: int, dtype: torch.dtype, device: torch.device
) -> None:
    options = {"output_size": output_size, "spatial_scale": 0.75, "sampling_ratio": sampling_ratio}
    input = random(2, 5, 9, 13, dtype=dtype, device=device)
    boxes = make_boxes(60, size=(12, 17), device=device, dtype=torch.float32)
    if dtype == torch.float64:
        boxes = boxes.double()
    # A sample that is about one cell outside is inside or not by rounding, which matters in short dtypes.
    tolerance = {} if dtype == torch.float64 else {"rtol": 2e-2, "atol": 2e-2}
    assert_matches_reference(
        partial(roi_align_rotated, boxes=boxes, **options),
        partial(reference.roi_align_rotated, boxes=boxes.double(), **options),
        [input],
        **tolerance,
    )


@pytest.mark.parametrize("sampling_ratio", [0, 2])
def test_equals_roi_align_without_rotation(sampling_ratio: int, device: torch.device) -> None:
    input = random(2, 4, 9, 13, device=device)
    boxes = make_boxes(50, device=device)
    boxes[:, 5] = 0
    corners = torch.cat(
        [boxes[:, :1], boxes[:, 1:3] - boxes[:, 3:5] / 2, boxes[:, 1:3] + boxes[:, 3:5] / 2], dim=1
    )
    actual = outputs_and_gradients(
        lambda x: roi_align_rotated(x, boxes, (3, 4), 0.5, sampling_ratio), [input]
    )
    expected = outputs_and_gradients(
        lambda x: roi_align(x, corners, (3, 4), 0.5, sampling_ratio, True), [input]
    )
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_quarter_turn_turns_the_bins(device: torch.device) -> None:
    input = random(1, 3, 8, 8, device=device, requires_grad=False)
    box = torch.tensor([[0, 4.0, 4.0, 4.0, 2.0, 90.0]], dtype=torch.float64, device=device)
    upright = torch.tensor([[0, 4.0, 4.0, 2.0, 4.0, 0.0]], dtype=torch.float64, device=device)
    # The width of the box runs upwards, from the bottom of the upright box to its top.
    turned = roi_align_rotated(input, box, (2, 4), 1.0, 2)
    expected = roi_align_rotated(input, upright, (4, 2), 1.0, 2).flip(2).transpose(2, 3)
    torch.testing.assert_close(turned, expected)


def test_by_hand(device: torch.device) -> None:
    plane = torch.arange(36.0, dtype=torch.float64, device=device).view(1, 1, 6, 6)  # value 6 y + x
    # One bin with one sample, at the center of the box less half a cell, whatever the angle.
    boxes = torch.tensor([[0, 3.0, 2.5, 2.0, 1.0, angle] for angle in (0.0, 30.0, -200.0)], device=device)
    assert roi_align_rotated(plane, boxes, 1, 1.0, 1).flatten().tolist() == pytest.approx([6 * 2 + 2.5] * 3)


@pytest.mark.parametrize(("images", "channels", "number"), [(0, 3, 0), (2, 0, 4), (2, 3, 0)])
def test_empty(images: int, channels: int, number: int, device: torch.device) -> None:
    input = random(images, channels, 5, 6, device=device)
    boxes = make_boxes(number, images, device=device)
    output, gradient = outputs_and_gradients(partial(roi_align_rotated, boxes=boxes, output_size=2), [input])
    assert output.shape == (number, channels, 2, 2)
    assert gradient.shape == input.shape
    assert not gradient.any()


def test_huge_boxes_take_no_longer(device: torch.device) -> None:
    input = random(1, 2, 6, 7, dtype=torch.float32, device=device)
    boxes = torch.tensor([[0, 3, 3, 1e9, 1e9, 30.0], [0, 1e30, 3, 1e35, 1.0, 45.0]], device=device)
    output, gradient = outputs_and_gradients(partial(roi_align_rotated, boxes=boxes, output_size=2), [input])
    assert output.isfinite().all()
    assert gradient.isfinite().all()


def test_memory_format_and_module(device: torch.device) -> None:
    input, boxes = random(2, 40, 9, 13, device=device, requires_grad=False), make_boxes(40, device=device)
    module, expected = RoIAlignRotated((2, 3), 0.5, 2), roi_align_rotated(input, boxes, (2, 3), 0.5, 2)
    assert torch.equal(module(input, boxes), expected)
    assert repr(module) == "RoIAlignRotated(output_size=(2, 3), spatial_scale=0.5, sampling_ratio=2)"
    last = module(input.contiguous(memory_format=torch.channels_last), boxes)
    assert torch.equal(last, expected)
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_bad_arguments(device: torch.device) -> None:
    input, boxes = torch.rand(2, 3, 5, 6, device=device), torch.rand(4, 6, device=device)
    for arguments, message in [
        ((input[0], boxes, 2), r"input has shape \(3, 5, 6\), expected 4 dimensions"),
        ((input, boxes[:, :5], 2), r"boxes has shape \(4, 5\), expected \(R, 6\)"),
        ((input, boxes.long(), 2), "boxes is Long, expected Float"),
        ((input.int(), boxes, 2), "is (Int|Float), expected"),
        ((input, boxes, 0), r"output_size is \(0, 0\), expected positive numbers"),
        ((input, boxes, 2, -1.0), "spatial_scale is -1, expected a positive number"),
    ]:
        with pytest.raises(RuntimeError, match=rf"^roi_align_rotated: .*{message}"):
            roi_align_rotated(*arguments)


@pytest.mark.parametrize(
    ("column", "value"), [(0, 2.0), (0, -1.0), (1, torch.nan), (5, torch.inf), (3, -1.0)]
)
def test_bad_boxes_raise_on_the_cpu_and_give_zero_on_a_gpu(
    column: int, value: float, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    input, boxes = random(2, 3, 5, 6, device=device), make_boxes(4, device=device)
    boxes[1, column] = value
    if device.type == "cuda":
        output, gradient = outputs_and_gradients(lambda x: roi_align_rotated(x, boxes, 2), [input])
        good = [0, 2, 3]
        assert_equal([output[good]], [roi_align_rotated(input, boxes[good], 2)])
        assert not output[1].any()
        assert gradient.isfinite().all()
        monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    with pytest.raises(
        RuntimeError, match=r"boxes\[1\] is \(.*\), expected an image from 0 to 1, finite numbers"
    ):
        roi_align_rotated(input, boxes, 2)


@pytest.mark.cuda
def test_cuda_equals_cpu() -> None:
    boxes = make_boxes(3000, 3, size=(60, 90), dtype=torch.float64)
    input = random(3, 70, 30, 45)
    function = partial(roi_align_rotated, output_size=(7, 7), spatial_scale=0.5, sampling_ratio=2)
    expected = outputs_and_gradients(lambda x: function(x, boxes), [input])
    actual = outputs_and_gradients(
        lambda x: function(x, boxes.cuda()), [input.detach().cuda().requires_grad_()]
    )
    torch.testing.assert_close([a.cpu() for a in actual], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.cuda
def test_cuda_synchronization_streams_and_graphs() -> None:
    boxes = make_boxes(20, device="cuda")
    function = partial(roi_align_rotated, boxes=boxes, output_size=3, sampling_ratio=2)
    x, other = random(2, 5, 9, 13, device="cuda"), random(2, 5, 9, 13, device="cuda", seed=1)
    assert_no_synchronization(function, [x])
    assert_uses_current_stream(function, [x])
    assert_graph_capture(function, [x], [other])
