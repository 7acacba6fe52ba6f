"""COCO's instances JSON, with the keys "score", "reviewed" and "doubtful" of an annotation."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from detector.data import coco
from detector.data.formats.review import ReviewBox, ReviewImage


def encode(images: Iterable[ReviewImage], class_names: Sequence[str]) -> bytes:
    """The file of images, categories and annotations; its `annotations` can be passed to `loadRes`.

    All ids start at 1; categories are in the order of the classes.
    """
    categories = {name: number for number, name in enumerate(class_names, start=1)}
    content: dict[str, list[dict]] = {
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


def read(path: Path) -> Iterator[ReviewImage]:
    """The images of a COCO file. iscrowd regions are difficult."""
    content = coco.read_instances(path)
    images, annotations = content["images"], content["annotations"]
    rows = {image["id"]: index for index, image in enumerate(images)}
    categories = coco.read_categories(content["categories"])
    owners = coco.look_up(annotations, "image_id", rows, "image")
    coco.look_up(annotations, "category_id", {number: 0 for number in categories}, "category")
    corners = coco.read_numbers(annotations, "bbox", "annotation", (4,))
    corners[:, 2:] += corners[:, :2]  # from x, y, width, height
    scores = coco.read_numbers(annotations, "score", "annotation")  # nan where there is none
    boxes: list[list[ReviewBox]] = [[] for _ in images]
    for row, owner, (x1, y1, x2, y2), score in zip(
        annotations, owners.tolist(), corners.tolist(), scores.tolist(), strict=True
    ):
        label, known = categories[row["category_id"]], score if row.get("score") is not None else None
        flags = row.get("reviewed") is True, row.get("doubtful") is True, row.get("iscrowd") == 1
        boxes[owner].append(ReviewBox(label, (x1, y1, x2, y2), known, *flags))
    sizes = coco.read_sizes(images).tolist() if images else []
    names = coco.read_file_names(images)
    for image, name, (height, width), found in zip(images, names, sizes, boxes, strict=True):
        yield ReviewImage(name, (height, width), tuple(found), image.get("reviewed") is True)
