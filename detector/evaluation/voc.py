"""Average precision as PASCAL VOC defines it, CorLoc, and average precision of image-level labels.

Detections, annotations and scores are read in order, some thousand images at a time, so they may be made when
they are asked for (detector/utils/lazy.py). What is kept of a detection is its score and whether it is right.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detector.structures import Annotation, Detections, box_iou

_TOGETHER = 4096  # images that are read at a time


def voc_ap(
    detections: Sequence[Detections],
    annotations: Sequence[Annotation],
    num_classes: int,
    *,
    iou_threshold: float = 0.5,
    eleven_point: bool = False,
) -> np.ndarray:
    """Average precision (C,) of each class, float64 in [0, 1]; nan for a class without objects.

    As in the VOC development kit, the detections of a class are processed in descending order of score (equal
    scores: in the order of `annotations`, then as given). Each is assigned to the object of its image and
    class with the highest IoU (equal IoUs: the first object), and is a false positive if that IoU is below
    `iou_threshold` or the object is already matched. Difficult objects and detections assigned to them are
    ignored. As in COCO, so is an unmatched detection if at least `iou_threshold` of its area lies in an
    iscrowd region of its class.

    Args:
        detections, annotations: one for each image, in any order.
        eleven_point: the mean over recalls 0, 0.1, ..., 1 of the maximum precision at that recall or higher
            (VOC 2007); otherwise the area under the interpolated curve (VOC 2010 and later).

    Raises:
        ValueError: the image ids differ, or a label is not in [0, C).
    """
    ranked = ranked_hits(detections, annotations, num_classes, iou_threshold)
    return average_precisions(ranked, eleven_point=eleven_point)


def precision_recall(
    detections: Sequence[Detections], annotations: Sequence[Annotation], num_classes: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Recall and precision (D,) of each class after each of its D detections, in descending order of score.

    Matching follows :func:`voc_ap` at IoU 0.5; ignored detections are excluded. Recall is nan for a class
    without objects.
    """
    curves = []
    for _, is_tp, objects in ranked_hits(detections, annotations, num_classes, 0.5):
        hits = np.cumsum(is_tp)
        recall = hits / objects if objects else np.full(len(hits), np.nan)
        curves.append((recall, hits / np.arange(1, len(hits) + 1)))
    return curves


class RankedHits(NamedTuple):
    """The detections of a class in all images, in descending order of score, without ignored ones."""

    scores: np.ndarray  # (D,) float64
    is_tp: np.ndarray  # (D,) bool, whether a detection is a true positive
    objects: int  # that count for recall


def ranked_hits(
    detections: Sequence[Detections],
    annotations: Sequence[Annotation],
    num_classes: int,
    iou_threshold: float = 0.5,
) -> list[RankedHits]:
    """The true positives of each class, matched as :func:`voc_ap` says."""
    wanted = [annotation.image_id for annotation in annotations]
    if len(set(wanted)) < len(wanted) or [image.image_id for image in detections] != wanted:
        detections = in_order_of(annotations, detections)
    found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(num_classes)]
    objects = np.zeros(num_classes, np.int64)
    for start in range(0, len(annotations), _TOGETHER):
        images = slice(start, start + _TOGETHER)
        labels, scores, is_tp, true_labels = _match(
            detections[images], annotations[images], num_classes, iou_threshold
        )
        objects += np.bincount(true_labels, minlength=num_classes)
        order = np.argsort(labels, kind="stable")
        ends = np.searchsorted(labels[order], np.arange(1, num_classes))
        for own, rows in zip(found, np.split(order, ends), strict=True):
            own.append((scores[rows], is_tp[rows]))
    ranked = []
    for own, count in zip(found, objects.tolist(), strict=True):
        every = np.concatenate([np.zeros(0), *(scores for scores, _ in own)])
        hits = np.concatenate([np.zeros(0, bool), *(is_tp for _, is_tp in own)])
        ranking = np.argsort(-every, kind="stable")
        ranked.append(RankedHits(every[ranking], hits[ranking], count))
        own.clear()
    return ranked


def average_precisions(ranked: Sequence[RankedHits], *, eleven_point: bool = False) -> np.ndarray:
    """:func:`voc_ap` of the detections of each class."""
    return np.array([_average_precision(ranking.is_tp, ranking.objects, eleven_point) for ranking in ranked])


def _match(
    detections: Sequence[Detections],
    annotations: Sequence[Annotation],
    num_classes: int,
    iou_threshold: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels, scores, hits (D,) of the detections that count, by descending score; labels (G,) of objects."""
    scores = _concatenate([image.scores for image in detections])  # (D,)
    ranking = np.argsort(-scores, kind="stable")
    found_group, found_boxes = (rows[ranking] for rows in _flatten(detections, num_classes))  # (D,), (D, 4)
    true_group, true_boxes = _flatten(annotations, num_classes)  # (G,), (G, 4)
    crowd = _concatenate([annotation.crowd for annotation in annotations]).astype(bool)  # (G,)
    crowd_group, crowd_boxes = true_group[crowd], true_boxes[crowd]
    true_group, true_boxes = true_group[~crowd], true_boxes[~crowd]
    difficult = _concatenate([annotation.difficult for annotation in annotations]).astype(bool)[~crowd]

    match = _best_match(found_boxes, found_group, true_boxes, true_group, iou_threshold)  # (D,)
    crowd_match = _best_match(found_boxes, found_group, crowd_boxes, crowd_group, iou_threshold, share=True)
    is_tp = np.zeros(len(match), dtype=bool)
    taken, first = np.unique(match, return_index=True)  # the highest-ranked detection of each object
    is_tp[first[taken >= 0]] = True
    counts = np.append(~difficult, True)[match]  # index -1, no match: a false positive
    counts &= is_tp | (crowd_match < 0)
    scores = torch.cat([image.scores for image in detections]).numpy()[ranking]  # float32, if they were
    labels = (found_group % num_classes)[counts]
    return labels, scores[counts], is_tp[counts], true_group[~difficult] % num_classes


def corloc(
    best_boxes: Sequence[Tensor],
    annotations: Sequence[Annotation],
    num_classes: int,
    *,
    iou_threshold: float = 0.5,
) -> np.ndarray:
    """Correct localization (CorLoc) of each class (C,), float64 in [0, 1]; nan for a class in no image.

    Among the images that show the class, the fraction whose highest-scoring box for it has an IoU above
    `iou_threshold` with any object of the class; difficult objects count, iscrowd regions do not. Deselaers
    et al., IJCV 2012.

    Args:
        best_boxes: the highest-scoring box of each class in each image, (C, 4), or (0, 4) for an image
            without proposals; xyxy, in the order of `annotations`.

    Raises:
        ValueError: the number of images differs.
    """
    if len(best_boxes) != len(annotations):
        raise ValueError(f"{len(best_boxes)} images have boxes, expected {len(annotations)}, as annotations")
    shown, hit = np.zeros(num_classes), np.zeros(num_classes)
    for best, annotation in zip(best_boxes, annotations, strict=True):
        boxes, classes = annotation.boxes[~annotation.crowd], annotation.labels[~annotation.crowd]
        labels = classes.unique()  # (L,)
        shown[labels.numpy()] += 1
        if len(labels) == 0 or len(best) == 0:
            continue
        overlap = box_iou(best[labels].double(), boxes.double()) > iou_threshold  # (L, G)
        same_class = labels[:, None] == classes[None, :]  # (L, G)
        hit[labels.numpy()] += (overlap & same_class).any(dim=1).numpy()
    with np.errstate(invalid="ignore"):
        return hit / shown  # 0 / 0 is nan: no image shows the class


def image_ap(
    scores: Sequence[Tensor], labels: Sequence[Tensor], unknown: Sequence[Tensor] | None = None
) -> np.ndarray:
    """Average precision (C,) of image classification, float64 in [0, 1]; nan for a class in no image.

    The mean, over the images that show the class, of the precision at their rank. Images with equal scores
    rank in the given order.

    Args:
        scores, labels: (C,) for each of N images, labels 0/1, in the same order.
        unknown: (C,) bool for each image, classes for which the image does not count; None: all count.

    Raises:
        ValueError: the number of images differs, or there are none.
    """
    if len(scores) != len(labels):
        raise ValueError(f"{len(scores)} images have scores and {len(labels)} labels, expected one of each")
    if not scores:
        raise ValueError("there are no images, expected scores and labels of at least one")

    def keys() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Of some thousand images at a time sort keys, whether they are shown and counted, (N, C) each."""
        for start in range(0, len(scores), _TOGETHER):
            images = slice(start, start + _TOGETHER)
            values = torch.stack(list(scores[images])).double().numpy()
            shown = torch.stack(list(labels[images])).bool().numpy()
            counted = np.ones_like(shown)
            if unknown is not None:
                counted = ~torch.stack(list(unknown[images])).bool().numpy()
            # numpy sorts complex numbers by the real part, equal ones by the imaginary part.
            yield -values + 1j * np.arange(start, start + len(values))[:, None], shown, counted

    num_classes = len(scores[0])
    found: list[list[np.ndarray]] = [[] for _ in range(num_classes)]
    for key, shown, _ in keys():
        for label in np.flatnonzero(shown.any(axis=0)):
            found[label].append(key[shown[:, label], label])
    positives = [np.sort(np.concatenate(own)) if own else np.zeros(0, complex) for own in found]
    before = [np.zeros(len(own) + 1, np.int64) for own in positives]  # counted images between two positives
    for key, _, counted in keys():
        for column, own in enumerate(positives):
            if len(own):
                places = np.searchsorted(own, key[counted[:, column], column])
                before[column] += np.bincount(places, minlength=len(own) + 1)
    ap = np.full(num_classes, np.nan)
    for column, counts in enumerate(before):
        if number := len(counts) - 1:
            ranks = np.cumsum(counts)[:number]
            ap[column] = (np.arange(1, number + 1) / np.maximum(ranks, 1)).mean()
    return ap


def in_order_of(annotations: Sequence[Annotation], results: Sequence) -> list:
    """The `results` sorted in the order of the annotations, by image id."""
    by_id = {result.image_id: result for result in results}
    wanted = [annotation.image_id for annotation in annotations]
    if len(by_id) < len(results) or len(set(wanted)) < len(wanted):
        raise ValueError("an image occurs twice in the results or in the annotations, expected each once")
    for image_id in by_id.keys() ^ set(wanted):
        side = "results but no annotation" if image_id in by_id else "an annotation but no results"
        raise ValueError(f"image {image_id} has {side}; evaluate all images of one split, and only those")
    return [by_id[image_id] for image_id in wanted]


def _flatten(images: Sequence, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups (N,), image index * C + label, and boxes (N, 4) of all images."""
    labels = _concatenate([image.labels for image in images]).astype(np.int64)
    if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
        raise ValueError(f"labels run from {labels.min()} to {labels.max()}, expected 0 to {num_classes - 1}")
    index = np.repeat(np.arange(len(images)), [len(image.labels) for image in images])
    return index * num_classes + labels, _concatenate([image.boxes for image in images]).reshape(-1, 4)


def _concatenate(tensors: list[Tensor]) -> np.ndarray:
    return torch.cat(tensors).double().numpy() if tensors else np.empty(0)


def _best_match(
    boxes: np.ndarray,
    groups: np.ndarray,
    others: np.ndarray,
    other_groups: np.ndarray,
    threshold: float,
    *,
    share: bool = False,
) -> np.ndarray:
    """For each of boxes (D, 4), the index of the best match in its group of others (G, 4), or -1.

    The best has the highest overlap, at least `threshold`; see :func:`_paired_overlap`.
    """
    order = np.argsort(other_groups, kind="stable")
    start = np.searchsorted(other_groups[order], groups, side="left")
    count = np.searchsorted(other_groups[order], groups, side="right") - start  # (D,)
    # All P pairs of one group: pair p is box[p] with other[p]; the pairs of one box are consecutive.
    box = np.repeat(np.arange(len(boxes)), count)  # (P,)
    place = np.arange(len(box)) - np.repeat(np.cumsum(count) - count, count)  # 0, 1, ... within each box
    other = order[np.repeat(start, count) + place]  # (P,)
    overlaps = _paired_overlap(boxes[box], others[other], share)  # (P,)
    best_first = np.lexsort((-overlaps, box))  # stable: of equal overlaps the first object comes first
    matched, first = np.unique(box[best_first], return_index=True)
    best = best_first[first]  # the best pair of each box with candidates
    match = np.full(len(boxes), -1)
    match[matched] = np.where(overlaps[best] >= threshold, other[best], -1)
    return match


def _paired_overlap(boxes: np.ndarray, others: np.ndarray, share: bool) -> np.ndarray:
    """IoU (P,) of boxes (P, 4) and others (P, 4), row by row, or with `share` the share of the boxes inside.

    It is 0 where the denominator is.
    """
    sides = np.minimum(boxes[:, 2:], others[:, 2:]) - np.maximum(boxes[:, :2], others[:, :2])  # (P, 2)
    inside = sides.clip(min=0).prod(axis=1)
    own, other = ((corners[:, 2:] - corners[:, :2]).prod(axis=1) for corners in (boxes, others))
    whole = own if share else own + other - inside
    return np.divide(inside, whole, out=np.zeros_like(whole), where=whole > 0)


def _average_precision(is_tp: np.ndarray, num_objects: int, eleven_point: bool) -> float:
    """AP from true positives (D,) bool in descending order of score, and the number of objects."""
    if num_objects == 0:
        return float("nan")
    hits = np.cumsum(is_tp)  # (D,), recall * num_objects
    precision = hits / np.arange(1, len(hits) + 1)
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]  # (D,), never rises with recall
    if not eleven_point:
        return float(best_from_here[is_tp].sum() / num_objects)  # each hit raises recall by 1 / num_objects
    # Recall >= step / 10 in whole numbers: 3 of 10 objects are recall 0.3, which 0.1 * 3 in floats exceeds.
    needed = [-(-step * num_objects // 10) for step in range(11)]
    return float(np.append(best_from_here, 0.0)[np.searchsorted(hits, needed)].mean())
