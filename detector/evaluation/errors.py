"""What kind of mistake a detection is, and what became of an object that was not found.

Each detection is of the first kind whose rule it meets. IoU 0.5 and 0.1 are the thresholds of TIDE (Bolya et
al., ECCV 2020) and of Hoiem et al. (ECCV 2012); own objects are those of the detection's class.

- right: the best-scored detection that overlaps an own object by IoU >= 0.5 (the rule of `voc_ap`).
- duplicate: IoU >= 0.5 with an own object that a better-scored detection has (TIDE's Dupe).
- wrong class: IoU >= 0.5 with an object of another class (TIDE's Cls).
- grouped: at least half of each of two or more own objects lies in it, the "grouped instances" of MIST (Ren
  et al., CVPR 2020).
- part: at least 0.8 of it lies in an own object: the "part domination" of MIST; Cinbis et al. (TPAMI 2017)
  count hypotheses that lie wholly in the object, which 0.8 softens.
- localisation: IoU >= 0.1 with an own object (TIDE's Loc).
- wrong class, too: IoU >= 0.1 with an object of another class (as in Hoiem et al.; TIDE's Both).
- background: none of these.

The shares 0.5 of grouped and 0.8 of part are our choice: those papers describe the two and give no number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from detector.structures import Annotation, Detections, box_area, box_intersection, box_iou

KINDS = ("right", "part", "grouped", "localisation", "wrong class", "duplicate", "background")
FATES = ("found", "part", "grouped", "localisation", "wrong class", "missed")  # of objects
_RIGHT_IOU, _NEAR_IOU = 0.5, 0.1
_GROUPED_SHARE, _PART_SHARE = 0.5, 0.8


@dataclass(frozen=True)
class Judged:
    """The detections of one image, each with its kind."""

    detections: Detections
    annotation: Annotation
    kinds: Tensor  # (D,) int64, index of KINDS; -1: on a difficult object or a crowd, so it does not count
    about: Tensor  # (D, G) bool, the objects that a detection found or got wrong; none of background
    counted: Tensor  # (D,) bool, is it among those that are looked at?


def judge(
    detections: Sequence[Detections], annotations: Sequence[Annotation], num_classes: int
) -> list[Judged]:
    """The kind of every detection of each image.

    Counted are the N best-scored detections of a class, N being its number of objects, as Hoiem et al. do: a
    perfect detector has N of them, all right, and no threshold has to be chosen.

    Args:
        detections, annotations: one of each for every image, in the same order.
    """
    judged = [_kinds(*each) for each in zip(detections, annotations, strict=True)]
    scores = torch.cat([image.scores for image in detections]) if detections else torch.zeros(0)
    labels = torch.cat([image.labels for image in detections]) if detections else torch.zeros(0)
    kinds = torch.cat([kinds for kinds, _ in judged]) if judged else torch.zeros(0)
    counted = torch.zeros(len(scores), dtype=torch.bool)
    objects = torch.zeros(num_classes, dtype=torch.int64)
    for annotation in annotations:
        objects += annotation.labels[countable(annotation)].bincount(minlength=num_classes)
    for label in range(num_classes):
        rows = ((labels == label) & (kinds >= 0)).nonzero()[:, 0]
        counted[rows[scores[rows].argsort(descending=True, stable=True)[: objects[label]]]] = True
    parts = counted.split([len(image.scores) for image in detections])
    return [
        Judged(image, annotation, *kinds_and_about, part)
        for image, annotation, kinds_and_about, part in zip(
            detections, annotations, judged, parts, strict=True
        )
    ]


def countable(annotation: Annotation) -> Tensor:
    """Which objects (G,) are to be found: those that are neither difficult nor a crowd."""
    return ~annotation.difficult & ~annotation.crowd


def count_kinds(judged: Sequence[Judged], num_classes: int) -> np.ndarray:
    """How many of the counted detections of each class are of each kind, (C, len(KINDS))."""
    counts = np.zeros((num_classes, len(KINDS)), dtype=np.int64)
    for image in judged:
        rows = image.counted.numpy()
        np.add.at(counts, (image.detections.labels.numpy()[rows], image.kinds.numpy()[rows]), 1)
    return counts


def count_fates(judged: Sequence[Judged], num_classes: int) -> np.ndarray:
    """What became of the objects of each class, (C, len(FATES)).

    Found by a counted detection that is right; else the kind of the best-scored counted detection that is
    about it; else missed.
    """
    counts = np.zeros((num_classes, len(FATES)), dtype=np.int64)
    for image in judged:
        for column in countable(image.annotation).nonzero()[:, 0].tolist():
            np.add.at(counts, (int(image.annotation.labels[column]), _fate(image, column)), 1)
    return counts


def confusion(judged: Sequence[Judged], num_classes: int) -> np.ndarray:
    """Which class objects were taken for, (C + 1, C + 1): rows are true classes, columns those detected.

    Each counted detection, best first, takes the free object of any class that it overlaps most, from IoU
    0.5 on, of equal overlaps one of its own class. The last row has the detections that took none, so that
    lie on background or come too late; the last column the objects that nothing took.
    """
    table = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    for image in judged:
        rows, columns = image.counted.nonzero()[:, 0], countable(image.annotation).nonzero()[:, 0]
        true, found = image.annotation.labels[columns], image.detections.labels[rows]
        overlap = box_iou(image.detections.boxes[rows].double(), image.annotation.boxes[columns].double())
        overlap = torch.where(overlap >= _RIGHT_IOU, overlap, 0)
        overlap = torch.where((overlap > 0) & (found[:, None] == true), overlap + 1e-9, overlap)
        for row, label in enumerate(found.tolist()):
            column = int(overlap[row].argmax()) if len(true) else -1
            taken = column >= 0 and bool(overlap[row, column] > 0)
            table[int(true[column]) if taken else num_classes, label] += 1
            if taken:
                overlap[:, column] = -1  # no longer free
        left = true[(overlap >= 0).all(dim=0)] if len(found) else true
        np.add.at(table, (left.numpy(), num_classes), 1)
    return table


def _kinds(found: Detections, truth: Annotation) -> tuple[Tensor, Tensor]:
    """Kinds (D,) and about (D, G) of the detections of one image, which come best first."""
    boxes, others = found.boxes.double(), truth.boxes.double()
    shared, overlap = box_intersection(boxes, others), box_iou(boxes, others)  # (D, G)
    inside = shared / box_area(boxes)[:, None].clamp(min=1e-9)  # share of the detection in the object
    covered = shared / box_area(others)[None, :].clamp(min=1e-9)  # share of the object in the detection
    same = found.labels[:, None] == truth.labels[None, :]
    own, other = same & ~truth.crowd, ~same & ~truth.crowd
    halves = own & (covered >= _GROUPED_SHARE)
    kinds = torch.full((len(boxes),), KINDS.index("background"))
    about = torch.zeros_like(own)
    for kind, relation in (  # the rules from the last to the first: an earlier one overrules
        ("wrong class", other & (overlap >= _NEAR_IOU)),
        ("localisation", own & (overlap >= _NEAR_IOU)),
        ("part", own & (inside >= _PART_SHARE)),
        ("grouped", halves & (halves.sum(dim=1) >= 2)[:, None]),
        ("wrong class", other & (overlap >= _RIGHT_IOU)),
        ("duplicate", own & (overlap >= _RIGHT_IOU)),
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
            kinds[row] = KINDS.index("right")
        taken.add(column)
    in_crowd = (same & truth.crowd & (inside >= _RIGHT_IOU)).any(dim=1)
    kinds[in_crowd & (kinds != KINDS.index("right"))] = -1
    return kinds, about


def _nearest(relation: Tensor, overlap: Tensor) -> Tensor:
    """Of the objects that each detection is related to (D, G), only the one that it overlaps most."""
    nearest = torch.zeros_like(relation)
    if relation.numel():
        best = torch.where(relation, overlap, -1.0).argmax(dim=1)
        nearest[torch.arange(len(relation)), best] = True
    return nearest


def _fate(image: Judged, column: int) -> int:
    """The place in FATES of an object of one image."""
    kinds = image.kinds[image.about[:, column] & image.counted].tolist()  # best first
    if KINDS.index("right") in kinds:
        return FATES.index("found")
    known = [KINDS[kind] for kind in kinds if KINDS[kind] in FATES]
    return FATES.index(known[0] if known else "missed")
