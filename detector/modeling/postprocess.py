"""From scores of proposals to detections."""

from dataclasses import replace

import torch
from torch import Tensor

from detector.layers import batched_nms
from detector.structures import Detections, Scores, box_iou


def postprocess(
    scores: Scores,
    *,
    score_threshold: float | Tensor = 1e-5,
    nms_threshold: float = 0.3,
    max_per_class: int = 0,
    max_detections: int = 100,
) -> Detections:
    """The boxes of one image after non-maximum suppression by class, best first.

    Args:
        score_threshold: a box is kept where its score is greater; or one (C,) for each class, on the device.
        nms_threshold: of two boxes of a class whose IoU is greater, the lower-scored is dropped.
        max_per_class: maximum number of boxes of a class that enter the suppression; 0: all.
        max_detections: maximum number of boxes of the image. Both are for each tile of one that was cut.
    """
    candidates = scores.scores > score_threshold  # (R, C)
    if max_per_class:
        best = scores.scores.sort(dim=0, descending=True, stable=True).indices[: max_per_class * scores.tiles]
        candidates &= torch.zeros_like(candidates).scatter_(0, best, True)
    rows, labels = candidates.nonzero().unbind(dim=1)  # (D,), (D,)
    boxes, values = scores.boxes[rows, labels], scores.scores[rows, labels]  # (D, 4), (D,)
    keep = batched_nms(boxes, values, labels, nms_threshold)  # best first
    return Detections(scores.image_id, boxes, values, labels)[keep[: max_detections * scores.tiles]]


def vote_boxes(found: Detections, scores: Scores, voting_iou: float) -> Detections:
    """Replace each box by the mean of the boxes around it, weighted by their scores and IoUs with it.

    A weak detector often gives its best score to a part of an object, and its next best to larger boxes: the
    mean is nearer to the object than the best (arXiv 1505.01749, section 5, weights by score alone). Nearer
    boxes count more, as a looser mean overlaps an object, but does not fit it.

    Args:
        found: boxes of `scores`.
        voting_iou: least IoU with the found box to enter the mean; 0: boxes stay unchanged.
    """
    if not voting_iou:
        return found
    boxes = found.boxes.clone()
    for label in found.labels.unique().tolist():
        same, voters = found.labels == label, scores.boxes[:, label]
        overlap = box_iou(found.boxes[same], voters)  # (D, R)
        # A box votes for itself, at least.
        weights = overlap * scores.scores[:, label].clamp(min=1e-12).where(overlap >= voting_iou, 0.0)
        boxes[same] = (weights @ voters / weights.sum(dim=1, keepdim=True)).to(boxes.dtype)
    return replace(found, boxes=boxes)
