"""The section of the page with the pseudo boxes that a student learned from, the worst first."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.voc import VOCDataset
from detector.data.loader import read_shown
from detector.evaluation.pictures import in_turns
from detector.inference.results import annotations
from detector.reporting.document import Box, Section, picture, render
from detector.reporting.galleries import Figure, truth_boxes
from detector.self_training.choose import agreement
from detector.self_training.pseudo_set import read_weights
from detector.structures import Annotation
from detector.utils.errors import DataError


def pseudo_section(
    folder: Path, split: str, train_set: AnnotatedImages, count: int, detectors: int = 1
) -> Section:
    """Up to `count` training images with the pseudo boxes of a folder, which `detectors` have found together.

    First are those whose boxes agree least with the ground truth, or, where no image has any, those with the
    lowest scores of each class in turns.

    Raises:
        DataError: the folder holds other images than the training split.
    """
    names = train_set.class_names
    pseudo, scores = VOCDataset(folder, split, names), read_weights(folder, split)
    if len(pseudo) != len(train_set) or len(scores) != len(train_set):
        raise DataError(
            f"{folder} has {len(pseudo)} images and {train_set.name} has {len(train_set)}: pass the DATASETS "
            "that self-training began with"
        )
    boxes, truth = list(annotations(pseudo).values()), annotations(train_set)
    known = {index: _f1(boxes[index], annotation) for index, annotation in truth.items()}
    if known:
        order = sorted(known, key=lambda index: (known[index], -len(boxes[index].labels)))
    else:
        order = _least_certain(boxes, scores, len(names))
    figures = []
    for index in order[:count]:
        own = boxes[index]
        rows = zip(own.boxes.tolist(), own.labels.tolist(), scores[index].tolist(), strict=True)
        drawn = [Box(box, "found", label, f"{names[label]} {score:.2f}") for box, label, score in rows]
        drawn += truth_boxes(truth.get(index))
        size, image_id = train_set.image_size(index), train_set.image_ids[index]
        shown = picture(read_shown(train_set, index), size, drawn, image_id)
        head = ", ".join(box.title for box in drawn[:4]) or "nothing"
        figures.append(Figure(shown, head, f"F1 {known[index]:.2f}" if known else ""))
    number = sum(len(image.labels) for image in boxes)
    values = {"number": number, "images": len(pseudo), "known": bool(known), "figures": figures}
    return Section("Pseudo boxes", render("pseudo", detectors=detectors, **values))


def _f1(boxes: Annotation, truth: Annotation) -> float:
    """The F1 of the boxes of one image; 1 if there is nothing to find and nothing found."""
    rates = agreement([boxes], [truth])
    if not rates["count"] and not (~truth.crowd).any():
        return 1.0
    total = rates["precision"] + rates["recall"]
    return rates["precision"] * rates["recall"] / total / 50 if total else 0.0


def _least_certain(boxes: Sequence[Annotation], scores: Sequence[Tensor], num_classes: int) -> list[int]:
    """Images by the lowest score of their boxes: the lowest of each class, then the second of each, ..."""
    lowest: list[dict[int, float]] = [{} for _ in range(num_classes)]  # of each class: image to score
    for index, (own, values) in enumerate(zip(boxes, scores, strict=True)):
        for label, score in zip(own.labels.tolist(), values.tolist(), strict=True):
            lowest[label][index] = min(lowest[label].get(index, 1.0), score)
    rankings = [sorted(ious, key=ious.__getitem__) for ious in lowest]
    return list(dict.fromkeys(in_turns(rankings)))
