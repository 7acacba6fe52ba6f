"""nms, batched_nms and nms_mask: the checks of op_contract.py and invalid arguments."""

from collections.abc import Callable, Iterator

import numpy as np
import op_contract
import pytest
import torch
from nms_cases import batched_nms_at_half, make_inputs, make_set, mask_at_half, nms_at_half
from op_contract import DTYPES
from torch import Tensor

from detector.layers import batched_nms, batched_nms_rotated, nms, nms_mask


@pytest.mark.parametrize("dtype", DTYPES)
def test_reproducible(dtype: torch.dtype, device: torch.device) -> None:
    inputs = make_inputs(device, dtype, 3000)
    op_contract.assert_reproducible(nms_at_half, inputs[:2])
    op_contract.assert_reproducible(mask_at_half, inputs)


def test_independent_of_threads() -> None:
    op_contract.assert_independent_of_threads(nms_at_half, make_set(12_000, side=3000)[:2])
    op_contract.assert_independent_of_threads(batched_nms_at_half, make_set(6000, side=1000))


@pytest.mark.parametrize("function", [nms_at_half, batched_nms_at_half, mask_at_half])
def test_any_layout(function: Callable, device: torch.device) -> None:
    inputs = make_inputs(device)
    op_contract.assert_any_layout(function, inputs[:2] if function is nms_at_half else inputs)
    same = [inputs[0][:1].expand(300, 4), inputs[1][:1].expand(300), inputs[2][:1].expand(300)]
    if function is batched_nms_at_half:
        assert function(*same).tolist() == [0]


def test_not_differentiable(device: torch.device) -> None:
    boxes, scores, idxs = make_inputs(device)
    boxes.requires_grad_(), scores.requires_grad_()
    assert not batched_nms(boxes, scores, idxs, 0.5).requires_grad
    assert not nms_mask(boxes, scores, 0.5)[0].requires_grad


def test_deterministic_algorithms(device: torch.device) -> None:
    inputs = make_inputs(device, size=9000)  # too many for the counting rank kernel
    expected = batched_nms_at_half(*inputs)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(batched_nms_at_half(*inputs), expected)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(dtype: torch.dtype, grouped: bool, device: torch.device) -> None:
    boxes, scores, idxs = make_inputs(device, dtype, 20)
    arguments = (boxes.requires_grad_(), scores, idxs if grouped else None, 0.5)
    torch.library.opcheck(torch.ops.detector.nms.default, arguments)
    torch.library.opcheck(torch.ops.detector.nms_mask.default, arguments)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [nms_at_half, batched_nms_at_half, mask_at_half])
def test_compile_full_graph(function: Callable, dynamic: bool, device: torch.device) -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=function is not mask_at_half):
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
        for size in (30, 41):
            inputs = make_inputs(device, size=size)[: 2 if function is nms_at_half else 3]
            found, expected = compiled(*inputs), function(*inputs)
            assert all(map(torch.equal, as_tuple(found), as_tuple(expected)))


class KeptBoxes(torch.nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor, idxs: Tensor) -> tuple[Tensor, Tensor]:
        return boxes[batched_nms(boxes, scores, idxs, 0.5)], nms_mask(boxes, scores, 0.5)[0]


def test_export(device: torch.device) -> None:
    size = torch.export.Dim("size")
    shapes = {"boxes": {0: size}, "scores": {0: size}, "idxs": {0: size}}
    program = torch.export.export(KeptBoxes(), tuple(make_inputs(device)), dynamic_shapes=shapes)
    other = make_inputs(device, size=77)
    assert all(map(torch.equal, program.module()(*other), KeptBoxes()(*other)))


def test_autocast(device: torch.device) -> None:
    boxes, scores, idxs = make_inputs(device)
    op_contract.assert_autocast_keeps_dtype(batched_nms_at_half, [boxes, scores, idxs], device)
    op_contract.assert_autocast_keeps_dtype(mask_at_half, [boxes, scores], device)
    with torch.autocast(device.type, torch.bfloat16):  # casts both to float32
        found = nms(boxes, scores.bfloat16(), 0.5)
    assert torch.equal(found, nms(boxes, scores.bfloat16().float(), 0.5))


def as_tuple(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else found


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
