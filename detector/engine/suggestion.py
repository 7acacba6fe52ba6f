"""Which images to box next: those from whose boxes a detector would learn most."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from detector.engine.self_training import inside_larger
from detector.structures import Detections, Scores, box_iou

RULES = ("box-in-box", "entropy", "disagreement", "random")


def box_in_box(found: Detections, *, cover: float = 0.8) -> int:
    """How many pairs of detections of a class there are of which one lies in the other.

    A part of an object beside the whole, or one object beside a group of them, is the typical mistake of a
    weakly supervised detector (Vo et al., Active Learning Strategies for Weakly-Supervised Object Detection,
    ECCV 2022, arXiv 2207.12112).

    Args:
        cover: the least share of the smaller box that lies in the larger one.
    """
    return int(inside_larger(found, cover).sum())


def entropy(scores: Scores, labels: Tensor) -> float:
    """The sum over the tagged classes of the entropy, in nats, of their highest score; labels (C,) bool."""
    if len(scores.scores) == 0:
        return 0.0
    p = scores.scores.amax(dim=0)[labels].clamp(1e-6, 1 - 1e-6)
    return float(-(p * p.log() + (1 - p) * (1 - p).log()).sum())


def disagreement(found: Detections, others: Detections) -> float:
    """1 - the IoU of the best boxes that two detectors found of a class, mean over the classes of either."""
    misses = []
    for label in torch.cat([found.labels, others.labels]).unique():
        pair = [each.boxes[each.labels == label][:1] for each in (found, others)]  # best first
        misses.append(1 - float(box_iou(*pair).sum()))
    return sum(misses) / len(misses) if misses else 0.0


def choose(values: Tensor, features: Tensor, count: int) -> list[int]:
    """Rows of images with high values that look different, the most valuable first.

    Each next image has the largest product of its value, scaled to [0.01, 1], and the distance of its
    features, scaled to length 1, from those of the nearest image chosen before.

    Args:
        values: (N,) what to learn from the image; larger is better. N is at least 1.
        features: (N, F) of any scale.
    """
    span = (values.max() - values.min()).clamp(min=1e-9)
    value = 0.01 + 0.99 * (values - values.min()).double() / span
    features = normalize(features.double(), dim=1)
    gain, chosen = value, []
    nearest = torch.full_like(value, torch.inf)
    for _ in range(min(count, len(value))):
        row = int(gain.argmax())
        chosen.append(row)
        nearest = torch.minimum(nearest, (features - features[row]).norm(dim=1))
        gain = (value * nearest).index_fill(0, torch.tensor(chosen), -1.0)
    return chosen
