"""soft_nms: values by hand, comparison with the reference, and errors."""

from collections.abc import Callable

import pytest
import torch
from op_samples import make_soft_nms as make_set
from torch import Tensor

from detector.layers import nms, reference, soft_nms

OP = torch.ops.detector.soft_nms.default
OPTIONS = [
    {"method": "linear", "iou_threshold": 0.3},
    {"method": "linear", "iou_threshold": 0.0, "min_score": 0.2},
    {"method": "gaussian", "sigma": 0.5},
    {"method": "gaussian", "sigma": 0.1, "min_score": 0.0},
]


def test_by_hand(device: torch.device) -> None:
    boxes = torch.tensor([[0, 0, 2, 2], [0, 1, 2, 3], [10, 10, 11, 11.0]], device=device)  # the IoU is 1/3
    scores = torch.tensor([0.6, 0.9, 0.5], device=device)
    indices, lowered = soft_nms(boxes, scores, iou_threshold=0.3)
    assert indices.tolist() == [1, 2, 0]
    assert lowered.tolist() == pytest.approx([0.9, 0.5, 0.4])
    indices, lowered = soft_nms(boxes, scores, method="gaussian", sigma=0.5)
    assert indices.tolist() == [1, 2, 0]
    assert lowered.tolist() == pytest.approx([0.9, 0.5, 0.6 * 2.718281828 ** (-2 / 9)])
    assert soft_nms(boxes, scores, iou_threshold=0.4)[1].tolist() == pytest.approx([0.9, 0.6, 0.5])
    assert soft_nms(boxes, scores, torch.tensor([5, -5, 5], device=device))[0].tolist() == [1, 0, 2]
    assert soft_nms(boxes, scores, min_score=0.45)[0].tolist() == [1, 2]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("number", [0, 1, 40, 300])
def test_matches_reference(number: int, options: dict, device: torch.device) -> None:
    boxes, scores = make_set(number, seed=number, device=device)
    for idxs in (None, torch.arange(number, device=device) % 4 - 2):
        actual = soft_nms(boxes, scores, idxs, **options)
        expected = reference.soft_nms(boxes, scores, idxs, **options)
        torch.testing.assert_close(actual[1], expected[1], rtol=1e-12, atol=1e-15)
        if options["method"] == "linear":  # else the last bits of equal scores decide about their order
            assert torch.equal(actual[0], expected[0])


def test_distant_boxes_and_repeated_ones(device: torch.device) -> None:
    boxes, scores = make_set(100, device=device)
    kept = nms(boxes, scores, 0.0)  # boxes that do not overlap
    indices, lowered = soft_nms(boxes[kept], scores[kept], min_score=0.0)
    assert torch.equal(lowered, scores[kept])
    assert torch.equal(indices, torch.arange(len(kept), device=device))
    repeated = boxes[2:3].repeat(5, 1), torch.full((5,), 0.5, device=device, dtype=boxes.dtype)
    assert soft_nms(*repeated)[0].tolist() == [0]  # the others have an IoU of 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_dtypes_strides_and_autocast(dtype: torch.dtype, device: torch.device) -> None:
    boxes, scores = make_set(200, dtype=dtype, device=device)
    expected = soft_nms(boxes.float(), scores.float(), method="gaussian")
    columns = boxes.mT.contiguous().mT
    repeated = scores.repeat_interleave(2)[::2]
    runs: list[Callable] = [lambda: soft_nms(columns, repeated, method="gaussian")]
    with torch.autocast(device.type, torch.bfloat16):
        runs.append(lambda: soft_nms(boxes, scores, method="gaussian"))
    for run in runs:
        indices, lowered = run()
        assert torch.equal(indices, expected[0])
        assert torch.equal(lowered, expected[1].to(dtype))


def test_export_with_any_number_of_boxes(device: torch.device) -> None:
    class Lower(torch.nn.Module):
        def forward(self, boxes: Tensor, scores: Tensor, idxs: Tensor) -> tuple[Tensor, ...]:
            return *soft_nms(boxes, scores), *soft_nms(boxes, scores, idxs)

    number = {0: torch.export.Dim("number")}
    first, other = ((*make_set(n, device=device), torch.arange(n, device=device) % 3) for n in (20, 30))
    program = torch.export.export(Lower(), first, dynamic_shapes=(number, number, number))
    for actual, expected in zip(program.module()(*other), Lower()(*other), strict=True):
        assert torch.equal(actual, expected)


def test_bad_arguments(device: torch.device) -> None:
    boxes, scores = make_set(4, device=device)
    for options in ({"method": "hard"}, {"iou_threshold": 1.5}, {"sigma": 0.0}, {"min_score": -1.0}):
        with pytest.raises(ValueError, match=f"^soft_nms: .*{next(iter(options))} is .*expected"):
            soft_nms(boxes, scores, **options)
    for arguments, message in [
        ((boxes[:, :3], scores), r"boxes has shape \(4, 3\), expected \(N, 4\)"),
        ((boxes, scores[:3]), r"scores has shape \(3,\), expected \(4,\)"),
        ((boxes, scores[:3], scores), r"scores has shape \(3,\), expected \(4,\)"),
        ((boxes, scores.repeat(2), scores), r"scores has shape \(8,\), expected \(4,\)"),
        ((boxes, scores.to("meta"), scores), f"scores is on meta, but boxes is on {device.type}"),
        ((boxes, scores, torch.zeros(3, device=device)), r"idxs has shape \(3,\), expected \(4,\)"),
        ((boxes, scores, torch.zeros(4, device="meta")), f"idxs is on meta, but boxes is on {device.type}"),
        ((boxes, scores, torch.zeros(4, 1, device=device)), r"idxs has shape \(4, 1\), expected \(4,\)"),
        ((boxes, scores, scores.to(torch.complex128)), "idxs is torch.complex128, expected a real dtype"),
        ((boxes.long(), scores), "boxes is Long, expected Double or Float"),
        ((boxes[0, 0], scores), r"boxes has shape \(\), expected \(N, 4\)"),
    ]:
        with pytest.raises(RuntimeError, match=f"^soft_nms: {message}"):
            soft_nms(*arguments)
    with pytest.raises(TypeError, match="idxs is list, expected a Tensor"):
        soft_nms(boxes, scores, [0, 0, 1, 1])


@pytest.mark.parametrize(
    ("starts", "message"),
    [
        ([1, 4], r"starts\[0\] is 1, expected 0"),
        ([-1, 4], r"starts\[0\] is -1, expected 0"),
        ([0, 3], r"starts\[1\] is 3, expected 4, the number of boxes"),
        ([0, 2**62], rf"starts\[1\] is {2**62}, expected 4"),
        ([0, 9, 4], r"starts\[1\] is 9, expected from 0, the number before it, to 4"),
        ([0, 3, 2, 4], r"starts\[2\] is 2, expected from 3, the number before it, to 4"),
        ([0, -(2**40), 4], r"starts\[1\] is .*, expected from 0"),
        ([0], r"starts has shape \(1,\), expected \(G \+ 1,\) for G groups of 4 boxes"),
        ([], r"starts has shape \(0,\)"),
    ],
)
def test_bad_starts(starts: list, message: str, device: torch.device, monkeypatch) -> None:
    boxes, scores = make_set(4, device=device)
    arguments = boxes, scores, torch.tensor(starts, dtype=torch.int64, device=device), False, 0.3, 0.01
    if device.type == "cuda" and len(starts) > 1:  # nothing is read out of bounds; no box has a group
        assert OP(*arguments).tolist() == [0] * 4
        monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    with pytest.raises(RuntimeError, match=f"^soft_nms: {message}"):
        OP(*arguments)


def test_bad_scores(device: torch.device) -> None:
    boxes, scores = make_set(30, device=device)
    if device.type == "cpu":
        for bad in (torch.inf, -0.5, torch.nan):
            scores[7] = bad
            message = f"soft_nms: scores has {bad}, expected finite numbers of 0 or more"
            with pytest.raises(RuntimeError, match=message):
                soft_nms(boxes, scores)
        return
    scores[7] = torch.nan
    others = torch.cat([boxes[:7], boxes[8:]]), torch.cat([scores[:7], scores[8:]])
    indices, lowered = soft_nms(boxes, scores)
    expected = soft_nms(*others)
    assert torch.equal(lowered, expected[1])
    assert torch.equal(indices, expected[0] + (expected[0] >= 7))


def test_nan_boxes_raise_or_overlap_nothing(device: torch.device) -> None:
    boxes, scores = make_set(30, device=device)
    boxes[7, 1] = torch.nan
    if device.type == "cpu":
        with pytest.raises(RuntimeError, match=r"soft_nms: boxes\[:, 1\] has a nan, expected numbers"):
            soft_nms(boxes, scores)
        return
    indices, lowered = soft_nms(boxes, scores)
    assert lowered[indices == 7] == scores[7]


@pytest.mark.cuda
def test_cuda_equals_cpu() -> None:
    boxes, scores = make_set(5000, seed=2)
    idxs = torch.arange(5000) % 7
    expected = soft_nms(boxes, scores, idxs)
    actual = soft_nms(boxes.cuda(), scores.cuda(), idxs.cuda())
    torch.testing.assert_close([t.cpu() for t in actual], list(expected), rtol=0, atol=0)
