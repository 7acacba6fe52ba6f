"""Recall of proposals: a detector cannot find an object that no proposal covers."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from detector.structures import Annotation, box_iou


def best_overlaps(proposals: Tensor, annotation: Annotation) -> Tensor:
    """The highest IoU (G,) of each ground-truth box with any of the proposals (R, 4); 0 without proposals."""
    if len(proposals) == 0:
        return torch.zeros(len(annotation.boxes))
    return box_iou(annotation.boxes, proposals).amax(dim=1)


def recall(
    overlaps: Sequence[Tensor], annotations: Sequence[Annotation], num_classes: int, *, iou_threshold: float
) -> np.ndarray:
    """Recall (C + 1,) of ground-truth boxes, for each class and overall; nan without boxes.

    A box is covered if a proposal has an IoU of at least `iou_threshold` with it. Difficult objects count,
    iscrowd regions do not.

    Args:
        overlaps: the result of :func:`best_overlaps` for each annotation, in the same order.
    """
    kept = [~annotation.crowd for annotation in annotations]
    labels = [annotation.labels[keep] for annotation, keep in zip(annotations, kept, strict=True)]
    covered = [overlap[keep] >= iou_threshold for overlap, keep in zip(overlaps, kept, strict=True)]
    label = torch.cat([*labels, torch.zeros(0, dtype=torch.int64)]).numpy()  # (M,)
    hit = torch.cat([*covered, torch.zeros(0, dtype=torch.bool)]).numpy()  # (M,)
    there = np.bincount(label, minlength=num_classes).astype(float)  # (C,)
    found = np.bincount(label, weights=hit, minlength=num_classes)
    with np.errstate(invalid="ignore"):
        return np.append(found, found.sum()) / np.append(there, there.sum())  # 0 / 0 is nan
