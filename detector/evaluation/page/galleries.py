"""The section of the page with pictures: best detections, most confident errors, worst images."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from torch import Tensor

from detector.evaluation.errors import KINDS, Judged, countable, f1
from detector.evaluation.page.document import Section, render
from detector.evaluation.page.pictures import Box, Picture, picture
from detector.structures import Annotation, Detections

_TRUE_POSITIVE = KINDS.index("true positive")


def best_detections(judged: Sequence[Judged], num_classes: int, count: int) -> list[tuple[int, int]]:
    """(image, row) of up to `count` true positives: the best of each class, then the second best, and so on.

    Each image occurs once.
    """
    rankings: list[list[tuple[int, int]]] = [[] for _ in range(num_classes)]
    for image, row in _ranked(judged, lambda kind: kind == _TRUE_POSITIVE):
        rankings[int(judged[image].detections.labels[row])].append((image, row))
    turns = (place for turn in zip_longest(*rankings) for place in turn if place is not None)
    return _one_per_image(turns, count)


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


@dataclass(frozen=True)
class Galleries:
    """What the three galleries show."""

    best: list[tuple[int, int]]  # (image, row)
    mistakes: list[tuple[int, int]]  # (image, row)
    worst: list[int]  # images

    @property
    def images(self) -> set[int]:
        return {image for image, _ in self.best + self.mistakes} | set(self.worst)


def choose_galleries(judged: Sequence[Judged], num_classes: int, count: int) -> Galleries:
    """Up to `count` pictures for each gallery."""
    best = best_detections(judged, num_classes, count)
    return Galleries(best, confident_mistakes(judged, count), worst_images(judged, count))


def galleries_section(
    judged: Sequence[Judged],
    class_names: Sequence[str],
    read_image: Callable[[int], Tensor],
    chosen: Galleries,
) -> Section:
    """The pictures of the galleries; `read_image` takes an index into `judged`.

    The first picture of image i has the anchor `picture-i`, to which the list of images links.
    """
    unlinked = chosen.images

    def figure(index: int, row: int | None, head: str, text: str) -> Figure:
        anchor = f"picture-{index}" if index in unlinked else ""
        unlinked.discard(index)
        return Figure(_draw(judged[index], class_names, read_image(index), row), head, text, anchor)

    def detection(index: int, row: int) -> Figure:
        found = judged[index].detections
        head = f"{class_names[int(found.labels[row])]} {float(found.scores[row]):.2f}"
        return figure(index, row, head, KINDS[int(judged[index].kinds[row])])

    def whole(index: int) -> Figure:
        image = judged[index]
        right = int((image.kinds[image.counted] == _TRUE_POSITIVE).sum())
        head = f"{right} of {int(countable(image.annotation).sum())}"
        return figure(index, None, head, f"found by {int(image.counted.sum())} detections")

    figures = {
        "best": [detection(*place) for place in chosen.best],
        "mistakes": [detection(*place) for place in chosen.mistakes],
        "worst": [whole(index) for index in chosen.worst],
    }
    return Section("Pictures", render("pictures", **figures))


def unjudged_section(
    detections: Sequence[Detections],
    places: Sequence[int],
    class_names: Sequence[str],
    read_image: Callable[[int], Tensor],
    threshold: float,
) -> Section:
    """Images without ground-truth boxes, with their detections that score `threshold` or more."""
    figures = []
    for place in places:
        image, pixels = detections[place], read_image(place)
        rows = [row for row, score in enumerate(image.scores.tolist()) if score >= threshold]
        boxes = [_found(image, row, class_names, "found") for row in rows]
        head = ", ".join(box.title for box in boxes[:4]) or "nothing"
        figures.append(Figure(picture(pixels, _size(pixels), boxes, image.image_id), head))
    found = any(map(len, detections))
    return Section("Pictures", render("unjudged", figures=figures, found=found, threshold=threshold))


def truth_boxes(annotation: Annotation | None) -> list[Box]:
    """The ground-truth boxes of an image, to be drawn dashed."""
    return [Box(box, "true") for box in annotation.boxes.tolist()] if annotation else []


def _draw(image: Judged, class_names: Sequence[str], pixels: Tensor, row: int | None) -> Picture:
    """One image with its counted detections; only detection `row` is emphasized, or all if `row` is None."""
    counted = np.flatnonzero(image.counted.numpy()).tolist()
    found = image.detections
    thin = "found" if row is None else "other"
    boxes = [_found(found, other, class_names, thin) for other in counted if other != row]
    boxes += [] if row is None else [_found(found, row, class_names, "found")]
    return picture(pixels, _size(pixels), boxes + truth_boxes(image.annotation), found.image_id)


def _found(image: Detections, row: int, class_names: Sequence[str], style: str) -> Box:
    label = int(image.labels[row])
    title = f"{class_names[label]} {float(image.scores[row]):.2f}"
    return Box(image.boxes[row].tolist(), style, label, title)


def _size(pixels: Tensor) -> tuple[int, int]:
    return pixels.shape[1], pixels.shape[2]


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
