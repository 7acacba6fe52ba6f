"""Error types of detections, and the outcome of objects that were not found.

A detection gets the first type whose rule it meets. The IoU thresholds 0.5 and 0.1 are those of TIDE (Bolya
et al., ECCV 2020) and of Hoiem et al. (ECCV 2012); "own" objects are those of the detection's class.

- true positive: the highest-scoring detection that has IoU >= 0.5 with an own object (the rule of `voc_ap`).
- duplicate: IoU >= 0.5 with an own object that a higher-scoring detection matches (TIDE's Dupe).
- wrong class: IoU >= 0.5 with an object of another class (TIDE's Cls).
- grouped: it contains at least half of two or more own objects, the "grouped instances" of MIST (Ren et al.,
  CVPR 2020).
- part: at least 0.8 of it lies in an own object, the "part domination" of MIST; Cinbis et al. (TPAMI 2017)
  count only hypotheses that lie completely in the object.
- localization: IoU >= 0.1 with an own object (TIDE's Loc).
- wrong class, again: IoU >= 0.1 with an object of another class (as in Hoiem et al.; TIDE's Both).
- background: none of these.

The thresholds 0.5 (grouped) and 0.8 (part) are ours: these papers describe both errors without numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from detector.structures import Annotation, Detections, box_area, box_intersection, box_iou

KINDS = ("true positive", "part", "grouped", "localization", "wrong class", "duplicate", "background")
OUTCOMES = ("found", "part", "grouped", "localization", "wrong class", "missed")  # of objects
_MATCH_IOU, _NEAR_IOU = 0.5, 0.1
_GROUPED_SHARE, _PART_SHARE = 0.5, 0.8


@dataclass(frozen=True)
class Judged:
    """The detections of one image with their error types."""

    detections: Detections
    annotation: Annotation
    kinds: Tensor  # (D,) int64, index into KINDS; -1: ignored, on a difficult object or an iscrowd region
    about: Tensor  # (D, G) bool, the objects that determined the kind; none for background
    counted: Tensor  # (D,) bool, whether the detection is among the N of its class that are counted


def judge(
    detections: Sequence[Detections], annotations: Sequence[Annotation], num_classes: int
) -> list[Judged]:
    """Classify every detection of each image.

    For a class with N objects, the N detections with the highest scores are counted, as in Hoiem et al.: all
    those of a perfect detector are true positives, and no score threshold has to be chosen.

    Args:
        detections, annotations: one for each image, in the same order.
    """
    judged = [_kinds(*pair) for pair in zip(detections, annotations, strict=True)]
    if not judged:
        return []
    scores = torch.cat([image.scores for image in detections])
    labels = torch.cat([image.labels for image in detections])
    kinds = torch.cat([kinds for kinds, _ in judged])
    counted = torch.zeros(len(scores), dtype=torch.bool)
    objects = torch.zeros(num_classes, dtype=torch.int64)
    for annotation in annotations:
        objects += annotation.labels[countable(annotation)].bincount(minlength=num_classes)
    for label in range(num_classes):
        rows = ((labels == label) & (kinds >= 0)).nonzero()[:, 0]
        counted[rows[scores[rows].argsort(descending=True, stable=True)[: objects[label]]]] = True
    parts = counted.split([len(image) for image in detections])
    return [
        Judged(image, annotation, *judgment, part)
        for image, annotation, judgment, part in zip(detections, annotations, judged, parts, strict=True)
    ]


def countable(annotation: Annotation) -> Tensor:
    """Which objects (G,) bool count for recall: those that are neither difficult nor iscrowd."""
    return ~annotation.difficult & ~annotation.crowd


def f1(image: Judged) -> float:
    """F1 of the counted detections: 2 * true positives / (detections + objects); 1.0 if there are neither."""
    true_positives = int((image.kinds[image.counted] == KINDS.index("true positive")).sum())
    total = int(image.counted.sum()) + int(countable(image.annotation).sum())
    return 2 * true_positives / total if total else 1.0


def count_kinds(judged: Sequence[Judged], num_classes: int) -> np.ndarray:
    """Number of counted detections of each class and kind, (C, len(KINDS))."""
    counts = np.zeros((num_classes, len(KINDS)), dtype=np.int64)
    for image in judged:
        rows = image.counted.numpy()
        np.add.at(counts, (image.detections.labels.numpy()[rows], image.kinds.numpy()[rows]), 1)
    return counts


def count_outcomes(judged: Sequence[Judged], num_classes: int) -> np.ndarray:
    """Number of objects of each class and outcome, (C, len(OUTCOMES)).

    An object is found if a counted detection is its true positive; otherwise its outcome is the kind of the
    highest-scoring counted detection about it, or missed.
    """
    counts = np.zeros((num_classes, len(OUTCOMES)), dtype=np.int64)
    for image in judged:
        for column in countable(image.annotation).nonzero()[:, 0].tolist():
            counts[int(image.annotation.labels[column]), _outcome(image, column)] += 1
    return counts


def confusion(judged: Sequence[Judged], num_classes: int) -> np.ndarray:
    """Confusion matrix (C + 1, C + 1): rows are true classes, columns detected classes.

    In descending order of score, each counted detection is matched to the unmatched object of any class with
    the highest IoU of at least 0.5, preferring its own class if IoUs are equal. The last row holds the
    detections without a match (background and duplicates), the last column the missed objects.
    """
    table = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    for image in judged:
        rows, columns = image.counted.nonzero()[:, 0], countable(image.annotation).nonzero()[:, 0]
        true, found = image.annotation.labels[columns], image.detections.labels[rows]
        overlap = box_iou(image.detections.boxes[rows].double(), image.annotation.boxes[columns].double())
        overlap = torch.where(overlap >= _MATCH_IOU, overlap, 0)
        overlap = torch.where((overlap > 0) & (found[:, None] == true), overlap + 1e-9, overlap)
        for row, label in enumerate(found.tolist()):
            column = int(overlap[row].argmax()) if len(true) else -1
            taken = column >= 0 and bool(overlap[row, column] > 0)
            table[int(true[column]) if taken else num_classes, label] += 1
            if taken:
                overlap[:, column] = -1  # matched
        left = true[(overlap >= 0).all(dim=0)] if len(found) else true
        np.add.at(table[:, num_classes], left.numpy(), 1)
    return table


def _kinds(found: Detections, truth: Annotation) -> tuple[Tensor, Tensor]:
    """Kinds (D,) and about (D, G) of the detections of one image, which are in descending order of score."""
    boxes, others = found.boxes.double(), truth.boxes.double()
    shared, overlap = box_intersection(boxes, others), box_iou(boxes, others)  # (D, G)
    inside = shared / box_area(boxes)[:, None].clamp(min=1e-9)  # share of the detection in the object
    covered = shared / box_area(others)[None, :].clamp(min=1e-9)  # share of the object in the detection
    same = found.labels[:, None] == truth.labels[None, :]
    own, other = same & ~truth.crowd, ~same & ~truth.crowd
    halves = own & (covered >= _GROUPED_SHARE)
    kinds = torch.full((len(boxes),), KINDS.index("background"))
    about = torch.zeros_like(own)
    for kind, relation in (  # in ascending priority: later rules overwrite earlier ones
        ("wrong class", other & (overlap >= _NEAR_IOU)),
        ("localization", own & (overlap >= _NEAR_IOU)),
        ("part", own & (inside >= _PART_SHARE)),
        ("grouped", halves & (halves.sum(dim=1) >= 2)[:, None]),
        ("wrong class", other & (overlap >= _MATCH_IOU)),
        ("duplicate", own & (overlap >= _MATCH_IOU)),
    ):
        hit = relation.any(dim=1)
        kinds[hit] = KINDS.index(kind)
        about[hit] = relation[hit] if kind == "grouped" else _nearest(relation[hit], overlap[hit])
    matched = kinds == KINDS.index("duplicate")
    taken = set()
    for row in matched.nonzero()[:, 0].tolist():
        column = int(about[row].int().argmax())
        if truth.difficult[column]:
            kinds[row] = -1
        elif column not in taken:
            kinds[row] = KINDS.index("true positive")
        taken.add(column)
    in_crowd = (same & truth.crowd & (inside >= _MATCH_IOU)).any(dim=1)
    kinds[in_crowd & (kinds != KINDS.index("true positive"))] = -1
    return kinds, about


def _nearest(relation: Tensor, overlap: Tensor) -> Tensor:
    """Reduce the relation (D, G) to the one related object with the highest IoU for each detection."""
    nearest = torch.zeros_like(relation)
    if relation.numel():
        best = torch.where(relation, overlap, -1.0).argmax(dim=1)
        nearest[torch.arange(len(relation)), best] = True
    return nearest


def _outcome(image: Judged, column: int) -> int:
    """The index into OUTCOMES of one object."""
    kinds = image.kinds[image.about[:, column] & image.counted].tolist()  # highest score first
    if KINDS.index("true positive") in kinds:
        return OUTCOMES.index("found")
    known = [KINDS[kind] for kind in kinds if KINDS[kind] in OUTCOMES]
    return OUTCOMES.index(known[0] if known else "missed")
