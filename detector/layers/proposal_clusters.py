"""Pseudo labels from scores: which proposals of an image are taken for an object, for which, and how surely.

PCL (Tang et al., arXiv 1807.03342) groups the best-scored proposals of each class into clusters around a few
centres; OICR (Tang et al., arXiv 1704.00138) has one centre a class, the best proposal. Both then assign every
proposal to the nearest centre. Every tie is broken by a rule, so that equal inputs give equal clusters.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from detector.structures import box_iou

MIN_SCORE = 1e-9


class ProposalClusters(NamedTuple):
    """Pseudo labels of the proposals of a batch; rows as in the boxes given, cluster ids local to an image."""

    labels: Tensor  # (sum R,) int64: 1..C for members of a cluster, 0 for background
    weights: Tensor  # (sum R,) dtype of the scores: score of the nearest centre, 0 where ignored
    clusters: Tensor  # (sum R,) int64: cluster of a member, -1 for background
    centres: Tensor  # (sum R,) int64: the cluster whose centre this proposal is, -1 for all others


@torch.no_grad()
def proposal_clusters(
    boxes: Tensor,
    scores: Tensor,
    image_labels: Tensor,
    counts: Tensor,
    *,
    method: Literal["pcl", "oicr"],
    graph_iou: float = 0.4,
    max_centres: int = 5,
    member_iou: float = 0.5,
    ignore_iou: float = 0.1,
) -> ProposalClusters:
    """Cluster the proposals of each image of a batch around the centres of its positive classes.

    A proposal whose IoU with its nearest centre (ties: the lowest centre) is at least `member_iou` gets that
    centre's class; below, it is background; below `ignore_iou`, its weight is 0. An image without a positive
    class has no clusters and weights of 0.

    Args:
        boxes (Tensor[sum R, 4]): xyxy boxes of all images, in order; float.
        scores (Tensor[sum R, C]): class probabilities, clamped here to [1e-9, 1 - 1e-9].
        image_labels (Tensor[B, C]): 1 where the image shows the class, else 0.
        counts (Tensor[B]): proposals of each image, int64; their sum is sum R.
        method: "pcl" (several centres a class, from a graph of the top-ranking proposals) or "oicr" (one).
        graph_iou: two top-ranking proposals are neighbours if their IoU is greater (PCL).
        max_centres: most centres a class (PCL).

    Raises:
        ValueError: a shape, count, label or method is wrong, or a score is not finite (names the image).
    """
    _check(boxes, scores, image_labels, counts, method)
    centres_of = {
        "pcl": lambda b, s: _pcl_centres(b, s, graph_iou, max_centres),
        "oicr": lambda b, s: [int(s.argmax())],
    }[method]
    scores = scores.clamp(MIN_SCORE, 1 - MIN_SCORE)
    sizes = counts.tolist()
    images = zip(boxes.split(sizes), scores.split(sizes), image_labels, strict=True)
    parts = [_cluster_image(b, s, y, centres_of, member_iou, ignore_iou) for b, s, y in images]
    return ProposalClusters(*(torch.cat(field) for field in zip(*parts, strict=True)))


def _check(boxes: Tensor, scores: Tensor, image_labels: Tensor, counts: Tensor, method: str) -> None:
    if method not in ("pcl", "oicr"):
        raise ValueError(f"method is {method!r}, expected 'pcl' or 'oicr'")
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes have shape {tuple(boxes.shape)}, expected (sum R, 4)")
    if scores.ndim != 2 or len(scores) != len(boxes):
        raise ValueError(f"scores have shape {tuple(scores.shape)}, expected ({len(boxes)}, C) as the boxes")
    if image_labels.shape != (len(counts), scores.shape[1]):
        found, expected = tuple(image_labels.shape), (len(counts), scores.shape[1])
        raise ValueError(f"image_labels have shape {found}, expected (B, C) = {expected}")
    if int(counts.sum()) != len(boxes):
        raise ValueError(f"counts add up to {int(counts.sum())}, expected {len(boxes)} as the boxes")
    if not bool(((image_labels == 0) | (image_labels == 1)).all()):
        raise ValueError("image_labels hold values other than 0 and 1")
    finite = torch.isfinite(scores).all(dim=1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        image = int(torch.searchsorted(counts.cumsum(0).cpu(), row, right=True))
        raise ValueError(f"scores of image {image} of the batch are not finite (row {row})")


def _cluster_image(boxes, scores, labels, centres_of, member_iou, ignore_iou) -> ProposalClusters:
    """The clusters of one image: boxes (R, 4), scores (R, C), labels (C,)."""
    nothing = torch.full((len(boxes),), -1, dtype=torch.int64, device=boxes.device)  # (R,)
    rows, classes = _find_centres(boxes, scores, labels, centres_of)
    if not rows:
        zero = torch.zeros_like(nothing)
        return ProposalClusters(zero, zero.to(scores.dtype), nothing, nothing)
    rows = torch.tensor(rows, device=boxes.device)  # (N,)
    classes = torch.tensor(classes, device=boxes.device)  # (N,)
    overlap, nearest = box_iou(boxes, boxes[rows]).max(dim=1)  # (R,), (R,): the first maximum wins
    member = overlap >= member_iou
    weights = scores[rows, classes][nearest]  # (R,)
    centres = nothing.index_put((rows,), torch.arange(len(rows), device=boxes.device))
    return ProposalClusters(
        labels=torch.where(member, classes[nearest] + 1, 0),
        weights=torch.where(overlap < ignore_iou, 0, weights),
        clusters=torch.where(member, nearest, -1),
        centres=centres,
    )


def _find_centres(boxes, scores, labels, centres_of) -> tuple[list[int], list[int]]:
    """Rows and classes of the centres, class by class; a chosen row is out of the pool for later classes."""
    rows: list[int] = []
    classes: list[int] = []
    pool = torch.arange(len(boxes), device=boxes.device)  # rows still to be chosen from
    for c in labels.nonzero()[:, 0].tolist():
        if len(pool) == 0:
            break
        chosen = pool[centres_of(boxes[pool], scores[pool, c])]
        rows += chosen.tolist()
        classes += [c] * len(chosen)
        pool = pool[~torch.isin(pool, chosen)]
    return rows, classes


def _pcl_centres(boxes: Tensor, scores: Tensor, graph_iou: float, max_centres: int) -> list[int]:
    """Rows of one class's centres among boxes (R, 4) with scores (R,), best first.

    Greedy on the graph of the top-ranking proposals: the node of the most remaining neighbours (ties: the lowest
    row) becomes a centre and takes its neighbours with it, until `max_centres` nodes or fewer remain.
    """
    top = top_ranking(scores).nonzero()[:, 0]  # (T,)
    neighbours = box_iou(boxes[top], boxes[top]) > graph_iou  # (T, T)
    neighbours.fill_diagonal_(True)  # also of a box without area, whose IoU with itself is 0
    remaining = torch.ones(len(top), dtype=torch.bool, device=boxes.device)
    found: list[int] = []
    values: list[float] = []
    while not found or int(remaining.sum()) > max_centres:
        degrees = (neighbours & remaining).sum(dim=1) * remaining  # (T,)
        centre = int(degrees.argmax())  # the first maximum wins
        group = neighbours[centre] & remaining  # (T,)
        found.append(int(top[centre]))
        values.append(float(scores[top][group].max()))
        remaining &= ~group
    order = sorted(range(len(found)), key=lambda i: -values[i])  # stable: first found first
    return [found[i] for i in order[:max_centres]]


def top_ranking(scores: Tensor, block: int = 512) -> Tensor:
    """The highest of the three clusters of the optimal 1-D 3-means of scores (R,), as a mask (R,).

    Clusters of sorted values are intervals, so the optimum is a pair of thresholds between distinct values: the pair
    with the largest sum of S_k^2 / n_k over the three intervals (S_k the sum, n_k the count), which is the smallest
    within-cluster variance. Ties: the smallest top cluster. Fewer than three distinct values: as many clusters.
    """
    values, repeats = scores.double().unique(return_counts=True)  # (M,) ascending, (M,)
    if len(values) < 3:
        return scores.double() == values[-1]
    n = torch.cat([repeats.new_zeros(1), repeats.cumsum(0)]).double()  # (M + 1,) count below a threshold
    s = torch.cat([values.new_zeros(1), (values * repeats).cumsum(0)])  # (M + 1,) sum below a threshold
    low = torch.arange(1, len(values) - 1, device=scores.device)  # the lower threshold, before values[low]
    best, best_high = -float("inf"), 0
    for start in range(2, len(values), block):  # in blocks: memory stays linear in M
        high = torch.arange(start, min(start + block, len(values)), device=scores.device)[:, None]
        middle = (s[high] - s[low]) ** 2 / (n[high] - n[low])  # (block, M - 2)
        fit = (s[low] ** 2 / n[low] + middle).masked_fill(low >= high, -float("inf")).amax(dim=1)
        fit += ((s[-1] - s[high]) ** 2 / (n[-1] - n[high]))[:, 0]  # (block,)
        value = float(fit.max())
        if value >= best:
            best, best_high = value, int(high[(fit == value).nonzero()[-1, 0], 0])
    return scores.double() >= values[best_high]
