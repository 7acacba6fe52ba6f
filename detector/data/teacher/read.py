"""Matches the detections of a teacher to the images and classes of a data set."""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.coco import COCODataset
from detector.data.orientation import Boxed, find_turns, turn_box, turn_size
from detector.data.pictures import flat_name
from detector.data.reviewed import find_id
from detector.data.teacher.classes import LEFT_OUT, match_names, read_class_table
from detector.data.teacher.files import Found, FoundImage, read_found
from detector.structures import TeacherBoxes
from detector.utils.errors import DataError, counted, shortened

_TOLERANCE = 2.0  # pixels that a box may extend out of its image without a warning
_MOST_ODD = 0.2  # share of boxes outside of their image, or without area, above which all are misread


def read_teacher(path: Path, table: Path | None, dataset: AnnotatedImages) -> dict[str, TeacherBoxes]:
    """The boxes that a teacher found in the images of a split, by image id.

    Boxes are clipped to their image, and turned if EXIF turns the picture. Images that the teacher has not
    seen are not in the result; a teacher whose file has no entries for images without boxes has seen all.

    Args:
        path: as for :func:`read_found`.
        table: as for :func:`read_class_table`; None: only names of classes are matched.

    Raises:
        FileNotFoundError: there is no such path or table.
        DataError: it has another form; an image or a mask of another size; a score outside of [0, 1]; many
            boxes outside of their image; no image of the split; or no name of a class. Names file and image.
    """
    found = read_found(path)
    images = _match_images(path, found, dataset)
    columns = _match_classes(path, table, found, images.values(), dataset.class_names)
    boxes: dict[str, TeacherBoxes] = {}
    odd, turns = _Odd(path), _find_turns(path, images, dataset)
    for index, image_id in enumerate(dataset.image_ids):
        if image_id in images:
            size, turn = dataset.image_size(index), turns.get(image_id, 1)
            boxes[image_id] = _fit(path, images[image_id], size, turn, columns, odd)
        elif not found.lists_empty:
            boxes[image_id] = _tensors(np.zeros((0, 4)), [], [])
    odd.warn()
    _warn_of_missing(path, found, boxes, images, dataset)
    return boxes


def teacher_proposals(teacher: Mapping[str, TeacherBoxes]) -> dict[str, Tensor]:
    """The boxes (T, 4) of each image, best first, as additional proposals."""
    return {image_id: found.boxes for image_id, found in teacher.items()}


def _match_images(path: Path, found: Found, dataset: AnnotatedImages) -> dict[str, FoundImage]:
    """The images of the split by their ids; several entries of one image are joined."""
    ids = set(dataset.image_ids)
    short = ({image_id.rpartition("/")[2], flat_name(image_id)} for image_id in dataset.image_ids)
    by_name = _unique(
        (name, image_id) for image_id, names in zip(dataset.image_ids, short, strict=True) for name in names
    )
    if isinstance(dataset, COCODataset):
        numbers = dict(zip(map(str, dataset.coco_ids), dataset.image_ids, strict=True))
    else:  # as Ultralytics and pycocotools write "000005"
        digits = (image_id for image_id in dataset.image_ids if image_id.isascii() and image_id.isdigit())
        numbers = _unique((str(int(image_id)), image_id) for image_id in digits)
    images: dict[str, FoundImage] = {}
    others = []
    for image in found.images:
        name = image.name.replace("\\", "/")
        image_id = find_id(name, ids)
        if image_id not in ids:
            last = find_id(name.rpartition("/")[2], by_name)
            image_id = numbers.get(name) or by_name.get(last) or ""
        if not image_id:
            others.append(image.name)
        elif image_id in images:
            earlier = images[image_id]
            images[image_id] = earlier._replace(boxes=earlier.boxes + image.boxes)
        else:
            images[image_id] = image
    if not images and found.images:
        names = f"{found.images[0].name!r} there, {dataset.image_ids[0]!r} here"
        raise DataError(
            f"{path}: none of its {len(found.images)} images is in {dataset.name} (such as {names})"
        )
    if others:
        warnings.warn(
            f"{path}: {counted(len(others), 'image is', 'images are')} not in {dataset.name} and not used, "
            f"such as {shortened(others, 3)}",
            stacklevel=4,
        )
    return images


def _find_turns(path: Path, images: Mapping[str, FoundImage], dataset: AnnotatedImages) -> dict[str, int]:
    """The EXIF orientation by which to turn the boxes of each image that has any."""
    pictures = {}
    for index, image_id in enumerate(dataset.image_ids):
        image = images.get(image_id)
        if image is not None and image.boxes:
            sizes = (image.size, *(box.size for box in image.boxes))
            size = next((size for size in sizes if size is not None), (0, 0))  # (0, 0): unknown
            pictures[image_id] = Boxed(dataset.image_path(index), size, image.upright, stated=image.stated)
    turns = find_turns(path, [*pictures.values()], upright=dataset.apply_orientation)
    return dict(zip(pictures, turns, strict=True))


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The values of keys that occur once."""
    pairs = list(pairs)
    often = Counter(key for key, _ in pairs)
    return {key: value for key, value in pairs if often[key] == 1}


def _match_classes(
    path: Path, table: Path | None, found: Found, images: Iterable[FoundImage], class_names: Sequence[str]
) -> dict[str | int, int]:
    """The class index of each label; a warning counts boxes whose label has none."""
    often: Counter[str | int] = Counter()
    first: dict[str | int, str] = {}
    for image in images:
        for box in image.boxes:
            if box.label is not None:
                often[box.label] += 1
                first.setdefault(box.label, image.name)
    columns = match_names(
        often, found.names, read_class_table(table, class_names) if table else {}, class_names
    )
    unmapped = [label for label, _ in often.most_common() if label not in columns]
    if not unmapped:
        return columns
    shown = shortened([f"{found.names.get(label, label)!r} ({often[label]})" for label in unmapped])
    how = "name their classes in a table (DATASETS.TEACHER_CLASSES): a line 'name,class' for each"
    if not any(column != LEFT_OUT for column in columns.values()):
        raise DataError(
            f"{path}: none of its classes is one of {shortened(class_names)}: {shown}, the first in image "
            f"{first[unmapped[0]]!r}; {how}"
        )
    warnings.warn(
        f"{path}: {counted(sum(often[label] for label in unmapped), 'box', 'boxes')} of classes without a "
        f"mapping left out: {shown}, the first in image {first[unmapped[0]]!r}; {how}",
        stacklevel=4,
    )
    return columns


class _Odd:
    """Counts the boxes that are not as in an image: outside of it, or without area."""

    def __init__(self, path: Path):
        self.path, self.total, self.largest, self.name = path, 0, 0.0, ""
        self.count = Counter[str]()
        self.first: dict[str, str] = {}  # of each kind

    def add(self, name: str, boxes: np.ndarray, size: tuple[int, int]) -> None:
        height, width = size
        self.total += len(boxes)
        self.name = self.name or (name if len(boxes) else "")
        self.largest = max(self.largest, float(abs(boxes).max(initial=0)))
        centers = (boxes[:, :2] + boxes[:, 2:]) / 2  # (T, 2); models let boxes extend, but not lie, outside
        sides = boxes[:, 2:] - boxes[:, :2]  # (T, 2)
        found = {
            "far": ((boxes < -_TOLERANCE) | (boxes > np.array([width, height] * 2) + _TOLERANCE)).any(axis=1),
            "away": ((centers < 0) | (centers > [width, height])).any(axis=1),
            "flat": (boxes[:, 2:] <= boxes[:, :2]).any(axis=1),
            "beyond": (boxes > 1.1 * np.array([width, height] * 2)).any(axis=1),
            # x2 = x1 + width, so the width may have been another x2.
            "corners": ((sides > boxes[:, :2]) & (sides <= [width, height])).all(axis=1),
        }
        for kind, rows in found.items():
            self.count[kind] += int(rows.sum())
            if rows.any() and kind not in self.first:
                box = boxes[rows][0].round(1).tolist()
                size_of = f"{width} wide and {height} high"
                self.first[kind] = f"The first: image {name!r} has the box {box}, and is {size_of}"

    def warn(self) -> None:
        """Warn of such boxes, or raise where the file cannot be meant as it is read."""
        if self.total and self.largest <= 1:
            raise DataError(
                f"{self.path}: all {self.total} boxes are within one pixel, from image {self.name!r} on: are "
                "they in shares of the image? Multiply them by its width and height"
            )
        most = _MOST_ODD * self.total
        if self.count["beyond"] > most and self.count["corners"] == self.total:
            raise DataError(
                f"{self.path}: {self.count['beyond']} of {self.total} boxes extend far out of their image, "
                "and none would if `bbox` had x1, y1, x2, y2: then name it `box`, since `bbox` is COCO's "
                f"x, y, width, height. {self.first['beyond']}"
            )
        if self.count["flat"] > most:
            raise DataError(
                f"{self.path}: {self.count['flat']} of {self.total} boxes have no area: if they are x, y, "
                f"width, height, name them `bbox`; are their corners swapped? {self.first['flat']}"
            )
        if self.count["away"] > most:
            raise DataError(
                f"{self.path}: {self.count['away']} of {self.total} boxes lie outside of their image: were "
                f"they made for images of another size, or turned? {self.first['away']}"
            )
        if self.count["far"]:
            self._say("far", "extend out of their image and are clipped")
        if self.count["flat"]:
            self._say("flat", "have no area, or their corners are swapped, and are left out")

    def _say(self, kind: str, what: str) -> None:
        warnings.warn(
            f"{self.path}: {self.count[kind]} of {self.total} boxes {what}. {self.first[kind]}", stacklevel=5
        )


def _fit(
    path: Path,
    image: FoundImage,
    size: tuple[int, int],
    turn: int,
    columns: Mapping[str | int, int],
    odd: _Odd,
) -> TeacherBoxes:
    """The boxes of one image that have a class of the data set, or are of a teacher without classes.

    Args:
        size: of the image in the data set; the EXIF orientation `turn` turns the teacher's image to it.
    """
    size = turn_size(size, turn)
    for what, found in (("", image.size), *((" a mask of", box.size) for box in image.boxes)):
        if found is not None and found != size:
            raise DataError(
                f"{path}: image {image.name!r} has{what} the (height, width) {tuple(found)}, expected {size}"
            )
    known = [box for box in image.boxes if box.label is None or columns.get(box.label, LEFT_OUT) != LEFT_OUT]
    height, width = size
    boxes = np.array([box.box for box in known], dtype=np.float64).reshape(-1, 4)
    boxes = boxes * ([width, height] * 2 if image.relative else 1)
    odd.add(image.name, boxes, size)
    labels = [-1 if box.label is None else columns[box.label] for box in known]
    boxes = boxes.clip(0, [width, height] * 2)
    if turn != 1:
        boxes = np.array([turn_box(box, turn, size) for box in boxes.tolist()]).reshape(-1, 4)
    return _tensors(boxes, [box.score for box in known], labels)


def _tensors(boxes: np.ndarray, scores: Sequence[float], labels: Sequence[int]) -> TeacherBoxes:
    """The boxes that have an area, best first."""
    found = TeacherBoxes(
        torch.from_numpy(boxes.astype(np.float32)),
        torch.tensor(scores, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.int64),
    )
    keep = (found.boxes[:, 2:] > found.boxes[:, :2]).all(dim=1).nonzero()[:, 0]
    return found[keep[found.scores[keep].argsort(descending=True, stable=True)]]


def _warn_of_missing(
    path: Path,
    found: Found,
    boxes: Mapping[str, TeacherBoxes],
    images: Mapping[str, FoundImage],
    dataset: AnnotatedImages,
) -> None:
    if not any(len(image_boxes) for image_boxes in boxes.values()):
        warnings.warn(
            f"{path}: the teacher found nothing in the {len(dataset)} images of {dataset.name}: training "
            "uses tags alone",
            stacklevel=4,
        )
        return
    if missing := [image_id for image_id in dataset.image_ids if image_id not in images]:
        what = (
            "training uses their tags alone"
            if found.lists_empty
            else "the teacher counts as having found nothing"
        )
        warnings.warn(
            f"{path}: {counted(len(missing), 'image', 'images')} of {dataset.name} have no entry, such as "
            f"{missing[0]!r}: {what}",
            stacklevel=4,
        )
