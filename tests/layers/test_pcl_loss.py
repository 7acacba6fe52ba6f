"""pcl_loss: comparison with its reference in float64."""

import pytest
import torch
from op_contract import DTYPES
from pcl_loss_cases import Case, assert_matches_reference, loss_and_grad, make_case

from detector.layers import PCLLoss, pcl_loss


def test_by_hand(device: torch.device) -> None:
    probs = [[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2], [0.5, 0.1, 0.4]]
    case = Case(
        torch.tensor(probs, dtype=torch.float64, device=device),
        torch.tensor([1, 1, 0, 2], device=device),
        torch.tensor([0.5, 0.3, 0.2, 0.9], dtype=torch.float64, device=device),
        torch.tensor([1, 1, -1, 3], device=device),
    )
    loss, grad = loss_and_grad(case)
    logs = torch.tensor([0.5, 0.6, 0.4], dtype=torch.float64).log()  # (0.7 + 0.3) / 2, background, 0.4
    assert loss.item() == pytest.approx(-(0.8 * logs[0] + 0.2 * logs[1] + 0.9 * logs[2]).item() / 4)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    expected[0, 1] = expected[1, 1] = -0.8 / (2 * 0.5) / 4
    expected[2, 0] = -0.2 / 0.6 / 4
    expected[3, 2] = -0.9 / 0.4 / 4
    torch.testing.assert_close(grad.cpu(), expected)


@pytest.mark.parametrize("counts", [None, [20], [11, 0, 30, 1]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_reference(dtype: torch.dtype, counts: list[int] | None, device: torch.device) -> None:
    assert_matches_reference(make_case(device, dtype, counts=counts))


@pytest.mark.parametrize("num_rows", [1, 31, 33, 1025, 5000])
def test_matches_reference_by_size(num_rows: int, device: torch.device) -> None:
    assert_matches_reference(
        make_case(device, torch.float32, num_rows=num_rows, num_classes=20, num_clusters=50)
    )


def test_more_clusters_than_warps(device: torch.device) -> None:
    assert_matches_reference(make_case(device, torch.float32, num_rows=700, num_clusters=700))


def test_upstream_gradient(device: torch.device) -> None:
    case = make_case(device, counts=[11, 8, 30])
    assert_matches_reference(case, torch.tensor([2.5, -0.5, 0], device=device, dtype=torch.float64))
    assert_matches_reference(make_case(device), torch.tensor(1024.0, device=device, dtype=torch.float64))


def test_only_probs_get_a_gradient(device: torch.device) -> None:
    case = make_case(device)
    weights = case.weights.requires_grad_()
    loss = pcl_loss(case.probs.requires_grad_(), case.labels, weights, case.clusters)
    loss.backward()
    assert case.probs.grad is not None
    assert weights.grad is None
    _, slopes = torch.ops.detector.pcl_loss_forward(*case)
    assert not slopes.requires_grad


def test_probabilities_are_clamped(device: torch.device) -> None:
    case = make_case(device)
    case.probs[::2] = 0
    assert_matches_reference(case)
    case.probs.zero_()
    loss, grad = loss_and_grad(case)
    torch.testing.assert_close(loss, -torch.tensor(1e-9).log() * case.weights.mean(), check_dtype=False)
    assert not grad.any()


@pytest.mark.parametrize("kept", ["background", "members"])
def test_only_background_or_only_members(kept: str, device: torch.device) -> None:
    case = make_case(device)
    background = case.clusters == -1
    if kept == "background":
        case.labels.zero_(), case.clusters.fill_(-1)
    else:
        row = (~background).nonzero()[0]
        case.labels[background], case.clusters[background] = case.labels[row], case.clusters[row]
    assert_matches_reference(case)


def test_empty(device: torch.device) -> None:
    for counts, shape in [(None, ()), ([], (0,)), ([0, 0], (2,))]:
        loss, grad = loss_and_grad(make_case(device, num_rows=0, counts=counts))
        assert torch.equal(loss.cpu(), torch.zeros(shape, dtype=torch.float64))
        assert grad.shape == (0, 6)
    background_only = make_case(device, num_rows=8, num_classes=5)
    probs, zeros = background_only.probs[:, :1], torch.zeros(8, dtype=torch.int64, device=device)
    assert_matches_reference(Case(probs, zeros, background_only.weights, zeros - 1))


def test_counts_may_be_on_any_device(device: torch.device) -> None:
    case = make_case(device, counts=[11, 8])
    moved = case._replace(counts=case.counts.to(device))
    assert torch.equal(pcl_loss(*case), pcl_loss(*moved))


def test_module_equals_function() -> None:
    case = make_case()
    assert torch.equal(PCLLoss()(*case), pcl_loss(*case))
    assert repr(PCLLoss()) == "PCLLoss()"


def test_images_are_independent(device: torch.device) -> None:
    case = make_case(device, torch.float32, counts=[300, 200])
    losses, grad = loss_and_grad(case)
    for loss, part, rows in zip(losses, grad.split([300, 200]), (slice(300), slice(300, 500)), strict=True):
        alone, alone_grad = loss_and_grad(Case(*(tensor[rows] for tensor in case[:4])))
        assert torch.equal(alone, loss)
        assert torch.equal(alone_grad, part)
