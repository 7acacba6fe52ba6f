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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from textwrap import shorten

import numpy as np

from detector.data.annotated import AnnotatedImages, Objects, hint_nearest
from detector.utils.errors import DataError
from detector.utils.files import check_printable, reading, relative_name

# Polygons are most of a COCO file, and nobody here reads them. Emptied before the JSON is decoded, a file of
# 737 MB took 6.9 s and 1.2 GB, not 13.2 s and 5.2 GB. Strings are safe: quotes in them have a backslash.
_POLYGONS = re.compile(rb'"segmentation"\s*:\s*\[[^"{}]*\]')


_LONGEST_SIDE = 1_000_000  # pixels of an image: more is a mistake
_LARGEST_ID = 2**63 - 1  # of int64


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for cycles meanwhile: among the millions of parts of a large JSON file it takes seconds."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class COCODataset(AnnotatedImages):
    """The images of one split, their image-level labels and, for evaluation, their true boxes.

    An image's id here is its file name without suffix, as proposals name it; `coco_ids` has the file's own.
    Images are in the order of those. Boxes leave as xyxy; what becomes of odd ones, :class:`AnnotatedImages`
    says. A crowd is kept for evaluation, where it is neither to be found nor wrong to find.

    Args:
        root: folder of the data set.
        split: what stands for "{split}" in the two paths.
        class_names: the C foreground classes, by the names of the file's categories; their order is the order
            of the labels. Objects of the file's other categories are left out, which a warning says. None
            given: all categories, in the order of their ids, which may have holes.
        annotations: path of the JSON file below `root`.
        images: path of the folder of images below `root`.
        crowd_labels: whether a crowd gives its image the label of its class.

    Raises:
        FileNotFoundError: the JSON file or an image is missing.
        DataError: what the file says is not COCO's format, contradicts itself or names an image outside of
            its folder. Each error names the file and the id.
    """

    @_no_collection()
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
        content = _read_json(path)
        categories = _read_categories(content["categories"], path)
        class_names = tuple(class_names) or tuple(categories.values())
        columns = _match_classes(categories, class_names, path)
        entries = _read_images(content["images"], path)
        file_names = _read_file_names(entries, path)
        image_ids = [os.path.splitext(file_name)[0] for file_name in file_names]
        _require_unique(image_ids, f"{path}: the file_name (without suffix)", "images")
        paths = _find_images(root / images.replace("{split}", split), file_names, path)
        sizes = _read_sizes(entries, path)
        self.coco_ids = tuple(entry["id"] for entry in entries)
        rows = {coco_id: index for index, coco_id in enumerate(self.coco_ids)}
        objects, ids = _read_objects(content["annotations"], rows, columns, path)
        super().__init__(
            f"{root.name}_{split}",
            class_names,
            image_ids,
            paths,
            sizes,
            objects,
            labeling=~objects.crowd | crowd_labels,
            describe=partial(_describe, objects, ids, file_names, path),
        )


def _describe(objects: Objects, ids: np.ndarray, file_names: Sequence[str], path: Path, index: int) -> str:
    x1, y1, x2, y2 = objects.boxes[index].tolist()
    bbox = f"[{x1:g}, {y1:g}, {x2 - x1:g}, {y2 - y1:g}]"
    return f"{path}: annotation {ids[index]} of {file_names[objects.images[index]]} has the bbox {bbox}"


def _read_json(path: Path) -> dict[str, list[dict]]:
    """The lists "images", "annotations" and "categories" of the file, whose entries have unique ids."""
    if not path.exists():
        known = ", ".join(sorted(file.name for file in path.parent.glob("*.json"))) or "none"
        raise FileNotFoundError(f"{path} does not exist; the JSON files there are: {known}")
    with reading(path, "annotation file"):
        content = json.loads(_POLYGONS.sub(b'"segmentation":[]', path.read_bytes()))
    for key in ("images", "annotations", "categories"):
        rows = content.get(key) if isinstance(content, dict) else None
        if not isinstance(rows, list) or not set(map(type, rows)) <= {dict}:
            raise DataError(f"{path} has no list of {key}, expected an instances file in COCO's format")
        ids = [row.get("id") for row in rows]
        if not set(map(type, ids)) <= {int} or max(map(abs, ids), default=0) > _LARGEST_ID:
            wrong = next(
                row for row in rows if type(row.get("id")) is not int or abs(row["id"]) > _LARGEST_ID
            )
            raise DataError(f"{path} has among its {key} one without a whole id: {shorten(str(wrong), 200)}")
        _require_unique(ids, f"{path}: the id", key)
    return content


def _read_categories(categories: Sequence[dict], path: Path) -> dict[int, str]:
    """Name of each category id, in the order of the ids."""
    for category in categories:
        if not isinstance(category.get("name"), str) or not category["name"].strip():
            raise DataError(
                f"{path}: category {category['id']} has the name {category.get('name')!r}, expected a string"
            )
        with reading(path, "annotation file"):
            check_printable(category["name"])
    names = {category["id"]: category["name"] for category in sorted(categories, key=itemgetter("id"))}
    _require_unique(list(names.values()), f"{path}: the name", "categories")
    return names


def _match_classes(categories: dict[int, str], class_names: Sequence[str], path: Path) -> dict[int, int]:
    """Label of each category id; -1 of those that are no class."""
    for name in class_names:
        if name not in categories.values():
            known = ", ".join(categories.values())
            hint = hint_nearest(name, categories.values())
            raise DataError(f"{path} has no category of the name {name!r}{hint}; it has {known}")
    columns = {name: column for column, name in enumerate(class_names)}
    return {category_id: columns.get(name, -1) for category_id, name in categories.items()}


def _read_images(images: Sequence[dict], path: Path) -> list[dict]:
    """The entries of images, in the order of their ids."""
    if not images:
        raise DataError(f"{path} has no images")
    return sorted(images, key=itemgetter("id"))


def _read_file_names(images: Sequence[dict], path: Path) -> list[str]:
    """The names of the images, each a path inside the folder of images."""
    names = []
    for image in images:
        name = image.get("file_name")
        if not isinstance(name, str):
            raise DataError(f"{path}: image {image['id']} has the file_name {name!r}, expected a string")
        try:
            names.append(relative_name(name))
        except DataError as error:
            raise DataError(
                f"{path}: image {image['id']} has a file_name that cannot be used: {error}; "
                "DATASETS.COCO_IMAGES names the folder that holds all images"
            ) from None
    return names


def _read_sizes(images: Sequence[dict], path: Path) -> np.ndarray:
    """(N, 2) int64, (height, width)."""
    sizes = np.stack([_numbers(images, key, path, "image") for key in ("height", "width")], axis=1)
    good = (
        (sizes >= 1) & (sizes <= _LONGEST_SIDE) & (sizes == np.floor(sizes))
    )  # false of nan: one is missing
    if not good.all():
        wrong = int(np.argmin(good.all(axis=1)))
        height, width = images[wrong].get("height"), images[wrong].get("width")
        raise DataError(
            f"{path}: image {images[wrong]['id']} has the height {height!r} and the width {width!r}, "
            f"expected whole numbers of pixels from 1 to {_LONGEST_SIDE}"
        )
    return sizes.astype(np.int64)


def _find_images(folder: Path, file_names: Sequence[str], path: Path) -> list[str]:
    """Paths of all files, which must be there: folder by folder, as asking for each would take long."""
    listed = {}
    for file_name in file_names:
        parent, _, name = file_name.rpartition("/")
        if parent not in listed:
            below = folder / parent
            listed[parent] = set(os.listdir(below)) if below.is_dir() else set()
        if name not in listed[parent]:
            missing = sum(not (folder / each).is_file() for each in file_names)
            raise FileNotFoundError(
                f"{missing} of the {len(file_names)} images of {path} do not exist, "
                f"the first is {folder / file_name}"
            )
    return [os.path.join(folder, file_name) for file_name in file_names]


def _read_objects(
    annotations: Sequence[dict], rows: dict[int, int], columns: dict[int, int], path: Path
) -> tuple[Objects, np.ndarray]:
    """The objects of all classes and their ids (M,); `rows` and `columns` say what other ids stand for."""
    images = _look_up(annotations, "image_id", rows, "image", path)  # (M,)
    labels = _look_up(annotations, "category_id", columns, "category", path)  # (M,)
    boxes = _numbers(annotations, "bbox", path, "annotation", (4,))  # (M, 4)
    boxes[:, 2:] += boxes[:, :2]  # from x, y, width, height
    order = np.argsort(images, kind="stable")
    order = order[labels[order] >= 0]
    if len(order) < len(labels):
        warnings.warn(
            f"{path}: {len(labels) - len(order)} of {len(labels)} objects were left out, "
            "as their categories are no classes here",
            stacklevel=3,
        )
    crowd = _numbers(annotations, "iscrowd", path, "annotation") == 1  # false of nan, so where it is missing
    areas = _numbers(annotations, "area", path, "annotation")
    if np.isinf(areas).any():
        wrong = annotations[int(np.argmax(np.isinf(areas)))]
        raise DataError(
            f"{path}: annotation {wrong['id']} has the area {wrong['area']!r}, expected a finite one"
        )
    ids = np.array([row["id"] for row in annotations], dtype=np.int64)
    objects = Objects(images, boxes, labels, np.zeros(len(labels), dtype=bool), crowd, areas)
    return objects[order], ids[order]


def _look_up(
    annotations: Sequence[dict], key: str, index: dict[int, int], kind: str, path: Path
) -> np.ndarray:
    """What `index` (M,) has for the ids under `key`."""
    try:
        found = [index[row[key]] for row in annotations]
    except (KeyError, TypeError):
        for row in annotations:
            if not isinstance(row.get(key), int) or row[key] not in index:
                wrong = f"annotation {row['id']} has the {key} {row.get(key)!r}"
                raise DataError(f"{path}: {wrong}, which is the id of no {kind}") from None
        raise
    return np.array(found, dtype=np.int64)


def _numbers(
    rows: Sequence[dict], key: str, path: Path, kind: str, shape: tuple[int, ...] = ()
) -> np.ndarray:
    """What stands under `key`, float64 (M, *shape); nan where nothing does."""
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
        raise DataError(f"{path}: {kind} {row['id']} has the {key} {value!r}, expected {expected}")
    return np.zeros((0, *shape))


def _require_unique(values: list, what: str, kind: str) -> None:
    if len(set(values)) < len(values):
        value, count = Counter(values).most_common(1)[0]
        raise DataError(f"{what} {value!r} stands {count} times among the {kind}, expected each once")
