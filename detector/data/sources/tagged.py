"""A picture with its tags and its location."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from detector.data.datasets.image_table import Row
from detector.data.datasets.table_writer import encode_row
from detector.data.images import in_any_form
from detector.data.labeled_box import LabeledBox
from detector.data.sources.class_folders import visible
from detector.data.sources.splits import split_of


class Tagged(NamedTuple):
    """One picture."""

    file: Path
    labels: tuple[str, ...]  # classes that it shows
    unknown: tuple[str, ...] = ()  # classes that it may show or not
    split: str | None = None  # TRAIN or VAL, where the source says so
    boxes: tuple[LabeledBox, ...] | None = None  # of all objects, if they are known
    size: tuple[int, int] | None = None  # (height, width) to which the boxes refer, where the source says so
    upright: bool = True  # whether they refer to the picture as a viewer shows it
    stated: bool = False  # the source says explicitly that they do not
    root: Path = Path("/")  # what the name in the source is relative to
    line: int = 0  # of the table; 0: the source is not a table
    content: str = ""  # the digest of the file, if another picture is a copy of it

    @property
    def name(self) -> str:
        """The name in the source, by which `detector label` and labeling tools know the picture."""
        return self.file.relative_to(self.root).as_posix()

    @property
    def entry(self) -> str:
        """The path for a table in any folder; the part after /./ is the name (:func:`picture_name`)."""
        return f"{self.root.as_posix().removesuffix('/')}/./{self.name}"

    @property
    def sides(self) -> list[float]:
        """The square root of each box's area, as a share of the longer side of the picture."""
        boxes = (box.box for box in self.boxes or ())
        return [math.sqrt((x2 - x1) * (y2 - y1)) / max(self.size) for x1, y1, x2, y2 in boxes if self.size]

    def row(self, *, with_boxes: bool = False) -> str:
        """A line of a table of image labels (detector/data/datasets/image_table.py)."""
        boxes = self.boxes if with_boxes else None
        return encode_row(Row(self.line, self.entry, self.labels, boxes, self.unknown))


def places_of_pictures(pictures: Path, labels: Path) -> list[Path]:
    """The folders to which a name in a file of labels may be relative."""
    places = [pictures, pictures / "JPEGImages", pictures / "images", pictures / "data", labels.parent]
    for place in (pictures, pictures / "images"):  # train2017 beside annotations/instances_train2017.json
        if place.is_dir():
            places += [path for path in visible(place) if path.is_dir() and split_of(path.name)]
    return places


def locate(picture: Tagged, places: Sequence[Path]) -> Tagged:
    """The picture with the path of its file: below the first place that has it, else that has its folder."""
    if picture.file.is_absolute():
        return picture
    name = picture.file.as_posix().replace("\\", "/")
    place = next(
        (place for place in places if os.path.isfile(in_any_form(place / picture.file))),
        next((place for place in places if (place / name).parent.is_dir()), places[0]),
    ).resolve()
    return picture._replace(file=in_any_form(place / picture.file), root=place)
