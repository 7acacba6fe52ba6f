"""Pseudo labels and MIL scores of images with reviewed boxes, points or counts."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from detector.layers import assign_to_seeds
from detector.layers.proposal_clusters import ProposalClusters
from detector.structures import Batch, Hints, ReviewedBoxes, box_iou

_AT_OBJECT_IOU = 0.5  # from this IoU on, a proposal is at an object
T = TypeVar("T", ReviewedBoxes, Hints)


def with_reviewed(pseudo: ProposalClusters, batch: Batch, member_iou: float) -> ProposalClusters:
    """Pseudo labels (K, sum R) of K streams, with those of reviewed images replaced.

    A proposal whose IoU with a reviewed box is at least `member_iou` gets the class of the nearest one, and
    the weight 1. If the review of the image is complete, all others are background with the weight 1, else
    they are ignored: they may be other objects.
    """
    if not batch.reviewed:
        return pseudo
    fields = [field.clone() for field in pseudo]
    for rows, boxes, reviewed in _each_image(batch, batch.reviewed):
        for field, values in zip(fields, _labels(boxes, reviewed, member_iou), strict=True):
            field[:, rows] = values.to(field.dtype)
    return ProposalClusters(*fields)


def _labels(boxes: Tensor, reviewed: ReviewedBoxes, member_iou: float) -> ProposalClusters:
    """Labels (R,) of the proposals (R, 4) of one image.

    The center of a cluster is the proposal nearest to the object, by whose row it is numbered. Objects that
    have one center in common are one cluster, with the class of the first.
    """
    none = torch.full((len(boxes),), -1, dtype=torch.int64, device=boxes.device)
    weights = boxes.new_full((len(boxes),), float(reviewed.complete))
    if len(reviewed.boxes) == 0:
        return ProposalClusters(none + 1, weights, none, none)
    iou = box_iou(boxes, reviewed.boxes)  # (R, G)
    best, nearest = iou.max(dim=1)
    centers = iou.argmax(dim=0)  # (G,)
    first = (centers[:, None] == centers).int().argmax(dim=1)  # (G,), of the objects with the same center
    nearest = first[nearest]
    member = best >= member_iou
    return ProposalClusters(
        torch.where(member, reviewed.labels[nearest] + 1, 0),
        weights.where(~member, 1.0),
        torch.where(member, centers[nearest], -1),
        none.index_copy(0, centers, centers),
    )


def only_at_objects(mil: Tensor, batch: Batch) -> Tensor:
    """MIL scores (sum R, C), 0 where a proposal of a fully reviewed image is not at an object of the class.

    The score of such an image is then the sum over the proposals whose IoU with a box of the class is at
    least 0.5, which the MIL loss raises over all others: MIL learns where objects are, and finds better seeds
    in the other images.
    """
    if not batch.reviewed:
        return mil
    at_objects = torch.ones_like(mil)
    for rows, boxes, reviewed in _each_image(batch, batch.reviewed):
        if reviewed.complete:
            member = (box_iou(boxes, reviewed.boxes) >= _AT_OBJECT_IOU).to(mil.dtype)  # (R, G)
            objects = torch.zeros_like(mil[rows]).index_add(1, reviewed.labels, member)  # (R, C)
            at_objects[rows] = objects.clamp(max=1)
    return mil * at_objects


def _each_image(batch: Batch, known: Sequence[T | None]) -> Iterator[tuple[slice, Tensor, T]]:
    """Rows, boxes (R, 4) of the proposals, and the known value of each image that has both."""
    start = 0
    for boxes, value in zip(batch.boxes.split(batch.counts.tolist()), known, strict=True):
        if value is not None and len(boxes) > 0:
            yield slice(start, start + len(boxes)), boxes, value
        start += len(boxes)


def with_hints(pseudo: ProposalClusters, scores: Tensor, batch: Batch, **assignment: Any) -> ProposalClusters:
    """Pseudo labels (K, sum R) of K streams, with those of images with hints assigned again.

    A class with points has one seed for each: the proposal with the highest score of the class that contains
    this point of the class and no other. A class with the count n keeps the n seeds with the highest weights.

    Args:
        scores: (K, sum R, C), from which the pseudo labels were made.
        assignment: keyword arguments of :func:`assign_to_seeds`.
    """
    if not any(batch.hints):
        return pseudo
    fields = [field.clone() for field in pseudo]
    for rows, boxes, hints in _each_image(batch, batch.hints):
        for stream, stream_scores in enumerate(scores):
            one = ProposalClusters(*(field[stream, rows] for field in fields))
            changed = assign_to_seeds(boxes, *_seeds(boxes, stream_scores[rows], one, hints), **assignment)
            for field, values in zip(fields, changed, strict=True):
                field[stream, rows] = values.to(field.dtype)
    return ProposalClusters(*fields)


def _seeds(
    boxes: Tensor, scores: Tensor, pseudo: ProposalClusters, hints: Hints
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, classes and weights (S,) of the seeds of one image; those of points come first.

    Args:
        boxes: (R, 4).
        scores: (R, C).
        pseudo: labels (R,), whose seeds are kept of classes without points.
    """
    rows, classes = _pointed(boxes, scores, hints)
    own = (pseudo.centers >= 0) & (pseudo.centers == pseudo.clusters)  # another seed may be at the same place
    own[rows] = False
    others = own.nonzero()[:, 0]  # synchronizes with the host
    others = others[pseudo.weights[others].argsort(descending=True, stable=True)]
    labels = pseudo.labels[others] - 1
    rank = (labels[:, None] == labels).tril(diagonal=-1).sum(dim=1)  # among the seeds of the class
    most = hints.counts[labels]
    keep = ((most == 0) | (rank < most)) & ~(labels[:, None] == hints.labels).any(dim=1)
    weights = torch.cat([scores[rows, classes].to(pseudo.weights.dtype), pseudo.weights[others[keep]]])
    return torch.cat([rows, others[keep]]), torch.cat([classes, labels[keep]]), weights


def _pointed(boxes: Tensor, scores: Tensor, hints: Hints) -> tuple[Tensor, Tensor]:
    """Rows and classes (S,) of the seeds of points; a point that no free proposal contains alone has none."""
    candidates, rows, classes = hints.contains_single_point(boxes), [], []
    for point, label in enumerate(hints.labels.tolist()):
        values = scores[:, label].where(candidates[:, point], -1.0)
        row = int(values.argmax())
        if values[row] >= 0:
            rows.append(row)
            classes.append(label)
            candidates[row] = False
    seeds = torch.tensor([rows, classes], dtype=torch.int64, device=boxes.device)
    return seeds[0], seeds[1]
