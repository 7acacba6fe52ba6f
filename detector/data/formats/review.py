"""Images with boxes as exchanged with labeling tools, and which boxes a person has reviewed."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, NamedTuple

from detector.data.images import LONGEST_SIDE
from detector.data.orientation import Boxed, find_turns, turn_box, turn_size
from detector.structures import Detections
from detector.utils.errors import DataError
from detector.utils.files import check_printable, relative_name

_OUTSIDE_TOLERANCE = 1.0  # pixels; further outside of the image, a box is that of another image

Point = dict[str, Any]  # {"label": class name, "point": [x, y] in pixels}, as in files of hints


class ReviewBox(NamedTuple):
    """One object of an image."""

    label: str  # class name
    box: tuple[float, float, float, float]  # half-open x1, y1, x2, y2 in pixels
    score: float | None = None  # of the detector; None: a person drew the box
    reviewed: bool = False  # a person drew, corrected or accepted the box: it counts as true
    doubtful: bool = False  # the best box of a tagged class, whose score is low
    difficult: bool = False  # AP ignores it: hard to recognize (VOC), or a region of several (COCO's iscrowd)


@dataclass(frozen=True)
class ReviewImage:
    """One image with its boxes. If it is `complete`, all its boxes are reviewed, and there are no others."""

    name: str  # path of the file relative to the folder of images
    size: tuple[int, int]  # (height, width) in pixels
    boxes: tuple[ReviewBox, ...]
    complete: bool = False  # a person has reviewed the whole image
    # Size and boxes are of the image as a viewer shows it. False: of the pixels as stored, as COCO and VOC
    # define, unless the size says otherwise (detector/data/orientation.py).
    upright: bool = True

    def __post_init__(self) -> None:
        if self.complete:
            boxes = tuple(box._replace(reviewed=True) for box in self.boxes)
            object.__setattr__(self, "boxes", boxes)

    @property
    def reviewed(self) -> Literal["none", "some", "all"]:
        """Which objects of the image are known: all, those of :attr:`true_boxes`, or none."""
        if self.complete:
            return "all"
        return "some" if self.true_boxes else "none"

    @property
    def true_boxes(self) -> tuple[ReviewBox, ...]:
        """The boxes that count as true."""
        return tuple(box for box in self.boxes if box.reviewed)


def review_image(
    name: str,
    size: tuple[int, int],
    detections: Detections,
    class_names: Sequence[str],
    *,
    doubtful: Iterable[int] = (),
    reviewed: int = 0,
    complete: bool = False,
    upright: bool = True,
) -> ReviewImage:
    """Detections as boxes that a person has yet to review.

    Args:
        doubtful: rows of `detections`.
        reviewed: so many boxes, the first, are reviewed already.
        complete: these are all objects of the image.
        upright: of :class:`ReviewImage`.
    """
    columns = (each.tolist() for each in (detections.boxes, detections.scores, detections.labels))
    rows, doubts = enumerate(zip(*columns, strict=True)), set(doubtful)
    boxes = [
        ReviewBox(class_names[label], tuple(box), score, row < reviewed, row in doubts)
        for row, (box, score, label) in rows
    ]
    return ReviewImage(name, size, tuple(boxes), complete, upright)


def turn_images(
    source: object, images: Sequence[ReviewImage], paths: Sequence[Path], *, upright: bool
) -> list[ReviewImage]:
    """Images with boxes that refer to the pictures in `paths` upright, or to their pixels as stored.

    Args:
        source: the file of the boxes, for the warning of :func:`find_turns`.

    Raises:
        FileNotFoundError, DataError: a picture cannot be read.
    """
    pictures = [Boxed(path, each.size, each.upright) for path, each in zip(paths, images, strict=True)]
    turned = []
    for each, turn in zip(images, find_turns(source, pictures, upright=upright), strict=True):
        boxes = tuple(box._replace(box=turn_box(box.box, turn, each.size)) for box in each.boxes)
        turned.append(replace(each, boxes=boxes, size=turn_size(each.size, turn), upright=upright))
    return turned


def check_images(
    images: Iterable[ReviewImage], reviewed: Literal["flags", "all"] = "flags"
) -> list[ReviewImage]:
    """The images of a file with boxes clipped to them.

    An image may occur several times, as where later tasks were added to a project that has all images: the
    one that a person has reviewed counts.

    Args:
        reviewed: "all": all images are complete.

    Raises:
        DataError: an image occurs twice with reviewed boxes, or has an invalid name or size; a box has no
            class name, is inverted or not finite, has no area, or extends outside of its image.
    """
    checked: dict[str, ReviewImage] = {}
    for image in images:
        name = relative_name(image.name)
        if not 1 <= min(image.size) <= max(image.size) <= LONGEST_SIDE:
            raise DataError(
                f"image {name!r} has the (height, width) {shorten(str(image.size), 60)}, expected numbers of "
                f"pixels from 1 to {LONGEST_SIDE}"
            )
        boxes = tuple(_check_box(box, image) for box in image.boxes)
        complete = image.complete or reviewed == "all"
        image = replace(image, name=name, boxes=boxes, complete=complete)
        if name not in checked or checked[name].reviewed == "none":
            checked[name] = image
        elif image.reviewed != "none":
            raise DataError(
                f"image {name!r} occurs twice with reviewed boxes: keep one of the two, or give two images "
                "two names"
            )
    return list(checked.values())


def _check_box(box: ReviewBox, image: ReviewImage) -> ReviewBox:
    place = f"image {image.name!r} has the box {list(box.box)} ({box.label!r})"
    if not isinstance(box.label, str) or not box.label.strip():
        raise DataError(f"{place} without a class name")
    check_printable(box.label)
    if box.score is not None and not math.isfinite(box.score):
        raise DataError(f"{place} with the score {box.score}, expected a finite number")
    height, width = image.size
    x1, y1, x2, y2 = box.box
    clipped = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
    if not all(map(math.isfinite, box.box)) or clipped[0] >= clipped[2] or clipped[1] >= clipped[3]:
        raise DataError(f"{place}, which has no area in the image of width {width} and height {height}")
    if max(abs(a - b) for a, b in zip(box.box, clipped, strict=True)) > _OUTSIDE_TOLERANCE:
        raise DataError(f"{place}, which extends outside of the image of width {width} and height {height}")
    return box._replace(label=box.label.strip(), box=clipped)
