"""The score above which a detection of a class is shown: chosen by F1, measured or estimated from tags.

AP ranks all detections; a picture shows those above a threshold. Which score means "probably right" differs
from class to class and from network to network, so each class has its own.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detector.evaluation.voc import ranked_hits
from detector.structures import Annotation, Detections

FALLBACK = 0.3  # of a class without detections or tags


class Threshold(NamedTuple):
    """A detection of a class is shown if it scores more than `value`."""

    value: float  # in [0, 1]
    rule: str  # "boxes" or "tags": what F1 mostly comes from; "none": nothing is known of the class
    f1: float  # in [0, 1]


def choose_thresholds(
    detections: Sequence[Detections],
    annotations: Sequence[Annotation | None],
    labels: Tensor,
    known: Tensor,
) -> list[Threshold]:
    """For each of C classes the threshold of the highest F1 in all images together.

    In images with ground-truth boxes, true positives are those of `voc_ap`; in the others they are estimated
    from tags, see :func:`tagged_hits`. So few boxes have little influence, and many decide.

    Args:
        detections: of each of N images, best first, down to low scores.
        annotations: the ground truth of each image, None where it is not known.
        labels: (N, C) bool, whether an image is tagged with a class.
        known: (N, C) bool, False where it is not known whether an image shows a class.
    """
    boxed = torch.tensor([truth is not None for truth in annotations], dtype=torch.bool)
    truths = [truth for truth in annotations if truth is not None]
    found = [image for image, has_boxes in zip(detections, boxed.tolist(), strict=True) if has_boxes]
    measured, by_class, chosen = ranked_hits(found, truths, labels.shape[1]), _by_class(detections), []
    for label, (scores, is_tp, objects) in enumerate(measured):
        rows, own = by_class.get(label, ([], []))
        tags = labels[rows, label], known[rows, label], ~boxed[rows]
        tagged_scores, tagged_chances, per_image = tagged_hits(own, *tags)
        expected = per_image * int((labels[:, label] & known[:, label] & ~boxed).sum())
        every, hits = np.append(scores, tagged_scores), np.append(is_tp, tagged_chances)
        ranking = np.argsort(-every, kind="stable")
        rule = "boxes" if objects >= expected else "tags"
        chosen.append(best_threshold(every[ranking], hits[ranking], objects + expected, rule))
    return chosen


def _by_class(detections: Sequence[Detections]) -> dict[int, tuple[list[int], list[np.ndarray]]]:
    """Of each class the images where it is found, and its scores (D,) in each of them."""
    found: dict[int, tuple[list[int], list[np.ndarray]]] = {}
    for row, image in enumerate(detections):
        labels, scores = image.labels.numpy(), image.scores.numpy()
        order = np.argsort(labels, kind="stable")
        classes, starts = np.unique(labels[order], return_index=True)
        for label, own in zip(classes.tolist(), np.split(scores[order], starts[1:]), strict=False):
            rows, of_class = found.setdefault(label, ([], []))
            rows.append(row)
            of_class.append(own)
    return found


def tagged_hits(
    scores: Sequence[np.ndarray], tags: Tensor, known: Tensor, wanted: Tensor
) -> tuple[np.ndarray, np.ndarray, float]:
    """Estimate true positives of one class from tags: scores and hits (D,), objects of a tagged image.

    An image with the tag is expected to hold as many objects as, on average, detections score more than half
    of the best of their image. Its best detections count as true positives up to that number: of 1.4 objects
    the first counts 1, the second 0.4. Without the tag, none counts. Images of which it is not known are
    left out.

    Args:
        scores: (D,) of the detections of the class in each of N images, best first. An image without any may
            be left out.
        tags: (N,) bool, whether an image is tagged with the class.
        known: (N,) bool.
        wanted: (N,) bool, the images to evaluate; the others only count for the mean number of objects.
    """
    shown = (tags & known).tolist()
    counts = [
        int((own > own[0] / 2).sum()) for own, tag in zip(scores, shown, strict=True) if tag and len(own)
    ]
    per_image = float(np.mean(counts)) if counts else 1.0
    told = [
        (own, (per_image - np.arange(len(own))).clip(0, 1) * tag)
        for own, tag, is_told in zip(scores, shown, (known & wanted).tolist(), strict=True)
        if is_told
    ]
    every = np.concatenate([np.zeros(0), *(own for own, _ in told)])
    hits = np.concatenate([np.zeros(0), *(chances for _, chances in told)])
    return every, hits, per_image


def best_threshold(scores: np.ndarray, hits: np.ndarray, objects: float, rule: str) -> Threshold:
    """The threshold of the highest F1 = 2 hits / (detections + objects), and that F1.

    It is halfway between the scores of the last detection that is shown and of the first that is not. Of
    equal F1, the one that shows fewer.

    Args:
        scores, hits: (D,) of the detections of a class in descending order of score; a hit is 1 for a true
            positive, or how likely it is to be one.
        objects: there are; may be a fraction.
    """
    if not len(scores) or not objects:
        return Threshold(FALLBACK, "none", 0.0)
    f1 = 2 * np.cumsum(hits) / (np.arange(1, len(scores) + 1) + objects)
    after = np.append(scores[1:], 0.0)
    f1[scores == after] = -1.0  # no threshold parts equal scores
    last = int(f1.argmax())
    return Threshold(float((scores[last] + after[last]) / 2), rule, max(0.0, float(f1[last])))
