"""Reads boxes as the models and tools of the field write them in JSON: a single one, or all of an image.

    {"score": 0.9, "label": "cat", "box": {"xmin": 10, "ymin": 20, "xmax": 60, "ymax": 80}}     Hugging Face
    {"score": 0.9, "label": "cat", "mask": rows of 0 and 1}                                     and its masks
    {"name": "cat", "class": 0, "confidence": 0.9, "box": {"x1": 10, "y1": 20, ...}}            Ultralytics;
                                                                   rotated ones have the corners 1 to 4
    {"category_id": 1, "bbox": [x, y, width, height], "score": 0.9, "segmentation": ...}        COCO
    {"bbox": [x, y, width, height], "predicted_iou": 0.9, "stability_score": 0.95, "segmentation": ...}  SAM
    {"x_min": 10, "y_min": 20, "x_max": 60, "y_max": 80, "class_name": "cat", "confidence": 0.9}  supervision
    {"label": "cat", "points": [[10, 20], [60, 80]], "shape_type": "rectangle", "score": 0.9}   LabelMe
    {"label": "cat", "box": [x1, y1, x2, y2], "score": 0.9}                                     detector

An image has a list of these, or arrays: {"xyxy": [[x1, y1, x2, y2], ...], "confidence": [...], "class_id":
[...], "data": {"class_name": [...]}} (supervision.Detections); "boxes", "scores", "labels" (torchvision), and
"text_labels" (Hugging Face); "boxes", "logits", "phrases" (Grounding DINO); "bboxes", "scores", "labels"
(MMDetection).
"""

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from detector.data.teacher.masks import Box, Size, mask_box
from detector.utils.errors import DataError, describe_value

LISTS = (
    "boxes",
    "bboxes",
    "detections",
    "predictions",
    "annotations",
    "results",
    "objects",
    "shapes",
    "masks",
)
_CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x1", "y1", "x2", "y2"), ("x_min", "y_min", "x_max", "y_max"))
_ROTATED = tuple(f"{axis}{corner}" for corner in range(1, 5) for axis in "xy")
_SHAPES = (None, "rectangle", "polygon", "rotation", "mask")  # of LabelMe, whose points enclose the object
_SCORES = ("score", "confidence", "conf")
_NAMES = ("class_name", "category_name", "label", "name", "category", "class", "category_id", "class_id")
# Of keys with the same meaning, the later one counts.
_ARRAYS = {"logits": "score", "confidence": "score", "scores": "score", "score": "score"}
_ARRAYS |= {"class_id": "class_id", "labels": "label", "mask": "segmentation"}
_ARRAYS |= {"phrases": "class_name", "text_labels": "class_name", "class_name": "class_name"}
# SAM regresses its estimate of the IoU, so it may exceed 1.
_HIGHEST_IOU = 1.2


class FoundBox(NamedTuple):
    """One box of a teacher."""

    label: str | int | None  # name or number of the class; None: the teacher knows no classes
    box: Box  # half-open, in pixels, or in shares of the image
    score: float  # in [0, 1]; 1 where the teacher gives none
    size: Size | None = None  # of the image, as its mask says


def read_content(content: Any) -> list[FoundBox]:
    """The boxes of one image, in any of the forms above; empty masks are left out.

    Raises:
        DataError: it has another form, or a value of another kind.
    """
    return [box for row in _rows(content) if (box := read_entry(row))]


def _rows(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, dict):
        key = next((key for key in ("xyxy", *LISTS) if isinstance(content.get(key), list)), None)
        if key is None:
            raise DataError(f"it is {describe_value(content)}, expected boxes, such as under {LISTS[0]!r}")
        rows = content[key]
        if rows and isinstance(rows[0], list):
            yield from _from_arrays(key, content)
            return
    else:
        rows = content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"its boxes are {describe_value(rows)}, expected a list of objects")
    yield from rows


def _from_arrays(key: str, content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    boxes, data = content[key], content.get("data")
    columns = {**content, **(data if isinstance(data, dict) else {})}
    columns = {name: columns[name] for name in _ARRAYS if columns.get(name) is not None and name != key}
    for name, values in columns.items():
        if not isinstance(values, list) or len(values) != len(boxes):
            found = len(values) if isinstance(values, list) else describe_value(values)
            raise DataError(f"it has {len(boxes)} boxes and {found} values of {name!r}, expected as many")
    for row, box in enumerate(boxes):
        yield {"box": box, **{_ARRAYS[name]: values[row] for name, values in columns.items()}}


def read_entry(row: dict[str, Any]) -> FoundBox | None:
    """The box of one entry; None: its mask is empty.

    Raises:
        DataError: there is none, or a value is of another kind.
    """
    box, size = _stated_box(row), None
    mask = row.get("mask")  # of Hugging Face; others name a file here
    mask = row.get("segmentation", mask if isinstance(mask, (list, dict)) else _outline(row))
    if mask not in (None, [], ""):
        around, size = mask_box(mask)
        box = around if box is None and around is not None else box
        if around is None:
            return None
    if box is None:
        raise DataError(
            f"{describe_value(row)} has no box: expected box (x1, y1, x2, y2), bbox (COCO's x, y, width, "
            "height), xyxy or a segmentation"
        )
    label = next((row[key] for key in _NAMES if row.get(key) not in (None, "")), None)
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    if label is not None and type(label) not in (str, int):
        raise DataError(f"a box has the class {describe_value(label)}, expected a name or a number")
    return FoundBox(label, box, _score(row), size)


def _score(row: dict[str, Any]) -> float:
    key = next((key for key in _SCORES if row.get(key) is not None), "predicted_iou")
    value = row.get(key)
    if value is None:
        return 1.0
    score = _number(value, key)
    if key == "predicted_iou" and 1 < score <= _HIGHEST_IOU:
        return 1.0
    if not 0 <= score <= 1:
        raise DataError(f"a box has the {key} {score:g}, expected a number in [0, 1]: percent, or logits?")
    return score


def _outline(row: dict[str, Any]) -> Any:
    """The corners of a rotated box, or the points of LabelMe's shape, as a polygon; None: there are none."""
    sides = row["box"] if isinstance(row.get("box"), dict) else row
    if all(name in sides for name in _ROTATED):
        return [[_number(sides[name], "corner") for name in _ROTATED]]
    if "points" in row and row.get("shape_type") not in _SHAPES:
        expected = ", ".join(map(str, _SHAPES[1:]))
        raise DataError(f"a shape is a {describe_value(row['shape_type'])}, expected one of {expected}")
    return row.get("points")


def _stated_box(row: dict[str, Any]) -> Box | None:
    stated = row.get("box", row.get("xyxy"))
    if isinstance(stated, dict) or stated is None:
        sides = row if stated is None else stated
        if all(name in sides for name in _ROTATED):
            return None
        for names in _CORNERS:
            if all(name in sides for name in names):
                return _box([sides[name] for name in names])
    if stated is not None:
        return _box(stated)
    if row.get("bbox") in (None, [], ""):
        return None
    x, y, width, height = _box(row["bbox"])
    return x, y, x + width, y + height


def _box(sides: Any) -> Box:
    if not isinstance(sides, (list, tuple)) or len(sides) != 4:
        raise DataError(f"a box is {describe_value(sides)}, expected four numbers")
    x1, y1, x2, y2 = (_number(side, "box") for side in sides)
    return x1, y1, x2, y2


def _number(value: Any, what: str) -> float:
    if not isinstance(value, bool):
        with suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):  # supervision's sinks write some numbers as text
                return number
    raise DataError(f"a {what} has the value {describe_value(value)}, expected a finite number")
