"""The sections of the page that show detections: the best, the most confident mistakes, the worst."""

from collections.abc import Callable, Sequence
from html import escape
from itertools import zip_longest

import numpy as np
from torch import Tensor

from detector.evaluation.errors import KINDS, Judged, countable
from detector.evaluation.page.document import Section, figure, grid, paragraph, warning
from detector.evaluation.page.pictures import Box, picture
from detector.structures import Annotation, Detections

_RIGHT = KINDS.index("right")
_LEGEND = "Solid: the detection; thin: other detections that count; dashed: true boxes."


def best_detections(judged: Sequence[Judged], num_classes: int, count: int) -> list[tuple[int, int]]:
    """(image, row) of up to `count` right detections: the best of each class, then the second best, ...

    Of an image there is one.
    """
    rankings: list[list[tuple[int, int]]] = [[] for _ in range(num_classes)]
    for image, row in _ranked(judged, lambda kind: kind == _RIGHT):
        rankings[int(judged[image].detections.labels[row])].append((image, row))
    turns = (place for turn in zip_longest(*rankings) for place in turn if place is not None)
    return _one_an_image(turns, count)


def confident_mistakes(judged: Sequence[Judged], count: int) -> list[tuple[int, int]]:
    """(image, row) of up to `count` detections that are wrong, the best-scored first; of an image one."""
    return _one_an_image(_ranked(judged, lambda kind: kind >= 0 and kind != _RIGHT), count)


def worst_images(judged: Sequence[Judged], count: int) -> list[int]:
    """Up to `count` images with objects, those first of which least is right.

    That is the F1 of the counted detections: twice those that are right, over detections and objects. Equal:
    the image with more objects first.
    """
    ranked = []
    for index, image in enumerate(judged):
        objects = int(countable(image.annotation).sum())
        if objects:
            right = int((image.kinds[image.counted] == _RIGHT).sum())
            ranked.append((2 * right / (int(image.counted.sum()) + objects), -objects, index))
    return [index for _, _, index in sorted(ranked)[:count]]


def galleries_section(
    judged: Sequence[Judged],
    class_names: Sequence[str],
    read_image: Callable[[int], Tensor],
    count: int,
) -> Section:
    """Three galleries of up to `count` pictures; `read_image` takes the place in `judged`."""

    def one(place: tuple[int, int]) -> str:
        image, row = judged[place[0]], place[1]
        kind, score = KINDS[int(image.kinds[row])], float(image.detections.scores[row])
        name = class_names[int(image.detections.labels[row])]
        caption = f"<b>{escape(name)} {score:.2f}</b> {kind}<br>{escape(image.detections.image_id)}"
        pixels = read_image(place[0])
        return figure(_draw(image, class_names, pixels, row), caption, _size(pixels))

    def whole(index: int) -> str:
        image = judged[index]
        right = int((image.kinds[image.counted] == _RIGHT).sum())
        objects = int(countable(image.annotation).sum())
        caption = (
            f"<b>{right} of {objects}</b> found, {int(image.counted.sum())} detections count<br>"
            f"{escape(image.detections.image_id)}"
        )
        pixels = read_image(index)
        return figure(_draw(image, class_names, pixels, None), caption, _size(pixels))

    parts = (
        (
            "The best",
            "The best-scored right detections, class by class.",
            [one(place) for place in best_detections(judged, len(class_names), count)],
        ),
        (
            "Most confident and wrong",
            "The best-scored detections that are not right.",
            [one(place) for place in confident_mistakes(judged, count)],
        ),
        (
            "The worst images",
            "Those of which the least is found and right.",
            [whole(index) for index in worst_images(judged, count)],
        ),
    )
    body = paragraph(_LEGEND, "muted")
    for title, note, figures in parts:
        shown = grid(figures, "pictures") if figures else paragraph("There are none.")
        body += f"<h3>{title}</h3>{paragraph(note, 'muted')}{shown}"
    return Section("Pictures", body)


def unjudged_section(
    detections: Sequence[Detections],
    places: Sequence[int],
    class_names: Sequence[str],
    read_image: Callable[[int], Tensor],
    threshold: float,
) -> Section:
    """Pictures of a set without boxes: the images of `places` with what scores `threshold` or more."""
    figures = []
    for place in places:
        image, pixels = detections[place], read_image(place)
        rows = [row for row, score in enumerate(image.scores.tolist()) if score >= threshold]
        boxes = [_found(image, row, class_names, "found") for row in rows]
        told = ", ".join(box.title for box in boxes[:4])
        caption = f"<b>{escape(told or 'nothing')}</b><br>{escape(image.image_id)}"
        figures.append(figure(picture(pixels, _size(pixels), boxes, image.image_id), caption, _size(pixels)))
    note = f"The most confident detections, from a score of {threshold:g} on. Nobody drew boxes to compare."
    if not any(len(image.scores) for image in detections):
        note = "Nothing was detected in any image."
    return Section("Pictures", (warning if not figures else paragraph)(note) + grid(figures, "pictures"))


def truth_boxes(annotation: Annotation | None) -> list[Box]:
    """The true boxes of an image, to be drawn dashed."""
    return [Box(box, "true") for box in annotation.boxes.tolist()] if annotation else []


def _draw(image: Judged, class_names: Sequence[str], pixels: Tensor, row: int | None) -> str:
    """One image; `row` is the detection that is spoken of, None: all that count."""
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
    """(image, row) of the counted detections of some kinds, best score first."""
    found = [
        (-float(image.detections.scores[row]), index, row)
        for index, image in enumerate(judged)
        for row in image.counted.nonzero()[:, 0].tolist()
        if wanted(int(image.kinds[row]))
    ]
    return [(index, row) for _, index, row in sorted(found)]


def _one_an_image(places, count: int) -> list[tuple[int, int]]:
    by_image: dict[int, tuple[int, int]] = {}
    for place in places:
        by_image.setdefault(place[0], place)
    return list(by_image.values())[:count]
