"""Reader of object annotations in the COCO format: one "instances" JSON file and a folder of images a split.

    ROOT/annotations/instances_SPLIT.json
    ROOT/SPLIT/FILE_NAME                     as the JSON's images name them

The whole file is read and checked when the data set is made. Pixels are read on demand.
"""

import gc
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages, Objects, hint_nearest
from detector.data.datasets.coco_tools import (
    correct_label_studio,
    drawn_upright,
    name_images_of_label_studio,
    says_stored,
)
from detector.data.images import LONGEST_SIDE, in_any_form, read_image_size
from detector.data.orientation import Boxed, find_turns, turn_objects
from detector.utils.errors import DataError
from detector.utils.files import check_printable, reading, relative_name

# Most of a COCO file is polygons, of which only that there are some is used. Without them, decoding a file of
# 737 MB took 6.9 s and 1.2 GB instead of 13.2 s and 5.2 GB. The pattern cannot match within a string, whose
# quotes are escaped.
_POLYGONS = re.compile(rb'"segmentation"\s*:\s*\[\s*[^\s\]"{}][^"{}]*\]')

_LARGEST_ID = 2**63 - 1  # of int64


class COCODataset(AnnotatedImages):
    """The images of one split, their image-level labels and, for evaluation, their ground-truth boxes.

    The id of an image is its file name without suffix, under which its proposals are stored; `coco_ids` has
    the ids of the file, by which images are sorted. Boxes are xyxy; see :class:`AnnotatedImages` for invalid
    ones. Evaluation ignores iscrowd regions and the detections in them.

    Args:
        root: folder of the data set.
        split: replaces "{split}" in the two paths.
        class_names: names of C categories, the foreground classes in the order of the labels. Objects of
            other categories are ignored with a warning. Default: all categories, in the order of their ids.
        annotations: path of the JSON file below `root`.
        images: path of the folder of images below `root`.
        crowd_labels: whether an iscrowd region gives its image the label of its class.

    Raises:
        FileNotFoundError: the JSON file or an image is missing.
        DataError: the file is not in COCO's format, is inconsistent or names an image outside of the folder.
            Names the file and the id.
    """

    def __init__(
        self,
        root: str | Path,
        split: str,
        class_names: Sequence[str] = (),
        *,
        annotations: str = "annotations/instances_{split}.json",
        images: str = "{split}",
        crowd_labels: bool = True,
    ):
        root = Path(root)
        path = root / annotations.replace("{split}", split)
        content = read_instances(path)
        entries = sorted(content["images"], key=by_id)
        self.coco_ids = tuple(entry["id"] for entry in entries)
        rows = {coco_id: index for index, coco_id in enumerate(self.coco_ids)}
        try:
            if not entries:
                raise DataError("there are no images")
            categories = read_categories(content["categories"], content["annotations"])
            class_names = tuple(class_names) or tuple(categories.values())
            columns = _match_classes(categories, class_names)
            file_names = read_file_names(entries, root / images.replace("{split}", split))
            image_ids = [os.path.splitext(file_name)[0] for file_name in file_names]
            _require_unique(image_ids, "the file_name (without suffix)", "images")
            paths = _find_images(root / images.replace("{split}", split), file_names, path)
            correct_label_studio(content, dict(zip(self.coco_ids, paths, strict=True)))
            sizes = read_sizes(entries, paths)
            objects = _read_objects(content["annotations"], rows, columns, sizes)
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        total = len(content["annotations"])
        if ignored := total - len(objects.labels):
            warnings.warn(f"{path}: {ignored} of {total} objects are of none of the classes", stacklevel=2)
        self.orientation_known = drawn_upright(content) or says_stored(content)
        if drawn_upright(content):
            pictures = [
                Boxed(Path(file), tuple(size), True) for file, size in zip(paths, sizes.tolist(), strict=True)
            ]
            turns = find_turns(path, pictures, upright=False)
            boxes, sizes = turn_objects(objects.boxes, objects.images, sizes, turns)
            objects = replace(objects, boxes=boxes)
        super().__init__(
            f"{root.name}_{split}",
            path,
            class_names,
            image_ids,
            paths,
            sizes,
            objects,
            labeling=~objects.crowd | crowd_labels,
        )


def read_instances(path: Path) -> dict[str, Any]:
    """The file, whose lists "images" and "categories" have entries with unique ids.

    Ids that some programs write as text or as fractions, "7" or 7.0, become integers. An annotation without
    a bbox gets that of its polygons; annotations without ids are numbered.
    """
    if not path.exists():
        known = ", ".join(sorted(file.name for file in path.parent.glob("[!.]*.json"))) or "none"
        raise FileNotFoundError(f"{path} does not exist; the JSON files there are: {known}")
    collects = gc.isenabled()
    gc.disable()  # garbage collection takes seconds on the millions of objects of a large file
    try:
        with reading(path, "annotation file"):
            text = path.read_bytes()
            content = json.loads(_POLYGONS.sub(b'"segmentation":[1]', text))
            if isinstance(content, dict) and any(_lacks_box(row) for row in _rows(content, "annotations")):
                content = json.loads(text)
            del text
    finally:
        if collects:
            gc.enable()
    for key in ("images", "annotations", "categories"):
        rows = content.get(key) if isinstance(content, dict) else None
        if not isinstance(rows, list) or not set(map(type, rows)) <= {dict}:
            raise DataError(
                f"{path} has no list of {key}, expected an instances file in COCO's format, or for tags "
                'a list such as [{"file": "a.jpg", "labels": ["cat", "dog"]}]'
            )
        if key == "annotations" and not any("id" in row for row in rows):  # only messages need these
            rows = content[key] = [{"id": number} | row for number, row in enumerate(rows, start=1)]
        for row in rows:
            number = _as_id(row.get("id"))
            if number is None:
                raise DataError(
                    f"{path}: one of the {key} has no integer id, nor one that is text: "
                    f"{shorten(str(row), 200)}"
                )
            row["id"] = number
        if key == "annotations":
            _warn_of_repeated(rows, path)
        else:
            _require_unique([row["id"] for row in rows], f"{path}: the id", key)
    for row in content["annotations"]:
        for key in ("image_id", "category_id"):
            if type(row.get(key)) in (str, float):
                row[key] = _as_id(row[key])
        if _lacks_box(row):
            row["bbox"] = _box_of_polygons(row.get("segmentation"))
    name_images_of_label_studio(content)
    if any("neg_category_ids" in image for image in content["images"]):
        warnings.warn(
            f"{path}: as in LVIS, each image was searched for some of the classes only (neg_category_ids); "
            "the others count as absent, though the image may show them",
            stacklevel=2,
        )
    return content


def _rows(content: dict[str, Any], key: str) -> list[dict]:
    rows = content.get(key)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _as_id(value: object) -> int | str | None:
    """The id as an integer if it is a whole number, else as text; None: it is not an id."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        # "007" stays a text: it may be another id than "7".
        value = int(value) if str(int(value)) == value else value
    if isinstance(value, str):
        return value or None
    return value if type(value) is int and abs(value) <= _LARGEST_ID else None


def by_id(row: dict) -> tuple[bool, Any]:
    """The key to sort entries by their ids, of which some may be text."""
    return isinstance(row["id"], str), row["id"]


def _lacks_box(annotation: dict) -> bool:
    return annotation.get("bbox") in (None, [], "")


def _box_of_polygons(polygons: object) -> list[float] | None:
    """x, y, width and height around polygons, lists of x, y, x, y, ...; None: these are not polygons."""
    try:
        points = np.concatenate([np.array(polygon, dtype=float).reshape(-1, 2) for polygon in polygons])  # type: ignore[attr-defined]
        (x, y), (right, bottom) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    except (TypeError, ValueError):
        return None
    return [x, y, right - x, bottom - y]


def read_categories(categories: Sequence[dict], annotations: Sequence[dict]) -> dict[int | str, str]:
    """The name of each category id, in the order of the ids.

    Roboflow adds a category for the project, which may have the name of a class: of two categories with one
    name, the one without objects is left out.
    """
    used = {row.get("category_id") for row in annotations if isinstance(row.get("category_id"), (int, str))}
    often = Counter(str(category.get("name")) for category in categories)
    names: dict[int | str, str] = {}
    for category in sorted(categories, key=by_id):
        name = category.get("name")
        if not isinstance(name, str) or not name.strip():
            raise DataError(f"category {category['id']} has the name {name!r}, expected a string")
        check_printable(name)
        if often[name] > 1 and category["id"] not in used:
            often[name] -= 1
        else:
            names[category["id"]] = name
    _require_unique(list(names.values()), "the name", "categories")
    return names


def _match_classes(categories: dict[int | str, str], class_names: Sequence[str]) -> dict[int | str, int]:
    """The label of each category id; -1 if the category is not one of the classes."""
    for name in class_names:
        if name not in categories.values():
            known = ", ".join(categories.values())
            hint = hint_nearest(name, categories.values())
            raise DataError(f"there is no category of the name {name!r}{hint}, only {known}")
    columns = {name: column for column, name in enumerate(class_names)}
    return {category_id: columns.get(name, -1) for category_id, name in categories.items()}


def read_file_names(images: Sequence[dict], folder: str | Path | None = None) -> list[str]:
    """The path of each image in the folder of images.

    Args:
        folder: that folder; where it has a file with a backslash in its name, this is no separator.
    """
    names = []
    for image in images:
        name = image.get("file_name")
        if not isinstance(name, str):
            raise DataError(f"image {image['id']} has the file_name {name!r}, expected a string")
        try:
            windows = folder is None or "\\" not in name or not os.path.isfile(Path(folder, name))
            names.append(relative_name(name.replace("\\", "/") if windows else name))
        except DataError as error:
            hint = "names are relative to the folder of all images (of a data set DATASETS.COCO_IMAGES)"
            raise DataError(f"image {image['id']} has an invalid file_name: {error}; {hint}") from None
    return names


def read_sizes(images: Sequence[dict], paths: Sequence[str | Path]) -> np.ndarray:
    """(N, 2) int64, (height, width); where an entry has neither, that of its file in `paths`, as stored."""
    for image, path in zip(images, paths, strict=True):
        if image.get("height") is None and image.get("width") is None:
            image["height"], image["width"] = read_image_size(path)
    sizes = np.stack([read_numbers(images, key, "image") for key in ("height", "width")], axis=1)
    good = (sizes >= 1) & (sizes <= LONGEST_SIDE) & (sizes == np.floor(sizes))  # False for nan
    if not good.all():
        wrong = images[int(np.argmin(good.all(axis=1)))]
        raise DataError(
            f"image {wrong['id']} has the height {wrong.get('height')!r} and the width "
            f"{wrong.get('width')!r}, expected whole numbers of pixels from 1 to {LONGEST_SIDE}"
        )
    return sizes.astype(np.int64)


def _find_images(folder: Path, file_names: Sequence[str], path: Path) -> list[str]:
    """The paths of all files, which must exist. Listing each folder once is faster than a check per file."""
    parents = {os.path.dirname(name) for name in file_names}
    listed = {parent: set(os.listdir(folder / parent)) for parent in parents if (folder / parent).is_dir()}
    missing = [
        name for name in file_names if os.path.basename(name) not in listed.get(os.path.dirname(name), ())
    ]
    moved = {name: str(in_any_form(folder / name)) for name in missing}
    missing = [name for name in missing if not os.path.isfile(moved[name])]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of the {len(file_names)} images of {path} do not exist, "
            f"the first is {folder / missing[0]}"
        )
    return [moved.get(name) or os.path.join(folder, name) for name in file_names]


def _read_objects(
    annotations: Sequence[dict],
    rows: Mapping[int | str, int],
    columns: Mapping[int | str, int],
    sizes: np.ndarray,
) -> Objects:
    """The objects of the classes; `rows` and `columns` map the ids of images and categories to indices."""
    images = look_up(annotations, "image_id", rows, "image")
    labels = look_up(annotations, "category_id", columns, "category")
    boxes = read_boxes(annotations)
    check_have_sizes(boxes, sizes[images])
    crowd = read_numbers(annotations, "iscrowd", "annotation") == 1  # False for nan, a missing value
    areas = read_numbers(annotations, "area", "annotation")
    if np.isinf(areas).any():
        wrong = annotations[int(np.argmax(np.isinf(areas)))]
        raise DataError(f"annotation {wrong['id']} has the area {wrong['area']!r}, expected a finite number")
    objects = Objects(images, boxes, labels, np.zeros(len(labels), dtype=bool), crowd, areas)
    order = np.argsort(images, kind="stable")
    return objects[order[labels[order] >= 0]]


def look_up(annotations: Sequence[dict], key: str, index: Mapping[int | str, int], kind: str) -> np.ndarray:
    """The values (M,) of `index` for the ids under `key`, int64."""
    try:
        return np.array([index[row[key]] for row in annotations], dtype=np.int64)
    except (KeyError, TypeError):
        wrong = next(row for row in annotations if _as_id(row.get(key)) not in index)
        found = f"annotation {wrong['id']} has the {key} {wrong.get(key)!r}"
        raise DataError(f"{found}, which is the id of no {kind}") from None


def read_boxes(annotations: Sequence[dict]) -> np.ndarray:
    """The boxes (M, 4), xyxy, float64."""
    for row in annotations:
        if isinstance(row.get("bbox"), str):  # some programs write a list as text
            with suppress(ValueError):
                row["bbox"] = json.loads(row["bbox"])
        elif row.get("bbox") is None:
            raise DataError(
                f"annotation {row['id']} has no bbox, and no polygon to take it from: add the boxes, which "
                "pycocotools.mask.toBbox makes of masks, or remove annotations that have none"
            )
    boxes = read_numbers(annotations, "bbox", "annotation", (4,))
    boxes[:, 2:] += boxes[:, :2]  # from x, y, width, height
    return boxes


def check_have_sizes(boxes: np.ndarray, sizes: np.ndarray) -> None:
    """Raise a DataError where a bbox is probably x1, y1, x2, y2 instead of x, y, width, height.

    Args:
        boxes: (M, 4) of :func:`read_boxes`.
        sizes: (M, 2), (height, width) of the image of each.
    """
    limits = sizes[:, ::-1] + 1.0
    corners = boxes[:, 2:] - boxes[:, :2]  # the third and fourth number as they are
    outside = (boxes[:, 2:] > limits).any(axis=1)
    may_be = (corners > boxes[:, :2]).all(axis=1) & (corners <= limits).all(axis=1)
    if outside.sum() > 2 and 2 * outside.sum() >= len(boxes) and may_be.all():
        first = int(np.argmax(outside))
        found = [*boxes[first, :2].tolist(), *corners[first].tolist()]
        raise DataError(
            f"{int(outside.sum())} of {len(boxes)} boxes extend outside of their images, such as the bbox "
            f"{found}; read as x1, y1, x2, y2 all are inside: write x, y, width, height"
        )


def read_numbers(rows: Sequence[dict], key: str, kind: str, shape: tuple[int, ...] = ()) -> np.ndarray:
    """The values under `key`, float64 (M, *shape); nan where there is none."""
    values = [row.get(key) for row in rows]
    with suppress(TypeError, ValueError, OverflowError):
        numbers = np.array(values, dtype=np.float64)
        if numbers.shape == (len(rows), *shape):
            return numbers
    for row, value in zip(rows, values, strict=True):
        with suppress(TypeError, ValueError, OverflowError):
            if np.array(value, dtype=np.float64).shape == shape:
                continue
        expected = f"{shape[0]} numbers" if shape else "a number"
        raise DataError(f"{kind} {row['id']} has the {key} {value!r}, expected {expected}")
    return np.zeros((0, *shape))


def _warn_of_repeated(annotations: Sequence[dict], path: Path) -> None:
    """Count annotations with the id of another, as in files that were put together from several."""
    if repeated := len(annotations) - len({row["id"] for row in annotations}):
        have = "annotation has" if repeated == 1 else "annotations have"
        warnings.warn(
            f"{path}: {repeated} {have} the id of another one; all are read, but pycocotools keeps the last "
            "of each id: number them anew for other programs",
            stacklevel=3,
        )


def _require_unique(values: list, what: str, kind: str) -> None:
    if len(set(values)) < len(values):
        value, count = Counter(values).most_common(1)[0]
        raise DataError(f"{what} {value!r} occurs {count} times among the {kind}, expected once")
