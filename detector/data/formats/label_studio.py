"""Label Studio's JSON: a list of tasks. Boxes of complete images are annotations, others predictions.

https://labelstud.io/guide/predictions describes it. Boxes are percentages of the image; flags of a box are
the text that the tool shows with the region.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detector.data.formats.review import ReviewBox, ReviewImage
from detector.data.images import read_image_size
from detector.utils.errors import DataError

# The tool serves files below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT under this address.
_LOCAL_FILES = "/data/local-files/?d="
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
    for number, task in enumerate(tasks):
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(data, dict):
            raise DataError(f"task {number} has no `data`: export the project as JSON, not as JSON-MIN")
        try:
            yield _read_task(task, data, folder)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"task {task.get('id', number)} lacks {error} or has it of another type"
            ) from None


def _read_task(task: dict[str, Any], data: dict[str, Any], folder: str | Path | None) -> ReviewImage:
    if "file" in data:
        name = data["file"]
    else:
        parts = urlsplit(data["image"])
        local = parse_qs(parts.query).get("d")
        name = local[0] if local else _UPLOADED.sub("", parts.path.rpartition("/")[2])
    submitted = [each for each in task.get("annotations", []) if not each.get("was_cancelled")]
    # The tool lists the ids of predictions in some exports.
    predicted = [each for each in task.get("predictions", []) if isinstance(each, dict)]
    newest = sorted(submitted or predicted, key=lambda each: each.get("updated_at") or "")[-1:]
    regions = newest[0]["result"] if newest else []
    for region in regions:
        if len(labels := region["value"].get("rectanglelabels", [])) != 1:
            found = f"a region of type {region.get('type')!r} with the labels {labels}"
            raise DataError(f"image {name!r} has {found}, expected rectanglelabels with one label")
    size = _size(data, regions, name, folder)
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
    return read_image_size(Path(folder, name), apply_orientation=True)


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
