"""COCO's instances JSON, with the keys "score", "reviewed" and "doubtful" of an annotation."""

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from detector.data.datasets import coco
from detector.data.datasets.coco_tools import (
    STORED,
    UPRIGHT,
    correct_label_studio,
    drawn_upright,
    is_label_studio,
    says_stored,
)
from detector.data.formats.review import ReviewImage
from detector.data.labeled_box import LabeledBox
from detector.data.picture_index import index_folder
from detector.utils.errors import DataError


def encode(images: Iterable[ReviewImage], class_names: Sequence[str]) -> bytes:
    """The file of images, categories and annotations; its `annotations` can be passed to `loadRes`.

    All ids start at 1; categories are in the order of the classes.
    """
    categories = {name: number for number, name in enumerate(class_names, start=1)}
    images = list(images)
    orientation = {"orientation": UPRIGHT} if all(image.upright for image in images) else {}
    if images and all(image.stated for image in images):
        orientation = {"orientation": STORED}
    content: dict[str, Any] = {
        "info": {"description": "boxes of detector", **orientation},
        "images": [],
        "categories": [{"id": number, "name": name} for name, number in categories.items()],
        "annotations": [],
    }
    for image_id, image in enumerate(images, start=1):
        height, width = image.size
        row = {"id": image_id, "file_name": image.name, "height": height, "width": width}
        content["images"].append(row | ({"reviewed": True} if image.complete else {}))
        for box in image.boxes:
            x1, y1, x2, y2 = box.box
            annotation: dict[str, object] = {
                "id": len(content["annotations"]) + 1,
                "image_id": image_id,
                "category_id": categories[box.label],
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "area": (x2 - x1) * (y2 - y1),
                "iscrowd": int(box.difficult),
            }
            if box.score is not None:
                annotation["score"] = box.score
            flags = {"reviewed": box.reviewed, "doubtful": box.doubtful}
            content["annotations"].append(annotation | {key: True for key in flags if flags[key]})
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def read(path: Path, folder: str | Path | None = None) -> Iterator[ReviewImage]:
    """The images of a COCO file. iscrowd regions are difficult.

    Args:
        folder: the folder of images, for the sizes that some programs leave out.
    """
    content = coco.read_instances(path)
    images, annotations = content["images"], content["annotations"]
    names = coco.read_file_names(images, folder)
    if folder is not None and Path(folder).is_dir():  # Label Studio renames uploaded files
        names = index_folder(Path(folder)).rename(names)
    _correct_sizes(content, path, folder, names)
    rows = {image["id"]: index for index, image in enumerate(images)}
    categories = coco.read_categories(content["categories"], annotations)
    owners = coco.look_up(annotations, "image_id", rows, "image")
    coco.look_up(annotations, "category_id", dict.fromkeys(categories, 0), "category")
    corners = coco.read_boxes(annotations)
    scores = coco.read_numbers(annotations, "score", "annotation")  # nan where there is none
    crowd = coco.read_numbers(annotations, "iscrowd", "annotation") == 1
    boxes: list[list[LabeledBox]] = [[] for _ in images]
    for row, owner, (x1, y1, x2, y2), score, difficult in zip(
        annotations, owners.tolist(), corners.tolist(), scores.tolist(), crowd.tolist(), strict=True
    ):
        label, known = categories[row["category_id"]], score if row.get("score") is not None else None
        flags = row.get("reviewed") is True, row.get("doubtful") is True, difficult
        boxes[owner].append(LabeledBox(label, (x1, y1, x2, y2), known, *flags))
    if folder is None and any(image.get("height") is image.get("width") is None for image in images):
        raise DataError("images have neither width nor height: name the folder of images (--images)")
    found_sizes = coco.read_sizes(images, [Path(folder or "", name) for name in names])
    coco.check_have_sizes(corners, found_sizes[owners])
    sizes = found_sizes.tolist()
    upright, stated = drawn_upright(content), says_stored(content)
    for image, name, (height, width), found in zip(images, names, sizes, boxes, strict=True):
        complete = image.get("reviewed") is True
        yield ReviewImage(name, (height, width), tuple(found), complete, upright, stated)


def _correct_sizes(
    content: dict[str, Any], path: Path, folder: str | Path | None, names: Sequence[str]
) -> None:
    """Correct the sizes and polygons of Label Studio by the pictures, if they are there."""
    if folder is None:
        if is_label_studio(content):
            warnings.warn(
                f"{path}: COCO files of Label Studio have sizes of the pixels as stored, but boxes of the "
                "images as a viewer shows them: if some are turned by their EXIF orientation, export the "
                "project as JSON, or name the folder of images (detector review-import --images)",
                stacklevel=2,
            )
        return
    places = (Path(folder), path.parent)
    found = (
        (image["id"], next((file for place in places if (file := place / name).is_file()), None))
        for image, name in zip(content["images"], names, strict=True)
    )
    correct_label_studio(content, {image_id: file for image_id, file in found if file})
