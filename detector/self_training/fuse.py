"""Combines pseudo boxes of a weak detector, trained on tags, with those of a teacher, trained on other data.

The trust in a class of the teacher is the lower of two estimates of the precision of its boxes:

* Tags. Where an image is known not to show a class, each of the teacher's boxes of it is false. If false
  boxes are as frequent in images that show it, their share there is known, for each threshold of the score.
  Boxes in the wrong place, or of parts, are not seen.
* The weak detector. It supports a box if no box beside it has a much better score. It is wrong itself, so the
  share of supported boxes is compared with two others: with what it would support if all were right, its mean
  score of its own best boxes, and with what it supports by chance, the share of the proposals elsewhere. If
  it finds parts of objects, it supports no box of a whole; then its best boxes lie in those of the teacher,
  more often than proposals anywhere do, and that share counts instead.

Both are lower confidence bounds. With no trust the result is what the weak detector found alone; with full
trust it is what the teacher found, filtered by the tags. The Faster R-CNN learns each box with the weight
that it has here; the steps with its own moving average (SELF_TRAIN.TEACHER_STEPS) come after that and may
overrule both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from detector.layers import nms
from detector.structures import Detections, Scores, TeacherBoxes, box_area, box_intersection, box_iou

Source = Literal["tags", "both", "teacher"]  # whose boxes of a class are learned
SOURCES: tuple[Source, ...] = get_args(Source)
ADVICE: dict[Source, str] = {"tags": "not", "both": "with tags", "teacher": "alone"}  # to use the teacher

_SAME = 0.5  # IoU from which two boxes of a class count as one object
_BESIDE = 0.1  # IoU from which two boxes compete for the same place
_MUCH = 0.5  # a box with less than this share of the best score beside it is not supported
_ALONE = 0.9  # share of objects found and of boxes right, above which tags add little
_INSIDE = 0.85  # share of a box that lies in another one of which it is a part
_SAMPLE = 50  # proposals of an image from which support by chance is estimated
_LEAST = 0.1  # a box of less weight is not learned


@dataclass(frozen=True)
class Support:
    """How far a weak detector supports the T boxes of a teacher in an image, and the C classes."""

    agreed: Tensor  # (T,) 1: it supports the box, 0: it does not; nan: the image does not show the class
    best: Tensor  # (C,) the score of its best box; this and the others are of classes that the image shows
    confirmed: Tensor  # (C,) the best score of the teacher's boxes there; -inf: it has none
    inside: Tensor  # (C,) the best score of the teacher's boxes in which its best box lies; -inf: none
    anywhere: Tensor  # (C,) share of the proposals that lie in a box of the teacher
    chance: Tensor  # (C,) share of the proposals elsewhere than its best one that it supports

    def of_class(self, c: int) -> "ClassSupport":
        columns = self.best, self.confirmed, self.inside, self.anywhere, self.chance
        return ClassSupport(*(float(column[c]) for column in columns))


class ClassSupport(NamedTuple):
    """The values of a class in :class:`Support`."""

    best: float
    confirmed: float
    inside: float
    anywhere: float
    chance: float


class _FoundBox(NamedTuple):
    """A box of a teacher."""

    score: float
    image: int
    agreed: float  # see Support


class Opinion(NamedTuple):
    """What a weak detector makes of a training image."""

    boxes: Detections  # to learn, without a teacher
    said: Support | None  # None: the teacher has not seen the image


@dataclass(frozen=True)
class Trust:
    """The trust in the C classes of a teacher and its reasons; all (C,) float32 in [0, 1].

    The agreement is nan where there is no weak detector, or it cannot tell: its own boxes are no better than
    chance.
    """

    thresholds: Tensor  # boxes of lower scores are left out; inf: all
    precision: Tensor  # share of its boxes in images with the tag that are more than chance, at least
    recall: Tensor  # share of the images with the tag in which it finds the class
    denied: Tensor  # share of the images without the tag in which it finds the class
    agreement: Tensor  # precision of its boxes in images with the tag by the weak detector, at least
    unfound: Tensor  # share of the weak detector's boxes that are right, of those that the teacher lacks

    @property
    def of_boxes(self) -> Tensor:
        """The weight of a box that only the teacher has found: a lower bound of their precision."""
        return torch.fmin(self.precision, self.agreement)  # of nan the other

    @property
    def overruling(self) -> Tensor:
        """How far a box is doubted because the teacher did not find it; its weight is 1 minus this."""
        return self.of_boxes * (1 - self.unfound)

    def learn_from(self, sources: Sequence[Source]) -> "Trust":
        """No trust in classes that learn from "tags", and full trust in those that do from the "teacher"."""
        none, full = (torch.tensor([source == name for source in sources]) for name in ("tags", "teacher"))

        def of(values: Tensor, with_none: float, with_full: float) -> Tensor:
            return values.masked_fill(none, with_none).masked_fill(full, with_full)

        return replace(
            self,
            precision=of(self.precision, 0.0, 1.0),
            agreement=of(self.agreement, 0.0, 1.0),
            unfound=of(self.unfound, 1.0, 0.0),
        )

    def keeps(self, found: TeacherBoxes) -> Tensor:
        """(T,) bool: the boxes that have a class, and the least score of it."""
        return (found.labels >= 0) & (found.scores >= self.thresholds[found.labels.clamp(min=0)])

    def describe(self, class_names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The values of each class, the two that follow, and the advice; None: there is no value."""
        columns = vars(self) | {"of_boxes": self.of_boxes, "overruling": self.overruling}
        found: dict[str, dict[str, Any]] = {}
        for c, name in enumerate(class_names):
            values = {key: float(column[c]) for key, column in columns.items()}
            found[name] = {
                key: round(value, 4) if math.isfinite(value) else None for key, value in values.items()
            }
            found[name]["advice"] = advice(found[name])
        return found


def support(found: TeacherBoxes, scores: Scores, shown: Tensor) -> Support:
    """How far a weak detector supports the boxes that a teacher found in an image.

    Args:
        scores: of all proposals, of which the teacher's boxes may be some.
        shown: (C,) bool, the tags; other classes are ignored.
    """
    boxes, values = scores.boxes.cpu(), scores.scores.cpu()  # (R, C, 4), (R, C)
    count, classes = values.shape
    agreed = torch.full((len(found),), torch.nan)
    best, chance, anywhere = torch.zeros(3, classes)
    confirmed, inside = torch.full((2, classes), -torch.inf)
    some = torch.arange(0, count, -(-max(count, 1) // _SAMPLE))
    for c in shown.nonzero()[:, 0].tolist():
        rows = (found.labels == c).nonzero()[:, 0]  # best first
        agreed[rows] = _supported(found.boxes[rows], boxes[:, c], values[:, c])
        if count:
            best[c], top = values[:, c].max(dim=0)
            there = box_iou(found.boxes[rows], boxes[top, c][None])[:, 0] >= _SAME
            confirmed[c] = found.scores[rows][there].max() if there.any() else -torch.inf
            within = _within(boxes[top, c][None], found.boxes[rows])[0]  # (T,)
            inside[c] = found.scores[rows][within].max() if within.any() else -torch.inf
            anywhere[c] = _within(boxes[some, c], found.boxes[rows]).any(dim=1).float().mean()
            others = boxes[some, c][box_iou(boxes[some, c], boxes[top, c][None])[:, 0] < _SAME]
            chance[c] = _supported(others, boxes[:, c], values[:, c]).mean() if len(others) else 0.0
    return Support(agreed, best, confirmed, inside, anywhere, chance)


def _within(boxes: Tensor, others: Tensor) -> Tensor:
    """(N, M) whether a box lies in another one."""
    return box_intersection(boxes, others) >= _INSIDE * box_area(boxes)[:, None]


def _supported(boxes: Tensor, proposals: Tensor, scores: Tensor) -> Tensor:
    """(T,) 1 where the proposals around a box have a score that is not much less than those beside it."""
    if not len(proposals):
        return torch.zeros(len(boxes))
    overlap = box_iou(boxes, proposals)  # (T, R)
    around = scores.where(overlap >= _SAME, 0.0).amax(dim=1)
    beside = scores.where(overlap >= _BESIDE, 0.0).amax(dim=1)
    return ((around > 0) & (around >= _MUCH * beside)).float()


def estimate_trust(
    teacher: Sequence[TeacherBoxes | None],
    shown: Tensor,
    known: Tensor,
    supports: Sequence[Support | None] | None,
) -> Trust:
    """The trust in each class of a teacher.

    Args:
        teacher: of each of N images; None: the teacher has not seen it.
        shown: (N, C) bool, the tags.
        known: (N, C) bool, False where nobody knows whether an image shows a class.
        supports: of each image that the teacher has seen; None: there is no weak detector.
    """
    columns = []
    for c in range(shown.shape[1]):
        counts = {True: 0, False: 0}  # images that show the class, and that are known not to
        boxes: dict[bool, list[_FoundBox]] = {True: [], False: []}  # in these
        ours: dict[int, ClassSupport] = {}  # of images with the tag
        for row, found in enumerate(teacher):
            if found is None or not known[row, c]:
                continue
            tagged, is_class = bool(shown[row, c]), found.labels == c
            counts[tagged] += 1
            agreed, said = torch.ones(len(found)), None if supports is None else supports[row]
            if said is not None:
                agreed = said.agreed
                if tagged:
                    ours[row] = said.of_class(c)
            pairs = zip(found.scores[is_class].tolist(), agreed[is_class].tolist(), strict=True)
            boxes[tagged] += [_FoundBox(score, row, value) for score, value in pairs]
        columns.append(_trust_in_class(boxes, counts, ours))
    return Trust(*torch.tensor(columns, dtype=torch.float32).reshape(-1, 6).unbind(dim=1))


def _trust_in_class(
    boxes: Mapping[bool, list[_FoundBox]],
    counts: Mapping[bool, int],
    ours: Mapping[int, ClassSupport],
) -> tuple[float, ...]:
    """The six values of :class:`Trust` of a class.

    With n boxes of at least a score in images with the tag, and at most f expected to be false by those
    without it, n - f are right. The threshold is the one of the highest F1 = 2 (n - f) / (n + m), where m is
    the greatest n - f of any.
    """
    right, wrong = (torch.tensor([box.score for box in boxes[tagged]]) for tagged in (True, False))
    if not len(right):
        return float("inf"), 0.0, 0.0, 0.0, 0.0, 1.0
    candidates = right.unique()  # ascending
    n = (right >= candidates[:, None]).sum(dim=1).double()
    false = (wrong >= candidates[:, None]).sum(dim=1).double()
    net = (n - _most_false(false, counts)).clamp(min=0)
    row = int((net / (n + net.max().clamp(min=1e-9))).argmax())  # the first, so the lowest of equal ones
    threshold, precision = float(candidates[row]), float(net[row] / n[row])
    kept = {tagged: [box for box in boxes[tagged] if box.score >= threshold] for tagged in boxes}
    images = {tagged: {box.image for box in kept[tagged]} for tagged in kept}
    recall = len(images[True]) / counts[True]
    denied = len(images[False]) / counts[False] if counts[False] else 0.0
    if not ours:
        return threshold, precision, recall, denied, math.nan, 0.0
    best, _, _, _, chance = torch.tensor([*ours.values()]).mean(dim=0).tolist()
    agreed = _at_least(sum(box.agreed for box in kept[True]) / len(kept[True]), len(kept[True]))
    agreement = _between(agreed, chance, best)
    _, confirmed, inside, anywhere, _ = torch.tensor([ours[row] for row in images[True]]).T  # (images,) each
    # The weak detector may find parts: how often its best box lies in the teacher's, compared with proposals.
    within = _at_least(float((inside >= threshold).float().mean()), len(inside))
    by_chance = float(anywhere.mean())
    if by_chance < best:  # otherwise the teacher's boxes contain any proposal
        agreement = max(agreement, _between(within, by_chance, best))
    # By its scores, `best` of the weak detector's boxes are right; some of these the teacher has found, too.
    both = float((confirmed >= threshold).float().mean())
    unfound = max(0.0, best - both) / (1 - both) if both < 1 else 0.0
    return threshold, precision, recall, denied, agreement, unfound


def _most_false(false: Tensor, counts: Mapping[bool, int]) -> Tensor:
    """How many boxes in images with the tag may be false, of as many in those without it.

    The expectation and one standard deviation more, as Wilson's interval has them for a binomial: both counts
    are Poisson's. Without any image to compare, none.
    """
    if not counts[False]:
        return torch.zeros_like(false)
    ratio = counts[True] / counts[False]
    return ratio * (false + 0.5) + (ratio * (1 + ratio) * (false + 0.25)).sqrt()


def _between(share: float, chance: float, best: float) -> float:
    """A share on a scale from chance, 0, to the best possible value, 1; nan if these do not differ."""
    return min(1.0, max(0.0, (share - chance) / (best - chance))) if best > chance else math.nan


def _at_least(share: float, count: int) -> float:
    """A share of `count` minus one standard deviation: the lower end of Wilson's interval."""
    center, deviation = share + 0.5 / count, (share * (1 - share) / count + 0.25 / count**2) ** 0.5
    return (center - deviation) / (1 + 1 / count)


def fuse(
    ours: Detections,
    teacher: TeacherBoxes | None,
    labels: Tensor,
    trust: Trust,
    *,
    fixed: int = 0,
    complete: bool = False,
) -> Detections:
    """The boxes to learn in one image, whose scores are their weights in (0, 1].

    A box of each source that are one object become one, their mean weighted by the trust, with the weight 1.
    A class of which the teacher has found nothing keeps the boxes of the weak detector. Others of these count
    less: a part of a teacher's box by the trust, one elsewhere by :attr:`Trust.overruling`.

    Args:
        ours: what the weak detector found, filtered by the tags.
        teacher: None: it has not seen the image.
        labels: (C,), more than 0 where the image shows the class: no other class gets a box.
        fixed: number of leading boxes of `ours` that a person has reviewed: they are kept with the weight 1.
        complete: these are all objects of the image.
    """
    weights = torch.ones(len(ours))
    if teacher is None or complete:
        return _weighted(ours, ours.boxes, weights, ours.labels, fixed)
    found = select(teacher, labels, trust)
    own, boxes = trust.of_boxes, ours.boxes.clone()
    overlap = box_iou(found.boxes, ours.boxes)  # (T, D)
    overlap = overlap.where(found.labels[:, None] == ours.labels, 0.0)
    alone = torch.ones(len(found), dtype=torch.bool)
    taken = torch.zeros(len(ours), dtype=torch.bool)
    for row in range(len(found)):  # best first
        if overlap.shape[1] and overlap[row, :fixed].gt(_SAME).any():
            alone[row] = False
            continue
        free = overlap[row].where(~taken, 0.0)
        if len(free) and free.max() >= _SAME:
            column = int(free.argmax())
            share = own[found.labels[row]]
            boxes[column] = share * found.boxes[row] + (1 - share) * ours.boxes[column]
            alone[row], taken[column] = False, True
    has_boxes = torch.zeros(len(own), dtype=torch.bool).index_fill(0, found.labels, True)
    lost = ~taken & has_boxes[ours.labels]
    lost[:fixed] = False
    part = (_within(ours.boxes, found.boxes) & (ours.labels[:, None] == found.labels)).any(dim=1)
    overruled = torch.where(part, own[ours.labels], trust.overruling[ours.labels])
    weights = weights.where(~lost, 1 - overruled)
    return _weighted(
        ours,
        torch.cat([boxes, found.boxes[alone]]),
        torch.cat([weights, own[found.labels[alone]]]),
        torch.cat([ours.labels, found.labels[alone]]),
        fixed,
    )


def disagreement(
    found: TeacherBoxes, shown: Tensor, known: Tensor, trust: Trust, said: Support | None
) -> float:
    """How surprising it is what a teacher found in an image: the sum over the classes.

    A class that the image shows and the teacher lacks counts as much as its recall; one that it has found and
    the image does not show, 1 less the share of such images; one of which it has boxes, but not where the
    best one of the weak detector is, the score of that.

    Args:
        shown, known: (C,) bool, of the image, as of :func:`estimate_trust`.
        said: None: there is no weak detector.
    """
    has = torch.zeros_like(shown).index_fill(0, found.labels[trust.keeps(found)], True)
    value = trust.recall * (shown & ~has) + (1 - trust.denied) * (known & ~shown & has)
    if said is not None:
        value += said.best * (shown & has & (said.confirmed < trust.thresholds))
    return float(value.sum())


def select(teacher: TeacherBoxes, labels: Tensor, trust: Trust) -> TeacherBoxes:
    """The boxes of classes that the image shows, with a score of the threshold at least, after an NMS."""
    found = teacher[trust.keeps(teacher) & (labels[teacher.labels] > 0)]
    kept = [found.labels.new_zeros(0)]
    for label in found.labels.unique():
        rows = (found.labels == label).nonzero()[:, 0]
        kept.append(rows[nms(found.boxes[rows], found.scores[rows], _SAME)])
    return found[torch.cat(kept).sort().values]


def _weighted(ours: Detections, boxes: Tensor, weights: Tensor, labels: Tensor, fixed: int) -> Detections:
    """Boxes with weights as scores, in descending order after the fixed ones."""
    rest = fixed + weights[fixed:].argsort(descending=True, stable=True)
    order = torch.cat([torch.arange(fixed), rest[weights[rest] >= _LEAST]])
    return Detections(ours.image_id, boxes[order], weights[order], labels[order])


def advice(values: Mapping[str, Any]) -> str:
    """Whether to use a class of the teacher "alone", "with tags" or "not", by :meth:`Trust.describe`.

    Not, if it changes less than the least weight that counts; alone, if it misses few objects and few of its
    boxes are wrong, of any image. Tags cannot tell whether boxes are in the right place, so without a weak
    detector the advice is never "alone".
    """
    found = values["of_boxes"] * values["recall"]
    if found < _LEAST:
        return "not"
    alone = found >= _ALONE and values["denied"] <= 1 - _ALONE and values["agreement"] is not None
    return "alone" if alone else "with tags"
