"""Reference implementation of proposal_clusters in plain PyTorch, one class at a time."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from detector.layers.proposal_clusters import ProposalClusters, assign_to_seeds
from detector.structures import box_iou

Centers = tuple[list[int], list[float]]  # rows and weights
FindCenters = Callable[[Tensor, Tensor, tuple[float, float]], Centers]


def proposal_clusters(
    boxes: Tensor,
    scores: Tensor,
    image_labels: Tensor,
    counts: Tensor,
    *,
    method: str,
    graph_iou: float = 0.4,
    max_centers: int = 5,
    nms_iou: float = 0.2,
    top_share: float = 0.15,
    **assignment: float,
) -> ProposalClusters:
    """See :func:`detector.layers.proposal_clusters`; `assignment` are options of :func:`assign_to_seeds`."""
    find = {
        "pcl": lambda b, s, limits: pcl_centers(b, s, limits, graph_iou, max_centers),
        "oicr": lambda b, s, limits: ([int(s.argmax())], [float(s.max())]),
        "mist": lambda b, s, limits: mist_centers(b, s, nms_iou, top_share),
    }[method]
    probs = scores.float() if scores.dtype.itemsize < 4 else scores
    probs = probs.clamp(1e-9, 1 - 1e-9)

    def cluster_stream(stream: Tensor) -> ProposalClusters:
        images = zip(boxes.split(sizes), stream.split(sizes), image_labels, strict=True)
        parts = [cluster_image(b, s, y, find, **assignment) for b, s, y in images]
        empty = boxes.new_zeros(0, dtype=torch.int64)
        parts.append(ProposalClusters(empty, stream.new_zeros(0), empty, empty))  # for batches without images
        found = ProposalClusters(*(torch.cat(field) for field in zip(*parts, strict=True)))
        return found._replace(weights=found.weights.to(scores.dtype))

    sizes = counts.tolist()
    if scores.dim() == 2:
        return cluster_stream(probs)
    streams = [cluster_stream(stream) for stream in probs]
    return ProposalClusters(*(torch.stack(field) for field in zip(*streams, strict=True)))


def cluster_image(
    boxes: Tensor, scores: Tensor, labels: Tensor, find: FindCenters, **assignment: float
) -> ProposalClusters:
    """Cluster one image: boxes (R, 4), scores (R, C), labels (C,)."""
    rows: list[int] = []
    classes: list[int] = []
    values: list[float] = []
    pool = torch.arange(len(boxes), device=boxes.device)  # rows that no class has selected yet
    for c in labels.nonzero()[:, 0].tolist():
        if len(pool) == 0:
            break
        limits = float(scores[:, c].min()), float(scores[:, c].max())
        found, weights = find(boxes[pool], scores[pool, c], limits)
        chosen = pool[found]
        rows += chosen.tolist()
        classes += [c] * len(chosen)
        values += weights
        pool = pool[~torch.isin(pool, chosen)]
    return assign_to_seeds(
        boxes,
        torch.tensor(rows, dtype=torch.int64, device=boxes.device),
        torch.tensor(classes, dtype=torch.int64, device=boxes.device),
        torch.tensor(values, dtype=scores.dtype, device=boxes.device),
        **assignment,
    )


def pcl_centers(
    boxes: Tensor, scores: Tensor, limits: tuple[float, float], graph_iou: float, max_centers: int
) -> Centers:
    """Centers of one class among boxes (R, 4) with scores (R,), best first; `limits` as in `fixed_point`."""
    top = top_ranking(scores, limits).nonzero()[:, 0]  # (T,)
    neighbors = box_iou(boxes[top], boxes[top]) > graph_iou  # (T, T)
    neighbors.fill_diagonal_(True)  # the IoU of an empty box with itself is 0
    remaining = torch.ones(len(top), dtype=torch.bool, device=boxes.device)
    rows: list[int] = []
    weights: list[float] = []
    while not rows or int(remaining.sum()) > max_centers:
        degrees = (neighbors & remaining).sum(dim=1) * remaining  # (T,)
        center = int((degrees == degrees.max()).nonzero()[0])  # the first maximum
        group = neighbors[center] & remaining  # (T,)
        rows.append(int(top[center]))
        weights.append(float(scores[top][group].max()))
        remaining &= ~group
    order = sorted(range(len(rows)), key=lambda i: -weights[i])[:max_centers]  # stable sort
    return [rows[i] for i in order], [weights[i] for i in order]


def mist_centers(boxes: Tensor, scores: Tensor, nms_iou: float, top_share: float) -> Centers:
    """Centers of one class among boxes (R, 4) with scores (R,), best first."""
    count = max(1, min(len(boxes), math.ceil(top_share * len(boxes))))
    order = scores.argsort(descending=True, stable=True)[:count]  # (T,)
    suppresses = box_iou(boxes[order], boxes[order]) > nms_iou  # (T, T)
    kept: list[int] = []
    for node in range(count):
        if not any(suppresses[node, k] for k in kept):
            kept.append(node)
    return order[kept].tolist(), scores[order[kept]].tolist()


def fixed_point(scores: Tensor, limits: tuple[float, float]) -> Tensor:
    """Convert scores (R,) to int64 fixed point with 46 fractional bits relative to their range.

    Sums of such numbers are exact in any order, so every device finds the same optimum. `limits` are the
    lowest and highest score of the class among all proposals of the image.
    """
    lowest, highest = limits
    scale = math.ldexp(1.0, 46 - math.frexp(highest - lowest)[1]) if highest > lowest else 1.0
    return ((scores.double() - lowest) * scale).long()


def top_ranking(scores: Tensor, limits: tuple[float, float], block: int = 512) -> Tensor:
    """Mask (R,) of the highest of the three clusters of an optimal 1-D 3-means of scores (R,).

    In one dimension the clusters are intervals of the sorted values, so the optimum is a pair of thresholds
    between distinct values: the pair that maximizes the sum of S_k^2 / n_k over the intervals (S_k the sum,
    n_k the count), which minimizes the within-cluster variance. Ties go to the smallest top cluster. Fewer
    than three distinct values form one cluster each.
    """
    numbers = fixed_point(scores, limits)
    values, repeats = numbers.unique(return_counts=True)  # (M,) ascending, (M,)
    if len(values) < 3:
        return numbers == values[-1]
    n = torch.cat([repeats.new_zeros(1), repeats.cumsum(0)])  # (M + 1,) counts below each threshold
    s = torch.cat([values.new_zeros(1), (values * repeats).cumsum(0)])  # (M + 1,) sums below each threshold

    def fit(begin: Tensor, end: Tensor) -> Tensor:
        return (s[end] - s[begin]).double().square() / (n[end] - n[begin]).double()

    first, last = torch.zeros_like(n[0]), torch.full_like(n[0], len(values))
    low = torch.arange(1, len(values) - 1, device=scores.device)  # lower thresholds, just below values[low]
    best, best_high = -math.inf, 0
    for start in range(2, len(values), block):  # in blocks, for memory linear in M
        high = torch.arange(start, min(start + block, len(values)), device=scores.device)[:, None]
        fits = fit(first, low) + fit(low, high) + fit(high, last)  # (block, M - 2)
        fits = fits.masked_fill(low >= high, -math.inf).amax(dim=1)  # (block,)
        if float(fits.max()) >= best:
            best = float(fits.max())
            best_high = int(high[(fits == best).nonzero()[-1, 0], 0])
    return numbers >= values[best_high]
