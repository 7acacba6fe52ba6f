"""Label Studio's JSON: a list of tasks. Boxes of complete images are annotations, others predictions.

https://labelstud.io/guide/predictions describes it, https://labelstud.io/tags/keypointlabels points. Both are
in percentages of the image; flags of a box are the text that the tool shows with the region.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detector.data.formats.review import Point, ReviewBox, ReviewImage
from detector.data.images import in_any_form, read_image_size
from detector.utils.errors import DataError

# The tool serves files below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT under this address.
_LOCAL_FILES = "/data/local-files/?d="
_T = TypeVar("_T")
_UPLOADED = re.compile("^[0-9a-f]{8}-")  # the tool's prefix of the name of an uploaded file


def label_config(class_names: Sequence[str]) -> bytes:
    """The labeling interface of a project: rectangles that cannot be rotated, with the classes as labels."""
    view = Element("View")
    SubElement(view, "Image", name="image", value="$image", zoom="true")
    labels = SubElement(view, "RectangleLabels", name="label", toName="image", canRotate="false")
    for name in class_names:
        SubElement(labels, "Label", value=name)
    indent(view)
    return tostring(view, encoding="utf-8")


def encode(images: Iterable[ReviewImage], folder: str) -> bytes:
    """The file of tasks; `folder` is that of the images, below the root of the files that the tool serves."""
    return json.dumps(
        [_task(image, folder) for image in images], ensure_ascii=False, allow_nan=False
    ).encode()


def _task(image: ReviewImage, folder: str) -> dict[str, Any]:
    height, width = image.size
    address = _LOCAL_FILES + quote(f"{folder}/{image.name}")
    data = {"image": address, "file": image.name, "width": width, "height": height}
    result = [_region(number, box, image.size) for number, box in enumerate(image.boxes)]
    if image.complete:
        return {"data": data, "annotations": [{"result": result}]}
    scores = [box.score for box in image.boxes if box.score is not None]
    prediction = {"model_version": "detector", "score": min(scores, default=0.0), "result": result}
    return {"data": data, "predictions": [prediction]}


def _region(number: int, box: ReviewBox, size: tuple[int, int]) -> dict[str, Any]:
    (height, width), (x1, y1, x2, y2) = size, box.box
    value = {
        "x": 100 * x1 / width,
        "y": 100 * y1 / height,
        "width": 100 * (x2 - x1) / width,
        "height": 100 * (y2 - y1) / height,
        "rotation": 0,
        "rectanglelabels": [box.label],
    }
    region: dict[str, Any] = {
        "id": f"box{number}",
        "type": "rectanglelabels",
        "from_name": "label",
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "value": value,
    }
    if box.score is not None:
        region["score"] = box.score
    if texts := [flag for flag in ("reviewed", "doubtful") if getattr(box, flag)]:
        region["meta"] = {"text": texts}
    return region


def read(tasks: Sequence[Any], folder: str | Path | None) -> Iterator[ReviewImage]:
    """The images of an export in the format JSON. One that a person has submitted is complete.

    Args:
        folder: the folder of images, for the sizes that tasks of others lack.
    """
    return _each_task(tasks, partial(_read_boxes, folder=folder))


def read_points(tasks: Sequence[Any]) -> Iterator[tuple[str, list[Point]]]:
    """The name of each image of an export in the format JSON, and the points that a person submitted."""
    return _each_task(tasks, _read_points)


def _each_task(tasks: Sequence[Any], read_task: Callable[[dict[str, Any], str], _T]) -> Iterator[_T]:
    """What `read_task` reads of a task and the name of its image."""
    if not isinstance(tasks, list):
        raise DataError("it is no list of tasks, as Label Studio exports in the format JSON")
    for number, task in enumerate(tasks):
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            raise DataError(f"task {number} has no `data`: export the project as JSON, not as JSON-MIN")
        try:
            yield read_task(task, _image_name(data))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"task {task.get('id', number)} lacks {error} or has it of another type"
            ) from None


def _image_name(data: dict[str, Any]) -> str:
    if "file" in data:
        return data["file"]
    parts = urlsplit(data["image"])
    local = parse_qs(parts.query).get("d")
    return local[0] if local else _UPLOADED.sub("", parts.path.rpartition("/")[2])


def _submitted(task: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in task.get("annotations", []) if not each.get("was_cancelled")]


def _regions(annotations: Sequence[dict[str, Any]], name: str, kind: str) -> list[dict[str, Any]]:
    """The regions of the newest annotation or prediction, each of which has one label of this kind."""
    newest = sorted(annotations, key=lambda each: each.get("updated_at") or "")[-1:]
    regions = newest[0]["result"] if newest else []
    for region in regions:
        if len(labels := region["value"].get(kind, [])) != 1:
            found = f"a region of type {region.get('type')!r} with the labels {labels}"
            raise DataError(f"image {name!r} has {found}, expected {kind} with one label")
    return regions


def _read_points(task: dict[str, Any], name: str) -> tuple[str, list[Point]]:
    points: list[Point] = []
    for region in _regions(_submitted(task), name, "keypointlabels"):
        value, sides = region["value"], (region["original_width"], region["original_height"])
        xy = [value[axis] * side / 100 for axis, side in zip("xy", sides, strict=True)]
        points.append({"label": value["keypointlabels"][0], "point": xy})
    return name, points


def _read_boxes(task: dict[str, Any], name: str, folder: str | Path | None) -> ReviewImage:
    submitted = _submitted(task)
    # The tool lists the ids of predictions in some exports.
    predicted = [each for each in task.get("predictions", []) if isinstance(each, dict)]
    regions = _regions(submitted or predicted, name, "rectanglelabels")
    size = _size(task["data"], regions, name, folder)
    boxes = tuple(_read_region(region, size, name) for region in regions)
    return ReviewImage(name, size, boxes, complete=bool(submitted))


def _size(
    data: dict[str, Any], regions: Sequence[dict[str, Any]], name: str, folder: str | Path | None
) -> tuple[int, int]:
    """(height, width), which a task without boxes does not say unless it is ours."""
    if regions:
        return int(regions[0]["original_height"]), int(regions[0]["original_width"])
    if "height" in data and "width" in data:
        return int(data["height"]), int(data["width"])
    if folder is None:
        raise DataError(f"image {name!r} has no boxes and no size: name the folder of images (--images)")
    return read_image_size(in_any_form(Path(folder, name)), apply_orientation=True)


def _read_region(region: dict[str, Any], size: tuple[int, int], name: str) -> ReviewBox:
    value, (height, width) = region["value"], size
    if value.get("rotation") or region.get("image_rotation"):
        raise DataError(f"image {name!r} has a rotated box or is rotated itself, expected no rotation")
    x1, y1 = value["x"] * width / 100, value["y"] * height / 100
    box = x1, y1, x1 + value["width"] * width / 100, y1 + value["height"] * height / 100
    texts = region.get("meta", {}).get("text", [])
    return ReviewBox(
        value["rectanglelabels"][0], box, region.get("score"), "reviewed" in texts, "doubtful" in texts
    )
