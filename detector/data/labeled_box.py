"""The box of an object as files of annotations have it: tables, VOC, COCO, YOLO and labeling tools."""

from typing import NamedTuple


class LabeledBox(NamedTuple):
    """One object of an image."""

    label: str  # class name
    box: tuple[float, ...]  # half-open x1, y1, x2, y2 in pixels
    score: float | None = None  # of the detector; None: a person drew the box
    reviewed: bool = False  # a person drew, corrected or accepted the box: it counts as true
    doubtful: bool = False  # the best box of a tagged class, whose score is low
    difficult: bool = False  # AP ignores it: hard to recognize (VOC), or a region of several (COCO's iscrowd)
    truncated: bool = False  # a part of the object is outside of the image or hidden (VOC)
