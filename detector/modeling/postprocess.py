"""From scores of proposals to detections."""

import torch
from torch import Tensor

from detector.layers import batched_nms
from detector.structures import Detections, Scores


def postprocess(
    scores: Scores,
    *,
    score_threshold: float = 1e-5,
    nms_threshold: float = 0.3,
    max_per_class: int = 0,
    max_detections: int = 100,
) -> Detections:
    """The boxes of one image after non-maximum suppression by class, best first.

    Args:
        score_threshold: a box is kept where its score is greater.
        nms_threshold: of two boxes of a class whose IoU is greater, the lower-scored is dropped.
        max_per_class: maximum number of boxes of a class that enter the suppression; 0: all.
        max_detections: maximum number of boxes of the image.
    """
    candidates = scores.scores > score_threshold  # (R, C)
    if max_per_class:
        candidates &= _best_of_class(scores.scores, max_per_class)
    rows, labels = candidates.nonzero().unbind(dim=1)  # (D,), (D,)
    boxes, values = scores.boxes[rows, labels], scores.scores[rows, labels]  # (D, 4), (D,)
    keep = batched_nms(boxes, values, labels, nms_threshold)  # best first
    return Detections(scores.image_id, boxes, values, labels)[keep[:max_detections]]


def _best_of_class(scores: Tensor, count: int) -> Tensor:
    """(R, C) bool: the `count` highest scores of each column; of equal ones the first."""
    best = scores.sort(dim=0, descending=True, stable=True).indices[:count]  # (count, C)
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(0, best, True)
