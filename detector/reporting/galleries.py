"""The sections of the page with pictures and the list of images."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.loader import read_shown
from detector.evaluation.errors import KINDS, Judged, countable, f1
from detector.evaluation.pictures import in_turns
from detector.reporting.document import Box, Picture, Section, picture, render
from detector.structures import Annotation, Detections

_MOST = 1000  # images listed, those with the lowest F1; a longer table makes browsers slow
_TRUE_POSITIVE = KINDS.index("true positive")


def best_detections(judged: Sequence[Judged], num_classes: int, count: int) -> list[tuple[int, int]]:
    """(image, row) of up to `count` true positives: the best of each class, then the second best, and so on.

    Each image occurs once.
    """
    rankings: list[list[tuple[int, int]]] = [[] for _ in range(num_classes)]
    for image, row in _ranked(judged, lambda kind: kind == _TRUE_POSITIVE):
        rankings[int(judged[image].detections.labels[row])].append((image, row))
    return _one_per_image(in_turns(rankings), count)


def confident_mistakes(judged: Sequence[Judged], count: int) -> list[tuple[int, int]]:
    """(image, row) of up to `count` false positives, highest score first; each image occurs once."""
    return _one_per_image(_ranked(judged, lambda kind: kind >= 0 and kind != _TRUE_POSITIVE), count)


def worst_images(judged: Sequence[Judged], count: int) -> list[int]:
    """Up to `count` images with objects: lowest F1 first, and of equal F1 those with more objects first."""
    objects = [int(countable(image.annotation).sum()) for image in judged]
    ranked = sorted((f1(image), -objects[i], i) for i, image in enumerate(judged) if objects[i])
    return [index for _, _, index in ranked[:count]]


@dataclass(frozen=True)
class Figure:
    """A picture and its caption."""

    picture: Picture
    head: str
    text: str = ""
    anchor: str = ""


def galleries_section(
    judged: Sequence[Judged], dataset: AnnotatedImages, indices: Sequence[int], count: int
) -> tuple[Section, set[int]]:
    """Up to `count` pictures of each kind, and the indices of the images that they show.

    The first picture of image i has the anchor `picture-i`, to which the list of images links.

    Args:
        indices: of the judged images in `dataset`.
    """
    shown: set[int] = set()
    class_names = dataset.class_names

    def figure(index: int, row: int | None, head: str, text: str) -> Figure:
        anchor = "" if index in shown else f"picture-{index}"
        shown.add(index)
        return Figure(_draw(judged[index], dataset, indices[index], row), head, text, anchor)

    def detection(index: int, row: int) -> Figure:
        found = judged[index].detections
        head = f"{class_names[int(found.labels[row])]} {float(found.scores[row]):.2f}"
        return figure(index, row, head, KINDS[int(judged[index].kinds[row])])

    def whole(index: int) -> Figure:
        image = judged[index]
        true_positives = int((image.kinds[image.counted] == _TRUE_POSITIVE).sum())
        head = f"{true_positives} of {int(countable(image.annotation).sum())}"
        return figure(index, None, head, f"found by {int(image.counted.sum())} detections")

    figures = {
        "best": [detection(*place) for place in best_detections(judged, len(class_names), count)],
        "mistakes": [detection(*place) for place in confident_mistakes(judged, count)],
        "worst": [whole(index) for index in worst_images(judged, count)],
    }
    return Section("Pictures", render("pictures", **figures)), shown


def images_section(judged: Sequence[Judged], class_names: Sequence[str], pictured: Container[int]) -> Section:
    """One line for each image, lowest F1 first, filtered by CSS alone.

    Args:
        pictured: indices of the images that the galleries show, to which their lines link.
    """
    order = sorted(range(len(judged)), key=lambda index: f1(judged[index]))[:_MOST]
    lines = [_line(judged[i], class_names) | {"index": i, "pictured": i in pictured} for i in order]
    results = [*(kind for kind in KINDS if kind != "true positive"), "missed", "all found"]
    values = {
        "lines": lines,
        "total": len(judged),
        "classes": {f"c{label}": name for label, name in enumerate(class_names)},
        "results": {_word(name): name for name in results},
    }
    return Section("Images", render("images", **values))


def truth_boxes(annotation: Annotation | None) -> list[Box]:
    """The ground-truth boxes of an image, to be drawn dashed."""
    return [Box(box, "true") for box in annotation.boxes.tolist()] if annotation else []


def _draw(image: Judged, dataset: AnnotatedImages, index: int, row: int | None) -> Picture:
    """One image with its counted detections; only detection `row` is emphasized, or all if `row` is None."""
    counted = np.flatnonzero(image.counted.numpy()).tolist()
    found = image.detections
    thin = "found" if row is None else "other"
    class_names = dataset.class_names
    boxes = [_found(found, other, class_names, thin) for other in counted if other != row]
    boxes += [] if row is None else [_found(found, row, class_names, "found")]
    boxes += truth_boxes(image.annotation)
    return picture(read_shown(dataset, index), dataset.image_size(index), boxes, found.image_id)


def _found(image: Detections, row: int, class_names: Sequence[str], style: str) -> Box:
    label = int(image.labels[row])
    title = f"{class_names[label]} {float(image.scores[row]):.2f}"
    return Box(image.boxes[row].tolist(), style, label, title)


def _ranked(judged: Sequence[Judged], wanted: Callable[[int], bool]) -> list[tuple[int, int]]:
    """(image, row) of the counted detections whose kind is `wanted`, highest score first."""
    found = [
        (-float(image.detections.scores[row]), index, row)
        for index, image in enumerate(judged)
        for row in image.counted.nonzero()[:, 0].tolist()
        if wanted(int(image.kinds[row]))
    ]
    return [(index, row) for _, index, row in sorted(found)]


def _one_per_image(places: Iterable[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    by_image: dict[int, tuple[int, int]] = {}
    for place in places:
        by_image.setdefault(place[0], place)
    return list(by_image.values())[:count]


def _line(image: Judged, class_names: Sequence[str]) -> dict[str, Any]:
    """What the line of an image shows, and the CSS classes by which it is filtered."""
    objects = image.annotation.labels[countable(image.annotation)].tolist()
    kinds = [KINDS[kind] for kind in image.kinds[image.counted].tolist()]
    found = kinds.count("true positive")
    errors = {kind: kinds.count(kind) for kind in KINDS if kind != "true positive" and kind in kinds}
    if found < len(objects):
        errors["missed"] = len(objects) - found
    labels = sorted({*objects, *image.detections.labels[image.counted].tolist()})
    return {
        "name": image.detections.image_id,
        "objects": len(objects),
        "classes": list(dict.fromkeys(class_names[label] for label in objects)),
        "found": found,
        "f1": f1(image),
        "errors": errors,
        "words": [*(f"c{label}" for label in labels), *map(_word, errors or ["all found"])],
    }


def _word(result: str) -> str:
    """The CSS class of the images with a result."""
    return f"r-{result.replace(' ', '-')}"
