"""COCO files of tools that show pictures rotated by their EXIF orientation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from detector.data.datasets.label_studio_names import name_in_coco
from detector.data.images import read_image_size

UPRIGHT, STORED = "upright", "stored"  # values of info.orientation in files that detector writes
# CVAT writes COCO with Datumaro, which always adds this entry.
_LICENSES_OF_CVAT = [{"name": "", "id": 0, "url": ""}]
# Values of info.contributor; the second is of brush masks.
_LABEL_STUDIO = ("Label Studio", "Label Studio Converter")


def drawn_upright(content: Mapping[str, Any]) -> bool:
    """Whether a file says that its boxes are of the upright pictures, not of the pixels as stored."""
    by_cvat = content.get("licenses") == _LICENSES_OF_CVAT
    return by_cvat or is_label_studio(content) or _info(content).get("orientation") == UPRIGHT


def says_stored(content: Mapping[str, Any]) -> bool:
    """Whether a file says that its boxes are of the pixels as stored, which COCO defines and tools ignore."""
    return _info(content).get("orientation") == STORED


def is_label_studio(content: Mapping[str, Any]) -> bool:
    return _info(content).get("contributor") in _LABEL_STUDIO


def name_images_of_label_studio(content: Mapping[str, Any]) -> None:
    """Set file_name in a file of Label Studio, which may have addresses, to names of pictures."""
    if is_label_studio(content):
        for image in content["images"]:
            if isinstance(image.get("file_name"), str):
                image["file_name"] = name_in_coco(image["file_name"])


def _info(content: Mapping[str, Any]) -> Mapping[str, Any]:
    info = content.get("info")
    return info if isinstance(info, dict) else {}


def correct_label_studio(content: Mapping[str, Any], paths: Mapping[int | str, str | Path]) -> None:
    """Set the sizes of pictures in a file of Label Studio to those upright, and stretch polygons to them.

    It writes sizes of the pixels as stored. Rectangles are in pixels of the upright picture, polygons are
    its percentages of the size as stored (convert_to_coco of label-studio-sdk).

    Args:
        content: of :func:`detector.data.datasets.coco.read_instances`; changed in place.
        paths: the files of pictures that exist, by the ids of their entries.
    """
    if not is_label_studio(content):
        return
    stretched: dict[int | str, tuple[float, float]] = {}
    for image in content["images"]:
        if image["id"] in paths:
            height, width = read_image_size(paths[image["id"]], apply_orientation=True)
            stated = image.get("height"), image.get("width")
            if stated == (width, height) != (height, width):
                stretched[image["id"]] = width / height, height / width
            if stated in ((width, height), (None, None)):
                image["height"], image["width"] = height, width
    for row in content["annotations"]:
        factors, box = stretched.get(row.get("image_id"), (1.0, 1.0)), row["bbox"]
        if row.get("segmentation") and _is_box(box):
            row["bbox"] = [value * factor for value, factor in zip(box, factors * 2, strict=True)]


def _is_box(box: object) -> bool:
    return isinstance(box, list) and len(box) == 4 and all(isinstance(value, (int, float)) for value in box)
