"""Which images to box next: what there is to learn from an image, and a choice of images that differ."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from detector.structures import Scores


def entropy(scores: Scores, labels: Tensor) -> float:
    """The sum over the tagged classes of the entropy, in nats, of their highest score; labels (C,) bool."""
    if len(scores.scores) == 0:
        return 0.0
    p = scores.scores.amax(dim=0)[labels].clamp(1e-6, 1 - 1e-6)
    return float(-(p * p.log() + (1 - p) * (1 - p).log()).sum())


def typicality(features: Tensor, *, neighbors: int = 20) -> Tensor:
    """How much each image looks like others: minus the mean distance to its nearest neighbors, (N,) float64.

    The image itself counts as one of them, at distance 0.

    Few boxes are worth most in images that stand for many (TypiClust: Hacohen et al., Active Learning on a
    Budget, ICML 2022, arXiv 2202.02794, which has the inverse distance, and clusters where :func:`choose`
    has distances).

    Args:
        features: (N, F) of any scale.
        neighbors: how many count, fewer if N is smaller.
    """
    features = normalize(features.double(), dim=1)
    count = min(neighbors + 1, len(features))  # an image is nearest to itself
    rows = [torch.cdist(some, features).topk(count, largest=False).values for some in features.split(1000)]
    return -torch.cat(rows).mean(dim=1)


def information_density(uncertainty: Tensor, typical: Tensor) -> Tensor:
    """How uncertain an image is, times how typical, each scaled to [0.01, 1], (N,).

    An image can be uncertain because it is like no other; its boxes then teach little (Settles and Craven, An
    Analysis of Active Learning Strategies for Sequence Labeling Tasks, EMNLP 2008).

    Args:
        uncertainty: (N,), such as entropies.
        typical: (N,), how much each looks like others, of :func:`typicality`.
    """
    return _scaled(uncertainty) * _scaled(typical)


def _scaled(values: Tensor) -> Tensor:
    """(N,) evenly to [0.01, 1]: above 0, so that a factor of the product never decides alone."""
    span = (values.max() - values.min()).clamp(min=1e-9)
    return 0.01 + 0.99 * (values - values.min()).double() / span


def choose(
    values: Tensor,
    features: Tensor,
    labels: Tensor,
    count: int,
    *,
    known_features: Tensor,
    known_labels: Tensor,
) -> list[int]:
    """Rows of images with high values that look different and show each class as often as all images do.

    Each next image shows the class that is furthest behind its share of the images so far, of those that an
    image is left of: a rule may value the images of some classes alone. Among its images, the next has the
    largest product of its value, scaled to [0.01, 1], and the distance of its features, scaled to length 1,
    from those of the nearest image that has boxes or was chosen before. Images without a class come last.

    Args:
        values: (N,) what to learn from the image; larger is better. N is at least 1.
        features: (N, F) of any scale.
        labels: (N, C) bool, the classes that each image shows.
        known_features: (K, F), of the images that have boxes already.
        known_labels: (K, C) bool, their classes.
    """
    value = _scaled(values)
    features = normalize(features.double(), dim=1)
    known = normalize(known_features.double(), dim=1)
    shares = torch.cat([labels, known_labels]).double().mean(dim=0)  # (C,)
    shown, total = known_labels.double().sum(dim=0), len(known)  # (C,) images of a class that have boxes
    nearest = torch.cdist(features, known).amin(dim=1) if total else torch.ones_like(value)
    free = torch.ones(len(value), dtype=torch.bool)
    chosen: list[int] = []
    for _ in range(min(count, len(value))):
        behind = (shares * (total + 1) - shown).where(labels[free].any(dim=0), -torch.inf)
        candidates = free & labels[:, behind.argmax()]
        candidates = candidates if candidates.any() else free
        row = int((value * nearest).where(candidates, -1.0).argmax())
        distance = (features - features[row]).norm(dim=1)
        nearest = torch.minimum(nearest, distance) if total else distance
        shown, total = shown + labels[row], total + 1
        free[row] = False
        chosen.append(row)
    return chosen
