"""nms, batched_nms and nms_mask: invalid arguments, and what test_contract.py does not cover."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from nms_cases import batched_nms_at_half, make_inputs, make_set
from op_contract import DTYPES
from torch import Tensor

from detector.layers import batched_nms, batched_nms_rotated, nms, nms_mask


def test_expanded(device: torch.device) -> None:
    same = [tensor[:1].expand(300, *tensor.shape[1:]) for tensor in make_inputs(device)]
    assert batched_nms_at_half(*same).tolist() == [0]


def test_autocast_casts_both_to_float32(device: torch.device) -> None:
    boxes, scores, _ = make_inputs(device)
    with torch.autocast(device.type, torch.bfloat16):
        found = nms(boxes, scores.bfloat16(), 0.5)
    assert torch.equal(found, nms(boxes, scores.bfloat16().float(), 0.5))


def test_deterministic_algorithms(device: torch.device) -> None:
    inputs = make_inputs(device, size=9000)  # too many for the counting rank kernel
    expected = batched_nms_at_half(*inputs)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(batched_nms_at_half(*inputs), expected)
    finally:
        torch.use_deterministic_algorithms(False)


# ---- invalid arguments ----


def bad_arguments() -> Iterator[tuple[str, dict]]:
    boxes, scores, idxs = make_set(5)
    yield r"boxes has shape \(5, 5\), expected \(N, 4\)", {"boxes": torch.zeros(5, 5)}
    yield r"boxes has shape \(4,\), expected \(N, 4\)", {"boxes": torch.zeros(4)}
    yield r"boxes has shape \(1, 5, 4\), expected \(N, 4\)", {"boxes": boxes[None]}
    yield r"scores has shape \(4,\), expected \(5,\)", {"scores": scores[:4]}
    yield r"scores has shape \(5, 1\), expected \(5,\)", {"scores": scores[:, None]}
    yield r"scores is Double, expected Float", {"scores": scores.double()}
    yield r"boxes is Long, expected Double, Float, Half or BFloat16", {"boxes": boxes.long()}
    yield r"idxs has shape \(4,\), expected \(5,\)", {"idxs": idxs[:4]}
    yield r"idxs is ComplexFloat, expected Long", {"idxs": idxs.to(torch.complex64)}
    for threshold in (-0.1, 1.5, torch.nan):
        yield rf"iou_threshold is {threshold}, expected a number from 0 to 1", {"iou_threshold": threshold}


@pytest.mark.parametrize(("message", "changed"), list(bad_arguments()))
def test_bad_arguments(message: str, changed: dict, device: torch.device) -> None:
    boxes, scores, idxs = make_set(5)
    arguments = {"boxes": boxes, "scores": scores, "idxs": idxs, "iou_threshold": 0.5, **changed}
    arguments = {name: a.to(device) if isinstance(a, Tensor) else a for name, a in arguments.items()}
    with pytest.raises(RuntimeError, match=f"^nms_mask: {message}"):
        nms_mask(**arguments)
    with pytest.raises(RuntimeError, match=f"^nms: {message}"):
        batched_nms(**arguments)
    if "idxs" not in changed:
        del arguments["idxs"]
        with pytest.raises(RuntimeError, match=f"^nms: {message}"):
            nms(**arguments)


@pytest.mark.parametrize("function", [batched_nms, batched_nms_rotated])
def test_groups_that_are_no_tensor(function: Callable) -> None:
    boxes, scores, _ = make_set(2)
    for idxs, kind in ((None, "NoneType"), ([0, 1], "list"), (np.zeros(2), "ndarray")):
        with pytest.raises(TypeError, match=f"^idxs is {kind}, expected a Tensor$"):
            function(boxes, scores, idxs, 0.5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_raises(dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    for name, place, message in (("boxes", (3, 1), r"boxes\[3, 1\]"), ("scores", (2,), r"scores\[2\]")):
        boxes, scores, _ = make_inputs(device, dtype, 5)
        {"boxes": boxes, "scores": scores}[name][place] = torch.nan
        with pytest.raises(RuntimeError, match=f"^nms: {message} is nan, expected a number"):
            nms(boxes, scores, 0.5)
        with pytest.raises(RuntimeError, match=f"^nms_mask: {message} is nan, expected a number"):
            nms_mask(boxes, scores, 0.5)
