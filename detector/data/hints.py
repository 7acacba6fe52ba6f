"""Hints about training images: points in objects and counts of objects, which take less work than boxes.

A file of hints has JSON lines, one per image:

    {"file": "a.jpg", "points": [{"label": "cat", "point": [31.5, 80]}], "counts": {"dog": 3}}

If an image has points of a class, they are in all or some of its objects. `file` is as in a
table of image labels, or an image id. Points are in pixels of the image. A .json is an export of Label Studio
with keypoints instead, an .xml one of CVAT with points, a .sqlite the file of detector review.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages, hint_nearest, unknown_class
from detector.data.datasets.image_table import json_lines
from detector.data.formats import cvat, label_studio, review_file
from detector.data.images import read_orientation
from detector.data.orientation import inverse, turn_box, turn_size
from detector.data.reviewed import find_id
from detector.structures import Hints
from detector.utils.errors import DataError, ErrorList
from detector.utils.files import read_text, reading

_KEYS = {"file", "points", "counts"}
_MOST = 65_535  # objects of a class, as many as proposals
_EXAMPLE = '{"file": NAME, "points": [{"label": CLASS, "point": [x, y]}], "counts": {CLASS: NUMBER}}'


def read_hints(path: Path, dataset: AnnotatedImages) -> dict[str, Hints]:
    """The points and counts in a file, by the ids of the images of a split.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: names each wrong line or image: another form, no such image or class, an image listed
            twice, a point outside of its image, or a count that is less than 1 or than the number of points.
    """
    indices = {image_id: i for i, image_id in enumerate(dataset.image_ids)}
    mistakes, found = ErrorList(path), dict[str, Hints]()
    for line, content, upright in _entries(path, mistakes, dataset.apply_orientation):
        try:
            if not {"file"} <= content.keys() <= _KEYS:
                raise DataError(f"expected {_EXAMPLE}")
            image_id = find_id(str(content["file"]), indices)
            if image_id in found:
                raise DataError(f"image {content['file']!r} is listed twice")
            if image_id not in indices:
                hint = hint_nearest(image_id, indices)
                raise DataError(f"image {content['file']!r} is not in {dataset.name}{hint}")
            index = indices[image_id]
            turned = upright != dataset.apply_orientation
            orientation = read_orientation(dataset.image_path(index)) if turned else 1
            size = turn_size(dataset.image_size(index), orientation)  # of the image to which the points refer
            hints = _hints(content, size, dataset.class_names)
            back = inverse(orientation) if upright else orientation
            found[image_id] = replace(hints, points=_turn(hints.points, back, size))
        except DataError as error:
            mistakes.add(line, error if line else f"image {content['file']!r}: {error}")
    mistakes.check()
    if not found:
        raise DataError(f"{path} lists no image: expected lines {_EXAMPLE}, or an export with points")
    return found


def _entries(path: Path, mistakes: ErrorList, upright: bool) -> Iterator[tuple[int, dict[str, Any], bool]]:
    """Line (or 0) and content of each image with hints, and whether its points refer to the upright image.

    Args:
        upright: whether the images of the data set are upright; points in JSON lines refer to these.
    """
    suffix = path.suffix.lower()
    if suffix == review_file.SUFFIX:
        yield from (
            (0, {"file": name, **hints}, turned) for name, hints, turned in review_file.read_hints(path)
        )
        return
    if suffix not in (".json", ".xml"):
        lines = json_lines(read_text(path, "file of points").split("\n"), mistakes)
        yield from ((line, content, upright) for line, content in lines)
        return
    with reading(path, "file of points"):
        if suffix == ".xml":
            images = cvat.read_points(path)
        else:
            images = label_studio.read_points(json.loads(path.read_bytes()))
        # People set points on the upright image in a tool.
        yield from ((0, {"file": name, "points": points}, True) for name, points in images if points)


def _turn(points: Tensor, orientation: int, size: tuple[int, int]) -> Tensor:
    """Points (P, 2) of an image of this size after the image was turned by an EXIF orientation."""
    turned = [turn_box((x, y, x, y), orientation, size)[:2] for x, y in points.tolist()]
    return torch.tensor(turned).reshape(-1, 2)


def _hints(content: dict[str, Any], size: tuple[int, int], class_names: Sequence[str]) -> Hints:
    """The hints of one line for an image of this (height, width)."""
    points, numbers = content.get("points", []), content.get("counts", {})
    if not isinstance(points, list) or not isinstance(numbers, dict):
        raise DataError(f"expected {_EXAMPLE}")
    labels = []
    for point in points:
        if not isinstance(point, dict) or point.keys() != {"label", "point"}:
            raise DataError(f'a point is {point!r}, expected {{"label": CLASS, "point": [x, y]}}')
        labels.append(_column(point["label"], class_names))
        _check_point(point["point"], *size)
    counts = [0] * len(class_names)
    for name, number in numbers.items():
        pointed = labels.count(column := _column(name, class_names))
        if type(number) is not int or not max(1, pointed) <= number <= _MOST:
            expected = f"expected an integer from {max(1, pointed)} to {_MOST}, as it has {pointed} points"
            raise DataError(f"the count of {name!r} is {number!r}, {expected}")
        counts[column] = number
    xy = torch.tensor([point["point"] for point in points], dtype=torch.float32).reshape(-1, 2)
    return Hints(xy, torch.tensor(labels, dtype=torch.int64), torch.tensor(counts))


def _check_point(point: Any, height: int, width: int) -> None:
    if not isinstance(point, list) or [type(number) in (int, float) for number in point] != [True, True]:
        raise DataError(f"a point is {point!r}, expected two numbers, x and y")
    if not (0 <= point[0] <= width and 0 <= point[1] <= height):
        raise DataError(f"the point {point} is outside of its image, {width} wide and {height} high")


def _column(name: Any, class_names: Sequence[str]) -> int:
    if name not in class_names:
        raise DataError(unknown_class(str(name), class_names))
    return class_names.index(name)
