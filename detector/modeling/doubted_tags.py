"""What training makes of tags that the scores of an image contradict."""

from dataclasses import replace

import torch
from torch import Tensor

from detector.structures import Batch


def doubt_missing_tags(
    batch: Batch, image_scores: Tensor, *, unknown_from: float, shown_from: float
) -> Batch:
    """The batch with other labels where an image scores high for a class that is not among its tags.

    Such a class has a large loss, and is more often a tag that somebody forgot than an error of the detector
    (Large Loss Matters in Weakly Supervised Multi-Label Classification, Kim et al., CVPR 2022, arXiv
    2206.03740, which rejects or corrects the labels of largest loss; here a score decides, whatever the other
    images of the batch are). Tags that are there stay.

    Args:
        image_scores (Tensor[B, C]): in [0, 1], of the detector as it is now.
        unknown_from: least score of a class that becomes unknown.
        shown_from: least score of a class that counts as shown; of both, this one decides.
    """
    absent = batch.labels == 0  # (B, C)
    if batch.unknown is not None:
        absent &= ~batch.unknown
    shown = absent & (image_scores >= shown_from)
    unknown = absent & (image_scores >= unknown_from) & ~shown
    if batch.unknown is not None:
        unknown |= batch.unknown
    return replace(batch, labels=torch.where(shown, 1.0, batch.labels), unknown=unknown)
