"""Reads the files and folders with the detections of a teacher.

A file .json
    COCO's instances (images, annotations, categories) or results (a list of image_id, category_id, bbox);
    {"a.jpg": boxes of one image, ...}; a list of {"image": "a.jpg", "boxes": ...}; or a list of boxes that
    each name their image, as supervision's JSONSink writes them; tasks of Label Studio with predictions.
A file .jsonl or .csv
    {"image": "a.jpg", "boxes": ...} per line, or per line a box that names its image (supervision's CSVSink).
A folder of texts
    YOLO's predictions, `class x y width height confidence` or an outline: as Ultralytics saves them
    (runs/detect/predict), or as autodistill does (data.yaml, train/labels, valid/labels).
A folder of NAME.json, NAME.xml or NAME/metadata.csv
    one for each image, as LabelMe, VOC, and the scripts of SAM and SA-1B write them.

`entries.py` says what the boxes of an image may be.
"""

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from detector.data.datasets.coco_tools import STORED, drawn_upright, says_stored
from detector.data.datasets.image_table import json_lines
from detector.data.formats import ReviewImage, label_studio, voc, yolo
from detector.data.pictures import files_below
from detector.data.teacher.entries import LISTS, FoundBox, read_content, read_entry
from detector.data.teacher.masks import Size
from detector.utils.errors import DataError, ErrorList, describe_value, shortened
from detector.utils.files import read_text, reading

_KIND = "file of a teacher"
_IMAGE_KEYS = (
    *("file", "file_name", "filename", "image", "image_path", "imagePath", "image_name", "image_id"),
    "source",
)
_LIST_OF_NAMES = ("classes.txt", "obj.names", "train.txt", "val.txt", "valid.txt", "test.txt", "readme.txt")
_FORMS = (
    "COCO's instances or results, {IMAGE: boxes, ...}, a list of images with boxes, or a list of boxes that "
    f"name their image ({', '.join(_IMAGE_KEYS[:4])})"
)


class FoundImage(NamedTuple):
    """What a teacher found in one image."""

    name: str  # or its number, as text
    boxes: list[FoundBox]
    size: Size | None = None  # (height, width) where the file tells it
    relative: bool = False  # boxes are in shares of the image, not in pixels
    # Used if the size does not tell. True: boxes refer to the picture as EXIF turns it, as the readers of
    # transformers, Ultralytics and OpenCV do; False: to the pixels as stored.
    upright: bool = True
    stated: bool = False  # the file says explicitly that they refer to the pixels as stored


class Found(NamedTuple):
    """The content of a file or folder of a teacher."""

    images: list[FoundImage]
    lists_empty: bool  # images in which nothing was found have an entry, too
    names: Mapping[str | int, str] = {}  # of the classes by their numbers, if it has them


def read_found(path: Path) -> Found:
    """The content of a file or folder of a teacher; see the top of this file.

    Raises:
        FileNotFoundError: there is no such path.
        DataError: it has another form, or a value of another kind; names the file and the image.
    """
    if path.is_dir():
        return _read_folder(path)
    with reading(path, _KIND):
        suffix = path.suffix.lower()
        if suffix not in (".json", ".jsonl", ".csv"):
            kind, hint = suffix or "without a suffix", ""
            if suffix in (".mat", ".pkl", ".npz"):
                hint = "; proposals of another project are for detector convert-proposals"
            raise DataError(f"it is of the kind {kind}, expected .json, .jsonl, .csv or a folder{hint}")
        if suffix == ".json":
            return _from_json(json.loads(read_text(path, _KIND)), path)
    mistakes, lines = ErrorList(path), read_text(path, _KIND).split("\n")
    if suffix == ".csv":
        rows: list[tuple[int, dict[str, Any]]] = [*enumerate(csv.DictReader(lines), start=2)]
    else:
        rows = [*json_lines(lines, mistakes)]
    found = _from_rows(rows, lambda line, error: mistakes.add(line, error))
    mistakes.check()
    return found


def _from_json(content: Any, path: Path) -> Found:
    if isinstance(content, dict) and {"images", "annotations", "categories"} <= content.keys():
        return _from_instances(content)
    if isinstance(content, dict) and _is_one_image(content):
        return _from_rows([(0, content)])
    if isinstance(content, dict) and {"classes", "labels"} == content.keys():
        raise DataError("it is of FiftyOne: export COCODetectionDataset with the predictions as label_field")
    if isinstance(content, dict) and not {"xyxy", "boxes"} & content.keys():
        return Found([FoundImage(name, _content(name, value)) for name, value in content.items()], True)
    if isinstance(content, list) and content and all(_is_task(row) for row in content):
        return _from_tool(label_studio.read(content, None, path))
    if isinstance(content, list) and all(isinstance(row, dict) for row in content):
        return _from_rows([(0, row) for row in content])
    raise DataError(f"it holds {describe_value(content)}, expected {_FORMS}")


def _is_one_image(content: dict[str, Any]) -> bool:
    """Whether it is SA-1B's or LabelMe's file of one image."""
    return isinstance(content.get("image"), dict) or "imagePath" in content


def _is_task(row: Any) -> bool:
    """Whether it is a task of Label Studio."""
    return isinstance(row, dict) and isinstance(row.get("data"), dict)


def _from_tool(images: Iterable[ReviewImage]) -> Found:
    """Images as a labeling tool has them; boxes without a score have 1."""
    found = []
    for image in images:
        boxes = []
        for label, (x1, y1, x2, y2), score, *_ in image.boxes:
            boxes.append(FoundBox(label, (x1, y1, x2, y2), 1.0 if score is None else score))
        found.append(FoundImage(image.name, boxes, image.size, upright=image.upright, stated=image.stated))
    return Found(found, True)


def _content(name: str, content: Any) -> list[FoundBox]:
    try:
        return read_content(content)
    except DataError as error:
        raise DataError(f"image {name!r}: {error}") from None


def _from_rows(
    rows: list[tuple[int, dict[str, Any]]], report: Callable[[int, DataError], None] | None = None
) -> Found:
    """Rows, with their lines, that are each an image with its boxes, or a box that names its image."""
    images: dict[str, FoundImage] = {}
    lists_empty = False
    for line, row in rows:
        try:
            image = _image_of(row)
            try:
                boxes, whole = _boxes_of(row)
            except DataError as error:
                raise DataError(f"image {image.name!r}: {error}") from None
        except DataError as error:
            if report is None:
                raise
            report(line, error)
            continue
        lists_empty |= whole
        earlier = images.get(image.name, image)
        size = image.size or earlier.size
        images[image.name] = image._replace(boxes=earlier.boxes + boxes, size=size)
    return Found([*images.values()], lists_empty)


def _image_of(row: dict[str, Any]) -> FoundImage:
    """The image of a row, without its boxes; with its size where the row has it."""
    key = next((key for key in _IMAGE_KEYS if row.get(key) not in (None, "")), None)
    if key is None:
        hint = ""
        if "predicted_iou" in row:
            hint = "; the masks of one image are read from a folder of files NAME.json"
        raise DataError(f"{describe_value(row)} names no image: expected {_FORMS}{hint}")
    value = row[key]
    if key == "imagePath" and isinstance(value, str):
        return FoundImage(
            value, [], _size_of({"height": row.get("imageHeight"), "width": row.get("imageWidth")})
        )
    if isinstance(value, dict):
        stored = value.get("orientation") == STORED
        return _image_of(value)._replace(size=_size_of(value), upright=not stored, stated=stored)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) not in (str, int):
        raise DataError(f"{key} is {describe_value(value)}, expected the name of an image")
    return FoundImage(str(value), [])


def _size_of(row: Mapping[str, Any]) -> Size | None:
    height, width = row.get("height"), row.get("width")
    return (height, width) if type(height) is int and type(width) is int else None


def _boxes_of(row: dict[str, Any]) -> tuple[list[FoundBox], bool]:
    """The boxes of a row, and whether it is an image with all its boxes."""
    xyxy = row.get("xyxy")
    of_image = isinstance(xyxy, list) and (not xyxy or isinstance(xyxy[0], list))
    if of_image or any(isinstance(row.get(key), list) for key in LISTS):
        return read_content(row), True
    box = read_entry(row)
    return [box] if box else [], False


def _from_instances(content: dict[str, Any]) -> Found:
    """COCO's file of images, annotations and categories."""
    for key in ("images", "annotations", "categories"):
        if not isinstance(content[key], list) or not all(isinstance(row, dict) for row in content[key]):
            raise DataError(f"it has no list of {key}, expected an instances file in COCO's format")
    images, upright = dict[Any, FoundImage](), drawn_upright(content)
    for row in content["images"]:
        name = row.get("file_name")
        if not isinstance(name, str):
            raise DataError(f"image {row.get('id')} has the file_name {describe_value(name)}, expected text")
        image = FoundImage(name.replace("\\", "/"), [], _size_of(row))
        images[row.get("id")] = image._replace(upright=upright, stated=says_stored(content))
    names = {row.get("id"): row.get("name") for row in content["categories"]}
    for row in content["annotations"]:
        image_id, category = row.get("image_id"), row.get("category_id")
        if isinstance(image_id, (list, dict)) or image_id not in images:
            raise DataError(f"annotation {row.get('id')} has the image_id {image_id!r}, which no image has")
        image = images[image_id]
        try:
            if category is not None and (isinstance(category, (list, dict)) or category not in names):
                raise DataError(f"a box has the category_id {category!r}, which no category has")
            if box := read_entry({**row, "class_name": None if category is None else names[category]}):
                image.boxes.append(box)
        except DataError as error:
            raise DataError(f"image {image.name!r}: {error}") from None
    return Found([*images.values()], True)


def _read_folder(path: Path) -> Found:
    texts = [
        file
        for file in files_below(path, (".txt",))
        if file.name.lower() not in _LIST_OF_NAMES and "images" not in file.relative_to(path).parts[:-1]
    ]
    single = files_below(path, (".json",))
    tables = [file for file in files_below(path, (".csv",)) if file.name == "metadata.csv"]
    annotations = files_below(path, (".xml",))
    if len(kinds := [kind for kind in (texts, single, tables, annotations) if kind]) != 1:
        shown = shortened([kind[0].relative_to(path).as_posix() for kind in kinds], 3) or "none of these"
        raise DataError(
            f"{path} has {shown}, expected files of one kind: texts of YOLO, NAME.json or NAME.xml of one "
            "image each, or NAME/metadata.csv"
        )
    if texts:
        names = yolo.read_names(path)[0] if yolo.find_names(path) else {}
        return Found([_read_yolo(file, path) for file in texts], False, dict(names.items()))
    if annotations:
        return _from_tool(voc.read(voc.annotations_folder(path) or path, None))
    images = [_read_table(file, path) for file in tables] or [_read_single(file, path) for file in single]
    return Found(images, True)


def _name_below(file: Path, folder: Path) -> str:
    """The name of the image of a file without its suffix, less the folder `labels`."""
    parts = file.relative_to(folder).with_suffix("").parts
    return PurePosixPath(*[part for part in parts[:-1] if part != "labels"], parts[-1]).as_posix()


def _read_single(file: Path, folder: Path) -> FoundImage:
    """NAME.json: the boxes of one image, SA-1B's {"image": ..., "annotations": ...} or LabelMe's."""
    image = FoundImage(_name_below(file, folder), [])
    with reading(file, _KIND):
        content = json.loads(read_text(file, _KIND))
        if isinstance(content, dict) and _is_one_image(content):
            image = _image_of(content)
        return image._replace(boxes=read_content(content))


def _read_table(file: Path, folder: Path) -> FoundImage:
    """NAME/metadata.csv of SAM's amg.py: a line for each mask."""
    with reading(file, _KIND):
        rows = [*csv.DictReader(read_text(file, _KIND).splitlines())]
        sides = ("bbox_x0", "bbox_y0", "bbox_w", "bbox_h")
        boxes = [
            read_entry({"bbox": [row.get(side) for side in sides], "predicted_iou": row.get("predicted_iou")})
            for row in rows
        ]
    return FoundImage(file.parent.relative_to(folder).as_posix(), [box for box in boxes if box])


def _read_yolo(file: Path, folder: Path) -> FoundImage:
    """A text of YOLO's predictions: a class, then a box or an outline in shares, then a confidence or not."""
    boxes, mistakes = [], ErrorList(file)
    for number, line in enumerate(read_text(file, _KIND).split("\n"), start=1):
        try:
            if line.strip():
                boxes.append(_yolo_box([float(word) for word in line.split()]))
        except (ValueError, OverflowError) as error:
            reason = str(error) if isinstance(error, DataError) else f"it is {describe_value(line)}"
            mistakes.add(number, f"{reason}; expected class x y width height confidence, in shares")
    mistakes.check()
    return FoundImage(_name_below(file, folder), boxes, relative=True)


def _yolo_box(values: list[float]) -> FoundBox:
    label, *shares = values
    if label != int(label) or len(shares) < 4:
        raise ValueError
    scored = len(shares) % 2 == 1
    score = {"score": shares.pop()} if scored else {}
    if len(shares) == 4:
        x, y, width, height = shares
        row: dict[str, Any] = {"box": [x - width / 2, y - height / 2, x + width / 2, y + height / 2]}
    else:
        row = {"segmentation": [shares]}
    box = read_entry({**row, **score, "class_id": int(label)})
    assert box is not None
    if max(map(abs, box.box)) > yolo.FARTHEST:
        raise DataError(f"its box is {list(box.box)}, in pixels")
    return box
