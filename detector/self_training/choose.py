"""Self-training: turns the detections of a weak detector into boxes for training another detector."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from detector.layers import nms
from detector.modeling.postprocess import postprocess, vote_boxes
from detector.structures import (
    Annotation,
    Detections,
    Hints,
    ReviewedBoxes,
    Scores,
    box_area,
    box_intersection,
    box_iou,
)

# Least share of a part that lies in its group, and largest IoU of two parts of a group.
_INSIDE, _DISJOINT = 0.85, 0.1


def pseudo_boxes(
    scores: Scores,
    labels: Tensor,
    *,
    score_threshold: float,
    relative: bool = False,
    nms_threshold: float = 0.3,
    drop_inside: float = 0.0,
    drop_groups: float = 0.0,
    voting_iou: float = 0.0,
    each_label: bool = True,
    reviewed: ReviewedBoxes | None = None,
    hints: Hints | None = None,
) -> Detections:
    """Boxes to learn from: for each class of the image, the best box and all boxes above a threshold.

    Reviewed boxes come first, with the score 1. They are all boxes of an image whose review is complete;
    else they replace the best box of their class, and suppress others as NMS does.

    Where no box is reviewed, a class with points has a box for each: the best that contains this point of the
    class and no other. Of a class with a count, no more boxes are taken.

    Args:
        scores: of every proposal of the image, on any device. Boxes of less than a pixel are not taken.
        labels: (C,) on the CPU, 1 where the image shows the class, else 0: no other class gets a box.
        score_threshold: beside the best box of a class, boxes with higher scores are taken; 1: none.
        relative: the threshold is a share of the best score of the class in the image.
        nms_threshold: of two boxes of a class whose IoU is greater, the lower-scored is dropped.
        drop_inside: a box is dropped, whatever its score, if at least this share of it is in a larger box of
            its class; 0: none is.
        drop_groups: before that, a box is dropped if two or more smaller boxes of its class that do not
            overlap cover at least this share of it: it holds a group of objects; 0: none is.
        voting_iou: of :func:`detector.modeling.postprocess.vote_boxes`, which moves the boxes that are left;
            not those at points.
        each_label: the best box of a class is taken, whatever its score; False: the boxes are of a part of
            the image, which need not show the class.
    """
    if reviewed is not None and reviewed.complete:
        return _as_detections(scores.image_id, reviewed)
    # Boxes that are not taken have the score -1; -0.5 is the threshold that leaves out these alone.
    boxes, values = scores.boxes.cpu(), scores.scores.cpu()
    sides = boxes[..., 2:] - boxes[..., :2]  # (R, C, 2); a regressed box may have been clipped to nothing
    scores = Scores(scores.image_id, boxes, values.where(sides.amin(dim=2) >= 1, -1.0))
    hints = None if reviewed is not None else hints
    if hints is not None:  # classes with points get their boxes from _at_points
        labels = ((labels > 0) | (hints.counts > 0)).index_fill(0, hints.labels, False)
    shown = replace(scores, scores=torch.where(labels > 0, scores.scores, -1.0))
    found = postprocess(
        shown, score_threshold=-0.5, nms_threshold=nms_threshold, max_detections=shown.scores.numel()
    )
    is_best = torch.zeros(len(found), dtype=torch.bool)
    threshold = torch.full_like(found.scores, score_threshold)
    for label in found.labels.unique():
        rows = (found.labels == label).nonzero()[:, 0]  # best first
        is_best[rows[0]] = True
        if relative:
            threshold[rows] *= found.scores[rows[0]]
    above = found.scores > threshold
    keep = (is_best & each_label) | above
    if reviewed is not None:
        same = found.labels[:, None] == reviewed.labels  # (D, G)
        suppressed = (same & (box_iou(found.boxes, reviewed.boxes) > nms_threshold)).any(dim=1)
        keep = torch.where(same.any(dim=1), above & ~suppressed, keep)
    found = _without_parts(_without_groups(found[keep], drop_groups), drop_inside)
    found = vote_boxes(found, scores, voting_iou)
    if reviewed is not None:
        return _joined(_as_detections(scores.image_id, reviewed), found)
    return found if hints is None else _joined(_at_points(scores, hints), _counted(found, hints))


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """The mean scores and boxes of several detectors for the same proposals of one image."""
    boxes, values = (
        torch.stack([getattr(result, name) for result in scores]).mean(dim=0) for name in ("boxes", "scores")
    )
    return replace(scores[0], boxes=boxes, scores=values)


def inside_larger(found: Detections, share: float) -> Tensor:
    """(D, D) whether at least `share` of box i lies in box j, which is larger and of the same class."""
    area = box_area(found.boxes)
    inside = box_intersection(found.boxes, found.boxes) >= share * area[:, None]
    return inside & (area[:, None] < area) & (found.labels[:, None] == found.labels)


def _without_parts(found: Detections, share: float) -> Detections:
    return found[~inside_larger(found, share).any(dim=1)] if share else found


def _without_groups(found: Detections, share: float) -> Detections:
    if not share:
        return found
    groups = torch.zeros(len(found), dtype=torch.bool)
    for row, inside in enumerate(inside_larger(found, _INSIDE).T):
        parts, whole = found[inside], found.boxes[row : row + 1]
        parts = parts[nms(parts.boxes, parts.scores, _DISJOINT)]
        filled = box_intersection(parts.boxes, whole).sum() / box_area(whole)
        groups[row] = len(parts) > 1 and bool(filled >= share)
    return found[~groups]


def _counted(found: Detections, hints: Hints) -> Detections:
    """The best boxes of each class with a count, at most as many as the count; all boxes of others."""
    rank = (found.labels[:, None] == found.labels).tril(diagonal=-1).sum(dim=1)  # in the class
    most = hints.counts[found.labels]
    return found[(most == 0) | (rank < most)]


def _at_points(scores: Scores, hints: Hints) -> Detections:
    """The best box at each point, if there is one that contains this point of the class and no other."""
    boxes = scores.boxes[:, hints.labels]  # (R, P, 4)
    alone = [hints.contains_single_point(boxes[:, point])[:, point] for point in range(len(hints.labels))]
    held = torch.stack(alone, dim=1) if alone else boxes.new_zeros(len(boxes), 0, dtype=torch.bool)
    values = scores.scores[:, hints.labels].where(held, -1.0)  # (R, P)
    points = held.any(dim=0).nonzero()[:, 0]
    rows = values[:, points].argmax(dim=0) if len(points) else points
    return Detections(scores.image_id, boxes[rows, points], values[rows, points], hints.labels[points])


def _as_detections(image_id: str, reviewed: ReviewedBoxes) -> Detections:
    return Detections(image_id, reviewed.boxes, torch.ones(len(reviewed.boxes)), reviewed.labels)


def _joined(first: Detections, second: Detections) -> Detections:
    return Detections(
        first.image_id,
        torch.cat([first.boxes, second.boxes]),
        torch.cat([first.scores, second.scores]),
        torch.cat([first.labels, second.labels]),
    )


def agreement(pseudo: Sequence[Annotation], annotations: Sequence[Annotation]) -> dict[str, float]:
    """The number of pseudo boxes, and their precision and recall in percent, by the ground truth.

    A pseudo box is a true positive if its IoU with a ground-truth box of its class is at least 0.5, even if
    another one matches that box too, which is then found. Difficult objects count, iscrowd regions do not.
    """
    count = true_positives = truth = found = 0
    for image, annotation in zip(pseudo, annotations, strict=True):
        boxes, labels = annotation.boxes[~annotation.crowd], annotation.labels[~annotation.crowd]
        match = (image.labels[:, None] == labels) & (box_iou(image.boxes, boxes) >= 0.5)  # (D, G)
        count += match.shape[0]
        true_positives += int(match.any(dim=1).sum())
        truth += match.shape[1]
        found += int(match.any(dim=0).sum())
    return {
        "count": count,
        "precision": 100 * true_positives / count if count else 0.0,
        "recall": 100 * found / truth if truth else 0.0,
    }
