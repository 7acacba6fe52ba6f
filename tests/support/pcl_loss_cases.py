"""Test inputs for pcl_loss, and its comparison with the reference."""

from typing import NamedTuple

import torch
from torch import Tensor

from detector.layers import pcl_loss, reference


class Case(NamedTuple):
    """The arguments of pcl_loss."""

    probs: Tensor
    labels: Tensor
    weights: Tensor
    clusters: Tensor
    counts: Tensor | None = None


def make_case(
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
    *,
    counts: list[int] | None = None,
    num_rows: int = 37,
    num_classes: int = 5,
    num_clusters: int = 4,
    seed: int = 0,
) -> Case:
    """Random proposals of one image or, with `counts`, several; about 1/3 background, noncontiguous ids."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [num_rows] if counts is None else counts
    labels, clusters = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.int64)]
    for size in sizes:
        ids = torch.randperm(max(size, 1), generator=generator)[:num_clusters]
        classes = torch.randint(1, num_classes + 1, (len(ids),), generator=generator)
        choice = torch.randint(-(len(ids) // 2) - 1, len(ids), (size,), generator=generator)
        member = choice >= 0
        clusters.append(torch.where(member, ids[choice], -1))
        labels.append(torch.where(member, classes[choice], 0))
    rows = sum(sizes)
    probs = torch.randn(rows, num_classes + 1, generator=generator, dtype=torch.float64).softmax(dim=1)
    weights = torch.rand(rows, generator=generator, dtype=torch.float64)
    return Case(
        probs.to(device, dtype),
        torch.cat(labels).to(device),
        weights.to(device, dtype),
        torch.cat(clusters).to(device),
        None if counts is None else torch.tensor(counts, dtype=torch.int64),
    )


def loss_and_grad(case: Case, upstream: Tensor | None = None, function=pcl_loss) -> tuple[Tensor, Tensor]:
    probs = case.probs.detach().requires_grad_()
    loss = function(probs, *case[1:])
    upstream = torch.ones_like(loss) if upstream is None else upstream
    return loss.detach(), torch.autograd.grad(loss, probs, upstream)[0]


def differentiable(case: Case) -> Case:
    return case._replace(probs=case.probs.detach().requires_grad_())


def in_float64(case: Case) -> Case:
    return case._replace(probs=case.probs.double(), weights=case.weights.double())


def assert_matches_reference(case: Case, upstream: Tensor | None = None) -> None:
    """Compare loss and gradient with those of the reference in float64."""
    exact_upstream = None if upstream is None else upstream.double()
    expected = loss_and_grad(in_float64(case), exact_upstream, reference.pcl_loss)
    actual = loss_and_grad(case, upstream)
    # wider than torch's default in float32 because sums are in another order
    tolerance = {"rtol": 2e-6, "atol": 1e-6} if case.probs.dtype == torch.float32 else {}
    torch.testing.assert_close(actual, tuple(t.to(case.probs.dtype) for t in expected), **tolerance)


# ---- invalid values ----


def broken(name: str, index: int, value: float) -> Case:
    """4 background rows, 3 of cluster 0 (class 1) and 3 of cluster 2 (class 3), with one invalid value."""
    case = Case(
        torch.full((10, 4), 0.25),
        torch.tensor([0, 0, 0, 0, 1, 1, 1, 3, 3, 3]),
        torch.ones(10),
        torch.tensor([-1, -1, -1, -1, 0, 0, 0, 2, 2, 2]),
    )
    getattr(case, name)[index] = value
    return case


def miscounted(*counts: int) -> Case:
    return broken("weights", 0, 1)._replace(counts=torch.tensor(counts))
