"""The 3-means of proposal_clusters, compared with brute force and with scikit-learn."""

import numpy as np
import pytest
import torch
from torch import Tensor

from detector.layers import proposal_clusters
from detector.layers.reference_clusters import top_ranking


def top_count_of_op(scores: Tensor) -> int:
    """Size of the top cluster. All boxes are equal, so its first member is the center."""
    ascending = scores.sort()[0]
    boxes = torch.tensor([[0.0, 0, 10, 10]]).expand(len(scores), 4)
    found = proposal_clusters(
        boxes, ascending[:, None], torch.ones(1, 1), torch.tensor([len(scores)]), method="pcl"
    )
    return len(scores) - int((found.centers == 0).nonzero())


def inertia(scores: np.ndarray, sizes: tuple[int, ...]) -> float:
    """The sum of squared distances to the means of intervals of sorted scores."""
    parts = np.split(np.sort(scores), np.cumsum(sizes)[:-1])
    return sum(((part - part.mean()) ** 2).sum() for part in parts)


def best_inertia(scores: np.ndarray, top: int | None = None) -> float:
    """The smallest inertia of three intervals by brute force; `top`: the size of the highest interval."""
    count = len(scores)
    highs = range(1, count - 1) if top is None else [top]
    return min(
        inertia(scores, (low, count - high - low, high)) for high in highs for low in range(1, count - high)
    )


def test_three_means_is_optimal() -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        count = int(draw.integers(3, 12))
        scores = draw.random(count) ** int(draw.choice([1, 4, 20]))
        top = top_count_of_op(torch.from_numpy(scores))
        assert best_inertia(scores, top) == pytest.approx(best_inertia(scores), rel=0, abs=1e-12)


def test_three_means_is_never_worse_than_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    draw = np.random.default_rng(0)
    for number in range(60):
        scores = draw.random(int(draw.integers(4, 30))) ** int(draw.choice([1, 4, 20]))
        baseline = cluster.KMeans(n_clusters=3, n_init=3, random_state=number).fit(scores[:, None])
        top = top_count_of_op(torch.from_numpy(scores))
        assert best_inertia(scores, top) <= baseline.inertia_ + 1e-12


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5], 1),
        ([0.5, 0.5], 2),
        ([0.5, 0.25], 1),
        ([0.5, 0.25, 0.5], 2),
        ([0.125, 0.25, 0.375, 0.5], 1),  # all three partitions are optimal
        ([0.125, 0.25, 0.25, 0.5, 0.5, 0.5], 3),
        ([1e-12, 1e-10, 0.5], 1),  # scores below 1e-9 are equal after clamping
        ([1.0, 2.0, 0.5, 0.25], 2),  # and scores above 1
    ],
)
def test_three_means_ties(scores: list[float], expected: int) -> None:
    for dtype in (torch.float64, torch.float32):
        values = torch.tensor(scores, dtype=dtype)
        assert top_count_of_op(values) == expected
        values = values.clamp(1e-9, 1 - 1e-9)
        assert int(top_ranking(values, (float(values.min()), float(values.max()))).sum()) == expected


def test_three_means_of_nearly_equal_scores() -> None:
    # Differences of 2^-50 would be lost in a sum of squares of the scores.
    steps = torch.tensor([0, 1, 2, 10, 11, 12, 30, 31], dtype=torch.float64)
    assert top_count_of_op(0.5 + steps * 2**-50) == 2
