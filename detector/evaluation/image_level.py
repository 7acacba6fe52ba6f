"""How well image-level labels are found: what can be measured where nobody drew a box."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from detector.structures import Scores


def image_scores(scores: Scores) -> Tensor:
    """What the detector believes of the image (C,): for each class the best of its proposals, 0 if none."""
    if len(scores.scores) == 0:
        return torch.zeros(scores.scores.shape[1])
    return scores.scores.amax(dim=0)


def image_ap(scores: Sequence[Tensor], labels: Sequence[Tensor]) -> np.ndarray:
    """Average precision (C,) of ranking N images by their scores, float64 in [0, 1]; nan: no image shows it.

    The mean, over the images that show the class, of the precision at their rank; of equal scores the first
    image comes first.

    Args:
        scores, labels: (C,) of each image, labels 0/1, in the same order.

    Raises:
        ValueError: not one of each for every image.
    """
    if len(scores) != len(labels):
        raise ValueError(f"{len(scores)} images have scores and {len(labels)} labels, expected one of each")
    ranking = np.argsort(-torch.stack(list(scores)).double().numpy(), axis=0, kind="stable")  # (N, C)
    right = np.take_along_axis(torch.stack(list(labels)).double().numpy(), ranking, axis=0)  # (N, C) 0/1
    precision = np.cumsum(right, axis=0) / np.arange(1, len(right) + 1)[:, None]  # (N, C)
    with np.errstate(invalid="ignore"):
        return (precision * right).sum(axis=0) / right.sum(axis=0)  # 0 / 0 is nan
