"""nms_rotated and batched_nms_rotated: comparison with values by hand, the reference and nms; errors."""

import pytest
import torch
from op_samples import make_rotated_nms as make_set

from detector.layers import batched_nms_rotated, nms, nms_rotated, reference
from detector.layers.reference_rotated import iou_rotated

OP = torch.ops.detector.nms_rotated.default


def iou(a: list[float], b: list[float], device: torch.device) -> float:
    """The IoU that the op uses, by bisection over its threshold."""
    low, high = 0.0, 1.0
    boxes = torch.tensor([a, b], dtype=torch.float64, device=device)
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if OP(boxes, None, middle)[1] else (middle, high)
    return high


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([5, 5, 4, 2, 0], [5, 5, 4, 2, 0], 1.0),
        ([5, 5, 4, 2, 0], [5, 5, 2, 4, 90], 1.0),
        ([5, 5, 4, 2, 30], [5, 5, 4, 2, 210], 1.0),
        ([5, 5, 4, 2, 0], [5, 5, 4, 2, 90], 4 / 12),
        ([5, 5, 4, 4, 0], [5, 5, 4, 4, 45], 1 / 2**0.5),  # a regular octagon
        ([5, 5, 4, 2, 17], [5 + 1e3, 5, 4, 2, 17], 0.0),
        ([0, 0, 2, 2, 0], [1.5, 0, 2, 2, 0], 1 / 7),
        ([5, 5, 8, 4, 30], [5, 5, 4, 2, 30], 1 / 4),  # one in the other
        ([5, 5, 8, 8, 30], [5, 5, 2, 4, 75], 1 / 8),
        ([0, 0, 2, 2, 45], [0, 2, 2, 2, 45], None),
    ],
)
def test_iou(a: list[float], b: list[float], expected: float | None, device: torch.device) -> None:
    plain = iou_rotated(torch.tensor(a), torch.tensor(b))
    assert iou(a, b, device) == pytest.approx(plain, abs=1e-9)
    assert expected is None or plain == pytest.approx(expected, abs=1e-12)


def test_iou_of_random_boxes(device: torch.device) -> None:
    boxes, _ = make_set(60, seed=3)
    boxes[:, :2] /= 3
    for a, b in zip(boxes[::2], boxes[1::2], strict=True):
        assert iou(a.tolist(), b.tolist(), device) == pytest.approx(iou_rotated(a, b), abs=1e-9)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_matches_reference(threshold: float, device: torch.device) -> None:
    boxes, scores = make_set(24, device=device)  # the reference takes a millisecond a pair
    assert torch.equal(nms_rotated(boxes, scores, threshold), reference.nms_rotated(boxes, scores, threshold))
    idxs = torch.arange(24, device=device) % 3
    expected = reference.batched_nms_rotated(boxes, scores, idxs, threshold)
    assert torch.equal(batched_nms_rotated(boxes, scores, idxs, threshold), expected)
    assert torch.equal(batched_nms_rotated(boxes, scores, idxs * 0.5 - 1, threshold), expected)


@pytest.mark.parametrize("number", [0, 1, 64, 65, 3000])
def test_equals_nms_without_rotation(number: int, device: torch.device) -> None:
    boxes, scores = make_set(number, seed=1, device=device)
    boxes = (boxes * 4).round() / 4  # exact in both forms
    boxes[:, 4] = 0
    corners = torch.cat([boxes[:, :2] - boxes[:, 2:4] / 2, boxes[:, :2] + boxes[:, 2:4] / 2], dim=1)
    assert torch.equal(nms_rotated(boxes, scores, 0.37), nms(corners, scores, 0.37))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_and_strides(dtype: torch.dtype, device: torch.device) -> None:
    boxes, scores = make_set(200, dtype=dtype, device=device)
    expected = nms_rotated(boxes.float(), scores.float(), 0.41)
    assert torch.equal(nms_rotated(boxes, scores, 0.41), expected)
    assert torch.equal(nms_rotated(boxes.mT.contiguous().mT, scores, 0.41), expected)
    with torch.autocast(device.type, torch.bfloat16):
        assert torch.equal(nms_rotated(boxes, scores, 0.41), expected)


def test_nan_boxes_raise_or_suppress_nothing(device: torch.device) -> None:
    boxes, scores = make_set(30, device=device)
    others = torch.cat([boxes[:10], boxes[11:]]), torch.cat([scores[:10], scores[11:]])
    boxes[10, 2] = torch.nan
    if device.type == "cpu":
        with pytest.raises(RuntimeError, match=r"nms_rotated: boxes\[:, 2\] has a nan, expected numbers"):
            nms_rotated(boxes, scores, 0.2)
        return
    kept = nms_rotated(boxes, scores, 0.2)
    assert 10 in kept
    expected = nms_rotated(*others, 0.2)
    assert torch.equal(kept[kept != 10], expected + (expected >= 10))


def test_bad_arguments(device: torch.device) -> None:
    boxes, scores = make_set(4, device=device)
    for arguments, message in [
        ((boxes[:, :4], scores, 0.5), r"boxes has shape \(4, 4\), expected \(N, 5\)"),
        ((boxes, scores[:3], 0.5), r"scores has shape \(3,\), expected \(4,\)"),
        ((boxes.long(), scores, 0.5), "boxes is Long, expected Double or Float"),
        ((boxes, scores.to("meta"), 0.5), f"scores is on meta, but boxes is on {device.type}"),
        ((boxes, scores, 1.5), "iou_threshold is 1.5, expected a number from 0 to 1"),
    ]:
        with pytest.raises(RuntimeError, match=f"^nms_rotated: {message}"):
            nms_rotated(*arguments)
    with pytest.raises(RuntimeError, match=r"^nms_rotated: idxs has shape \(3,\), expected \(4,\)"):
        batched_nms_rotated(boxes, scores, torch.zeros(3, device=device), 0.5)
    with pytest.raises(RuntimeError, match=r"^nms_rotated: scores is torch.complex128, expected a real"):
        nms_rotated(boxes, scores.to(torch.complex128), 0.5)


@pytest.mark.cuda
@pytest.mark.parametrize("size", [1, 32, 33, 64, 65, 97, 256, 257, 5000])  # of words, tiles and chunks
def test_cuda_equals_cpu(size: int) -> None:
    boxes, scores = make_set(size, seed=2)
    boxes[:, :2] *= 5 if size == 5000 else 1
    idxs = torch.arange(size) % 7
    for arguments in ([boxes, scores], [boxes, scores, idxs]):
        function = nms_rotated if len(arguments) == 2 else batched_nms_rotated
        found = function(*(each.cuda() for each in arguments), 0.4)
        assert torch.equal(found.cpu(), function(*arguments, 0.4))
