"""pcl_loss: invalid arguments, and what test_contract.py does not cover."""

import pytest
import torch
from pcl_loss_cases import Case, assert_matches_reference, broken, loss_and_grad, make_case, miscounted
from torch import Tensor

from detector import _C
from detector.layers import pcl_loss


def test_expanded_inputs(device: torch.device) -> None:
    case = make_case(device, counts=[11, 26])
    assert_matches_reference(
        case._replace(probs=case.probs[:1].expand(37, -1), weights=case.weights[:1].expand(37))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_autocast_computes_in_float32_and_keeps_the_dtype(dtype: torch.dtype, device: torch.device) -> None:
    case = make_case(device, dtype)
    mixed = case._replace(weights=case.weights.float())  # autocast casts both to float32
    with torch.autocast(device.type, torch.bfloat16):
        loss, grad = loss_and_grad(mixed)
    assert loss.dtype == grad.dtype == dtype
    assert torch.equal(loss, pcl_loss(mixed.probs.float(), *mixed[1:]).to(dtype))


# ---- invalid arguments ----


BAD_VALUES = [
    (broken("labels", 4, 4), r"labels\[4\] is 4, expected 0 \(background\) to 3"),
    (broken("labels", 4, -1), r"labels\[4\] is -1, expected 0 \(background\) to 3"),
    (broken("labels", 1, 2), r"labels\[1\] is 2, expected 0, because clusters\[1\] is -1 \(background\)"),
    (broken("labels", 4, 0), r"labels\[4\] is 0 \(background\), expected a class, because clusters\[4\] is"),
    (broken("labels", 8, 2), r"labels\[8\] is 2, expected 3 as in the other members of cluster 2 of image 0"),
    (broken("clusters", 5, 10), r"clusters\[5\] is 10, expected -1 .* image 0, which has 10 rows: 0 to 9"),
    (broken("clusters", 5, -2), r"clusters\[5\] is -2, expected -1"),
    (broken("probs", 4, torch.nan), r"probs\[4, 1\] is nan, expected a probability from 0 to 1"),
    (broken("probs", 4, torch.inf), r"probs\[4, 1\] is inf, expected a probability from 0 to 1"),
    (broken("probs", 4, 1.5), r"probs\[4, 1\] is 1.5, expected a probability from 0 to 1"),
    (broken("probs", 4, 1 + 2**-20), r"probs\[4, 1\] is 1 \+ 9.53674e-07, expected a probability"),
    (broken("probs", 0, -1e-3), r"probs\[0, 0\] is -0.001, expected a probability from 0 to 1"),
    (broken("weights", 9, torch.nan), r"weights\[9\] is nan, expected a finite number"),
    (broken("weights", 9, -torch.inf), r"weights\[9\] is -inf, expected a finite number"),
    (miscounted(4, 5), r"counts sum to 9, but probs has 10 rows"),
    (miscounted(4, 7), r"counts\[1\] is 7, expected 0 to the 6 rows of probs that are left"),
    (miscounted(-1, 11), r"counts\[0\] is -1, expected 0 to the 10 rows"),
    (miscounted(9, 1), r"clusters\[9\] is 2, expected -1 .* image 1, which has 1 rows"),
]


@pytest.mark.parametrize(("case", "message"), BAD_VALUES)
def test_bad_values(case: Case, message: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")  # a GPU checks values on request only
    case = Case(*(None if tensor is None else tensor.to(device) for tensor in case))
    with pytest.raises(RuntimeError, match=f"^pcl_loss: {message}"):
        pcl_loss(*case)


def test_cpu_always_checks_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    with pytest.raises(RuntimeError, match="pcl_loss: labels"):
        pcl_loss(*broken("labels", 4, 4))


BAD_ARGUMENTS = [
    ({"probs": torch.zeros(37)}, r"probs has shape \(37,\), expected 2 dimensions"),
    ({"probs": torch.zeros(37, 0)}, r"probs has shape \(37, 0\), expected \(R, C \+ 1\)"),
    ({"probs": torch.zeros(37, 6).int()}, "probs is Int, expected Double, Float, Half or BFloat16"),
    ({"labels": torch.zeros(36, dtype=torch.int64)}, r"labels has shape \(36,\), expected \(37,\)"),
    ({"labels": torch.zeros(37)}, "labels is Float, expected Long"),
    ({"weights": torch.zeros(37, 1)}, r"weights has shape \(37, 1\), expected \(37,\)"),
    ({"weights": torch.zeros(37)}, "weights is Float, expected Double"),
    ({"clusters": torch.zeros(38, dtype=torch.int64)}, r"clusters has shape \(38,\), expected \(37,\)"),
    ({"clusters": torch.zeros(37, dtype=torch.int32)}, "clusters is Int, expected Long"),
    ({"counts": torch.tensor(37)}, r"counts has shape \(\), expected 1 dimensions"),
    ({"counts": torch.tensor([37.0])}, "counts is Float, expected Long"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    case = make_case(device)._replace(**{name: tensor.to(device) for name, tensor in changes.items()})
    with pytest.raises(RuntimeError, match=f"^pcl_loss: {message}"):
        pcl_loss(*case)


def test_bad_backward_arguments(device: torch.device) -> None:
    case = make_case(device)
    loss, slopes = _C.pcl_loss_forward(*case)
    for arguments, message in [
        (
            (loss[None], case.probs, case.labels, slopes, None),
            r"grad has shape \(1,\), expected 0 dimensions",
        ),
        ((loss.float(), case.probs, case.labels, slopes, None), "grad is Float, expected Double"),
        ((loss, case.probs, case.labels, slopes.float(), None), "slopes is Float, expected Double"),
        ((loss, case.probs, case.labels, slopes[1:], None), r"slopes has shape \(36,\), expected \(37,\)"),
        ((loss, case.probs, case.labels[1:], slopes, None), r"labels has shape \(36,\), expected \(37,\)"),
    ]:
        with pytest.raises(RuntimeError, match=f"^pcl_loss_backward: {message}"):
            _C.pcl_loss_backward(*arguments)
