"""pcl_loss on a GPU: the same results as on the CPU, invalid values, streams, graphs."""

import op_contract
import pytest
import torch
from op_contract import DTYPES
from pcl_loss_cases import Case, assert_matches_reference, broken, differentiable, loss_and_grad, make_case

from detector.layers import pcl_loss

cuda = torch.device("cuda")
pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_equals_cpu(dtype: torch.dtype) -> None:
    case = make_case("cpu", dtype, counts=[2000, 0, 1500], num_classes=20, num_clusters=15)
    expected = loss_and_grad(case)
    actual = loss_and_grad(Case(*(tensor.to(cuda) for tensor in case)))
    torch.testing.assert_close(tuple(tensor.cpu() for tensor in actual), expected)


def test_cuda_ignores_invalid_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    good = make_case(cuda, num_rows=20, num_clusters=3)
    bad = Case(*(tensor.clone() for tensor in good[:4]))
    bad.labels[[2, 3]] = torch.tensor([6, -1], device=cuda)
    bad.clusters[[4, 5]] = torch.tensor([20, -2], device=cuda)
    ignored = torch.tensor([2, 3, 4, 5])
    keep = torch.ones(20, dtype=torch.bool, device=cuda)
    keep[ignored] = False
    loss, grad = loss_and_grad(bad)
    clusters = good.clusters[keep]
    numbered = torch.where(clusters == -1, -1, clusters.clamp(min=0).unique(return_inverse=True)[1])
    part = Case(good.probs[keep], good.labels[keep], good.weights[keep], numbered)
    part_loss, part_grad = loss_and_grad(part)
    torch.testing.assert_close(loss, part_loss * 16 / 20)  # R includes ignored rows
    torch.testing.assert_close(grad[keep], part_grad * 16 / 20)
    assert not grad[ignored].any()


def test_cuda_inconsistent_counts() -> None:
    case = make_case(cuda, num_rows=20)
    for counts, rows in [([12], 12), ([-5, 12], 12), ([12, 2**62], 20), ([], 0)]:
        losses, grad = loss_and_grad(case._replace(counts=torch.tensor(counts, dtype=torch.int64)))
        assert losses.isfinite().all()
        assert not grad[rows:].any()


def test_cuda_nan_propagates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    for name in ("probs", "weights"):
        case = Case(*(tensor.to(cuda) for tensor in broken(name, 5, torch.nan)[:4]))
        assert pcl_loss(*case).isnan()


@pytest.mark.parametrize("counts", [None, [300, 200]])
def test_cuda_synchronization_streams_and_graphs(counts: list[int] | None) -> None:
    case, other = (
        differentiable(make_case(cuda, torch.float32, counts=counts, num_rows=500, seed=seed))
        for seed in (0, 1)
    )
    op_contract.assert_no_synchronization(pcl_loss, case)
    if counts is not None:
        case, other = (c._replace(counts=c.counts.to(cuda)) for c in (case, other))
    op_contract.assert_no_synchronization(pcl_loss, case)
    op_contract.assert_uses_current_stream(pcl_loss, case)
    op_contract.assert_graph_capture(pcl_loss, case, other)


@pytest.mark.gpu_memory(32)
def test_cuda_more_than_2_to_31_elements() -> None:
    num_rows, num_columns = 2**27, 17
    assert num_rows * num_columns > 2**31
    probs = torch.full((num_rows, num_columns), 0.5, dtype=torch.float16, device=cuda)
    labels = torch.zeros(num_rows, dtype=torch.int64, device=cuda)
    clusters = labels - 1
    labels[-2:], clusters[-2:] = 16, 1
    probs[-2:, 16] = torch.tensor([0.125, 0.375], dtype=torch.float16, device=cuda)
    weights = torch.zeros(num_rows, dtype=torch.float16, device=cuda)
    weights[-2:] = 1
    upstream = torch.tensor(16384.0, dtype=torch.float16, device=cuda)
    _, grad = loss_and_grad(Case(probs, labels, weights, clusters), upstream)
    expected = torch.zeros(3, num_columns)
    expected[1:, 16] = -16384 * 2 / 0.5 / num_rows
    torch.testing.assert_close(grad[-3:].cpu().float(), expected)
    assert grad.count_nonzero() == 2


def test_cuda_more_images_than_grid_rows() -> None:
    counts = torch.zeros(100_000, dtype=torch.int64)
    counts[[0, 70_000, 99_999]] = torch.tensor([10, 20, 7])
    case = make_case("cpu", counts=counts.tolist())
    expected = loss_and_grad(case)
    actual = loss_and_grad(Case(*(tensor.to(cuda) for tensor in case)))
    torch.testing.assert_close(tuple(tensor.cpu() for tensor in actual), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    assert_matches_reference(make_case(cuda, dtype, counts=[40, 0, 1100], num_clusters=40))
    assert_matches_reference(make_case(cuda, dtype, num_rows=70))
