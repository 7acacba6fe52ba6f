"""pcl_loss_compat, which has the argument list of the original op, and the exported names."""

import pytest
import torch
from torch import Tensor

import detector.layers
from detector.layers import pcl_loss_compat


def original_loss(
    probs, labels, weights, assignment, pc_labels, _pc_probs, _pc_count, pc_weights, im_labels
) -> Tensor:
    """The formula of the original code, one term at a time, with cluster means computed from probs."""
    total = probs.new_zeros(())
    for r in range(len(probs)):
        if labels[r] == 0 and im_labels[0]:
            total = total - weights[r] * probs[r, 0].log()
    for n, label in enumerate(pc_labels.long()):
        if im_labels[label]:
            total = total - pc_weights[n] * probs[(assignment == n) & (labels > 0), label].mean().log()
    return total / len(probs)


@pytest.mark.parametrize("hidden", [None, 0, 2])
def test_compat_equals_original(hidden: int | None, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(8, 4, generator=generator, dtype=torch.float64).softmax(dim=1)
    im_labels = torch.ones(4)
    if hidden is not None:
        im_labels[hidden] = 0
    vectors = [
        torch.tensor([0.0, 1, 1, 2, 2, 2, 0, 3]),  # labels
        torch.rand(8, generator=generator, dtype=torch.float64),  # cls_loss_weights
        torch.tensor([2.0, 0, 0, 1, 1, 1, -1, 2]),  # gt_assignment
        torch.tensor([1.0, 2, 3]),  # pc_labels
        torch.zeros(3),  # pc_probs, not used
        torch.tensor([2.0, 3, 1]),  # pc_count
        torch.tensor([0.7, 0.2, 1.5], dtype=torch.float64),  # img_cls_loss_weights
        im_labels,
    ]
    probs = probs.to(device).requires_grad_()
    vectors = [vector.to(device) for vector in vectors]
    expected = original_loss(probs, *vectors)
    expected_grad = torch.autograd.grad(expected * 3, probs)
    for arguments in (vectors, [vector[None] for vector in vectors]):  # (N,) and (1, N)
        loss = pcl_loss_compat(probs, *arguments)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(torch.autograd.grad(loss * 3, probs), expected_grad)


def some_arguments() -> dict[str, Tensor]:
    return {
        "pcl_probs": torch.full((8, 4), 0.25),
        "labels": torch.tensor([0.0, 1, 1, 2, 2, 2, 0, 3]),
        "cls_loss_weights": torch.ones(8),
        "gt_assignment": torch.tensor([2.0, 0, 0, 1, 1, 1, -1, 2]),
        "pc_labels": torch.tensor([1.0, 2, 3]),
        "pc_probs": torch.zeros(3),
        "pc_count": torch.tensor([2.0, 3, 1]),
        "img_cls_loss_weights": torch.ones(3),
        "im_labels": torch.ones(4),
    }


def test_bad_arguments() -> None:
    arguments = some_arguments()
    pcl_loss_compat(**arguments)
    for name, expected in [
        ("labels", 8),
        ("cls_loss_weights", 8),
        ("gt_assignment", 8),
        ("pc_count", 3),
        ("im_labels", 4),
    ]:
        message = f"^pcl_loss_compat: {name} has 2 elements, expected {expected}"
        with pytest.raises(RuntimeError, match=message):
            pcl_loss_compat(**{**arguments, name: torch.ones(2)})
    with pytest.raises(
        RuntimeError, match=r"^pcl_loss_compat: pcl_probs has shape \(8,\), expected \(R, C \+ 1\)"
    ):
        pcl_loss_compat(**{**arguments, "pcl_probs": torch.ones(8)})


BAD_VALUES = [
    ("labels", 4, r"labels\[1\] is 4, expected an integer from 0 to 3"),
    ("labels", -1, r"labels\[1\] is -1, expected an integer from 0 to 3"),
    ("labels", 0.5, r"labels\[1\] is 0.5, expected an integer from 0 to 3"),
    ("labels", torch.nan, r"labels\[1\] is nan, expected an integer from 0 to 3"),
    ("gt_assignment", 3, r"gt_assignment\[1\] is 3, expected an integer from 0 to 2"),
    ("gt_assignment", -1, r"gt_assignment\[1\] is -1, expected an integer from 0 to 2"),
    ("gt_assignment", 1e6, r"gt_assignment\[1\] is 1e\+06, expected an integer from 0 to 2"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_VALUES)
def test_bad_values(name: str, value: float, message: str, device: torch.device) -> None:
    arguments = {key: tensor.to(device) for key, tensor in some_arguments().items()}
    arguments[name][1] = value
    if device.type == "cpu":
        with pytest.raises(RuntimeError, match=f"^pcl_loss_compat: {message}"):
            pcl_loss_compat(**arguments)
    else:  # no index out of range is read there
        assert pcl_loss_compat(**arguments).isfinite()


def test_all_names_exist() -> None:
    assert all(hasattr(detector.layers, name) for name in detector.layers.__all__)
