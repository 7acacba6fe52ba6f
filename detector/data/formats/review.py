"""Images with boxes as exchanged with labeling tools, and which boxes a person has reviewed."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

from detector.data.datasets.annotated import SHARES_HINT
from detector.data.images import LONGEST_SIDE
from detector.data.labeled_box import LabeledBox
from detector.data.orientation import Boxed, find_turns, turn_box, turn_size
from detector.data.picture_index import index_folder
from detector.structures import Detections
from detector.utils.errors import DataError, shortened
from detector.utils.files import check_printable, relative_name

_OUTSIDE_TOLERANCE = 1.0  # pixels; some published boxes extend this far: no warning

Point = dict[str, Any]  # {"label": class name, "point": [x, y] in pixels}, as in files of hints


@dataclass(frozen=True)
class ReviewImage:
    """One image with its boxes. If it is `complete`, all its boxes are reviewed, and there are no others."""

    name: str  # path of the file relative to the folder of images
    size: tuple[int, int]  # (height, width) in pixels
    boxes: tuple[LabeledBox, ...]
    complete: bool = False  # a person has reviewed the whole image
    # Size and boxes are of the image as a viewer shows it. False: of the pixels as stored, as COCO and VOC
    # define, unless the size says otherwise (detector/data/orientation.py).
    upright: bool = True
    stated: bool = False  # the file itself says that they are of the pixels as stored
    split: str = ""  # the name in the tool; "": unknown
    unboxed: tuple[str, ...] = ()  # classes of objects whose box was dropped: no area in the image

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
    def true_boxes(self) -> tuple[LabeledBox, ...]:
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
    stated: bool = False,
) -> ReviewImage:
    """Detections as boxes that a person has yet to review.

    Args:
        doubtful: rows of the doubtful detections.
        reviewed: how many of the boxes, from the first on, are reviewed already.
        complete: these are all objects of the image.
        upright, stated: as in :class:`ReviewImage`.
    """
    columns = (column.tolist() for column in (detections.boxes, detections.scores, detections.labels))
    rows, doubts = enumerate(zip(*columns, strict=True)), set(doubtful)
    boxes = [
        LabeledBox(class_names[label], tuple(box), score, row < reviewed, row in doubts)
        for row, (box, score, label) in rows
    ]
    return ReviewImage(name, size, tuple(boxes), complete, upright, stated)


def turn_images(
    source: object, images: Sequence[ReviewImage], paths: Sequence[Path], *, upright: bool
) -> list[ReviewImage]:
    """Images with boxes that refer to the pictures in `paths` upright, or to their pixels as stored.

    Args:
        source: the file of the boxes, for the warning of :func:`find_turns`.

    Raises:
        FileNotFoundError, DataError: a picture cannot be read.
    """
    pictures = [
        Boxed(path, image.size, image.upright, stated=image.stated)
        for path, image in zip(paths, images, strict=True)
    ]
    turned = []
    for image, turn in zip(images, find_turns(source, pictures, upright=upright), strict=True):
        boxes = tuple(box._replace(box=turn_box(box.box, turn, image.size)) for box in image.boxes)
        image = replace(image, upright=upright, stated=image.stated and not upright)
        turned.append(replace(image, boxes=boxes, size=turn_size(image.size, turn)))
    return turned


def renamed(images: Iterable[ReviewImage], folder: str | Path | None) -> list[ReviewImage]:
    """The images with their names below the folder: Label Studio and others change or shorten them."""
    found = list(images)
    if not found or folder is None or not Path(folder).is_dir():
        return found
    names = index_folder(Path(folder)).rename([image.name for image in found])
    return [replace(image, name=name) for image, name in zip(found, names, strict=True)]


def check_images(
    images: Iterable[ReviewImage],
    reviewed: Literal["flags", "all"] = "flags",
    source: str | Path = "",
) -> list[ReviewImage]:
    """The images of a file with boxes clipped to them; one warning counts those that change notably.

    A box without area in its image, or an inverted one, is dropped. The image keeps the class, as `unboxed`,
    and is not complete.

    An image may occur several times, for example in tasks that were added to a project later: the one that a
    person has reviewed counts.

    Args:
        reviewed: "all": all images are complete.
        source: the file, for the warning.

    Raises:
        DataError: an image occurs twice with reviewed boxes, or has an invalid name or size; a box has no
            class name or is not finite. Names the first ten.
    """
    checked: dict[str, ReviewImage] = {}
    mistakes, odd = [], _OddBoxes()
    for image in images:
        try:
            image = replace(image, complete=image.complete or reviewed == "all")
            image = _check_image(image, odd)
        except DataError as error:
            mistakes.append(str(error))
            continue
        earlier = checked.get(image.name)
        if earlier is None or earlier.reviewed == "none":
            checked[image.name] = image
        elif image.reviewed != "none":
            mistakes.append(
                f"image {image.name!r} occurs twice with reviewed boxes: keep one of the two, or give two "
                "images two names"
            )
    if mistakes:
        raise DataError(shortened(mistakes, between="\n"))
    sides = [box.box for image in checked.values() for box in image.boxes]
    if sides and max(map(max, sides)) <= 1:
        raise DataError(
            f"no box extends beyond the first pixel of its image, as {[*sides[0]]}: {SHARES_HINT}"
        )
    if odd.first:
        warnings.warn(
            f"{source or 'boxes'}: boxes that extend outside of their image, clipped: {odd.clipped}; that "
            f"have no area in it or are inverted, left out (their images keep the class): {odd.dropped}; the "
            f"first: {odd.first}",
            stacklevel=3,
        )
    return list(checked.values())


@dataclass
class _OddBoxes:
    """How many boxes were clipped and dropped, and which was the first."""

    clipped: int = 0
    dropped: int = 0
    first: str = ""


def _check_image(image: ReviewImage, odd: _OddBoxes) -> ReviewImage:
    name = relative_name(image.name)
    if not 1 <= min(image.size) <= max(image.size) <= LONGEST_SIDE:
        raise DataError(
            f"image {name!r} has the (height, width) {shorten(str(image.size), 60)}, expected numbers of "
            f"pixels from 1 to {LONGEST_SIDE}"
        )
    (height, width), boxes, unboxed = image.size, [], []
    for box in image.boxes:
        place = f"image {name!r} has the box {list(box.box)} ({box.label!r})"
        _check_box(box, place)
        x1, y1, x2, y2 = box.box
        clipped = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
        empty = clipped[0] >= clipped[2] or clipped[1] >= clipped[3]
        if empty:
            odd.dropped += 1
            unboxed.append(box.label.strip())
        else:
            boxes.append(box._replace(label=box.label.strip(), box=clipped))
        cut = max(abs(a - b) for a, b in zip(box.box, clipped, strict=True)) > _OUTSIDE_TOLERANCE
        odd.clipped += cut and not empty
        if empty or cut:
            odd.first = odd.first or f"{place}, and is {width} wide and {height} high"
    complete = image.complete and not unboxed
    return replace(image, name=name, boxes=tuple(boxes), complete=complete, unboxed=tuple(unboxed))


def _check_box(box: LabeledBox, place: str) -> None:
    if not isinstance(box.label, str) or not box.label.strip():
        raise DataError(f"{place} without a class name")
    check_printable(box.label)
    if box.score is not None and not math.isfinite(box.score):
        raise DataError(f"{place} with the score {box.score}, expected a finite number")
    if not all(map(math.isfinite, box.box)):
        raise DataError(f"{place}, which is not finite")
