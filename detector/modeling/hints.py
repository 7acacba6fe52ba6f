"""Seeds from the points and counts that a person gave for an image, instead of those of a rule."""

from typing import Any

import torch
from torch import Tensor

from detector.layers import assign_to_seeds
from detector.layers.proposal_clusters import ProposalClusters
from detector.structures import Batch, Hints


def with_hints(found: ProposalClusters, scores: Tensor, batch: Batch, **assignment: Any) -> ProposalClusters:
    """Pseudo labels (sum R,), or (K, sum R) of K streams, with those of images with hints assigned again.

    A class with points has one seed for each: the proposal with the highest score of the class that contains
    this point of the class and no other. A class with the count n keeps the n seeds with the highest weights.

    Args:
        scores: (sum R, C) or (K, sum R, C), from which the pseudo labels were made.
        assignment: keyword arguments of :func:`assign_to_seeds`.
    """
    if not any(batch.hints):
        return found
    # Views (K, sum R) of new tensors
    fields = [field.clone() for field in found]
    streams = [field.view(-1, len(batch.rois)) for field in fields]
    start = 0
    for count, hints in zip(batch.counts.tolist(), batch.hints, strict=True):
        rows, start = slice(start, start + count), start + count
        if hints is None or count == 0:
            continue
        boxes = batch.rois[rows, 1:]
        for stream, each in enumerate(scores.view(-1, *scores.shape[-2:])):
            one = ProposalClusters(*(field[stream, rows] for field in streams))
            changed = assign_to_seeds(boxes, *_seeds(boxes, each[rows], one, hints), **assignment)
            for field, values in zip(streams, changed, strict=True):
                field[stream, rows] = values.to(field.dtype)
    return ProposalClusters(*fields)


def _seeds(
    boxes: Tensor, scores: Tensor, found: ProposalClusters, hints: Hints
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, classes and weights (S,) of the seeds of one image; those of points come first.

    Args:
        boxes: (R, 4).
        scores: (R, C).
        found: pseudo labels (R,), whose seeds are kept of classes without points.
    """
    rows, classes = _pointed(boxes, scores, hints)
    own = (found.centers >= 0) & (found.centers == found.clusters)  # another seed may be at the same place
    own[rows] = False
    others = own.nonzero()[:, 0]  # synchronizes with the host
    others = others[found.weights[others].argsort(descending=True, stable=True)]
    labels = found.labels[others] - 1
    rank = (labels[:, None] == labels).tril(diagonal=-1).sum(dim=1)  # among the seeds of the class
    most = hints.counts[labels]
    keep = ((most == 0) | (rank < most)) & ~(labels[:, None] == hints.labels).any(dim=1)
    weights = torch.cat([scores[rows, classes].to(found.weights.dtype), found.weights[others[keep]]])
    return torch.cat([rows, others[keep]]), torch.cat([classes, labels[keep]]), weights


def _pointed(boxes: Tensor, scores: Tensor, hints: Hints) -> tuple[Tensor, Tensor]:
    """Rows and classes (S,) of the seeds of points; a point that no free proposal contains alone has none."""
    candidates, rows, classes = hints.alone(boxes), [], []
    for point, label in enumerate(hints.labels.tolist()):
        values = scores[:, label].where(candidates[:, point], -1.0)
        row = int(values.argmax())
        if values[row] >= 0:
            rows.append(row)
            classes.append(label)
            candidates[row] = False
    seeds = torch.tensor([rows, classes], dtype=torch.int64, device=boxes.device)
    return seeds[0], seeds[1]
