"""The base class of data sets."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from detector.data.images import read_image, read_image_size
from detector.structures import Annotation
from detector.utils.errors import DataError, describe_value, shortened

UNCLEAR_OBJECTS = "difficult objects or iscrowd regions"
DIFFICULT_HINT = "set difficult to 0 where an object is clear"
CVAT_CROWD_HINT = (
    "CVAT exports brush masks as iscrowd 1: draw rectangles or polygons instead, or set iscrowd to 0"
)
ORIENTATION_HINT = (
    "turn the pixels of such images (exiftran -ai, or jhead -autorot), or let detector init read the file, "
    "which turns the boxes"
)

# Pixels. Some published boxes of VOC and COCO extend up to one pixel outside of their image; no warning.
_OUTSIDE_TOLERANCE = 1.0
# What to do where all boxes are within the first pixel of their images.
SHARES_HINT = "they are shares of the image, expected pixels: multiply them by its width and height"
_FEW_CLASSES = 20  # which a message lists


@dataclass(frozen=True)
class Objects:
    """The M objects of all images as flat arrays, sorted by image.

    Arrays, because passing a tensor to a worker process takes a file handle; flat, because a million small
    arrays would take seconds and gigabytes.
    """

    images: np.ndarray  # (M,) int64, index of the image, ascending
    boxes: np.ndarray  # (M, 4) half-open xyxy in pixels
    labels: np.ndarray  # (M,) int64, foreground class index in [0, C)
    difficult: np.ndarray  # (M,) bool
    crowd: np.ndarray  # (M,) bool
    areas: np.ndarray  # (M,) float64, square pixels; nan: the area of the box

    def __getitem__(self, rows: slice | np.ndarray) -> "Objects":
        fields = self.images, self.boxes, self.labels, self.difficult, self.crowd, self.areas
        return Objects(*(field[rows] for field in fields))


class AnnotatedImages:
    """The images of one split, their image-level labels and, for evaluation, their ground-truth boxes.

    Boxes are clipped to their image. A box without area is dropped, but its image keeps the label. One
    warning counts such boxes, another the images without any label, which are allowed.

    Args:
        name: name of the data set in messages.
        source: file or folder of the boxes, for messages.
        class_names: the C foreground classes in the order of the labels.
        image_ids, paths: ids and files of the N images.
        sizes: (N, 2) int64, (height, width) in pixels.
        objects: the objects with boxes in float64, not clipped.
        labeling: (M,) bool, the objects that give their image the label of their class; None: all.
        labels: (N, C) bool, labels of images in addition to those of objects, which are added; None: none.
        unknown: (N, C) bool, where nobody knows whether the image shows the class; None: nowhere.
        boxed: (N,) bool, the images with ground-truth boxes; None: all.
        apply_orientation: whether `sizes` and boxes refer to the image rotated by its EXIF orientation or to
            the pixels as stored.

    Raises:
        DataError: a box is inverted or not finite.
    """

    def __init__(
        self,
        name: str,
        source: Path,
        class_names: Sequence[str],
        image_ids: Sequence[str],
        paths: Sequence[str],
        sizes: np.ndarray,
        objects: Objects,
        *,
        labeling: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        unknown: np.ndarray | None = None,
        boxed: np.ndarray | None = None,
        apply_orientation: bool = False,
    ):
        self.name, self.source = name, source
        self.class_names, self.image_ids = tuple(class_names), tuple(image_ids)
        self._paths, self._sizes = tuple(paths), sizes
        self._boxed, self.apply_orientation = boxed, apply_orientation
        self._labels = np.zeros((len(image_ids), len(class_names)), dtype=bool) if labels is None else labels
        labeled = objects if labeling is None else objects[labeling]
        self._labels[labeled.images, labeled.labels] = True
        self._unknown = unknown if unknown is not None and unknown.any() else None
        boxes = self._clip(objects)
        sides = boxes[:, 2:] - boxes[:, :2]  # (M, 2)
        areas = np.where(np.isnan(objects.areas), sides.prod(axis=1), objects.areas)
        whole = replace(objects, boxes=boxes.astype(np.float32), areas=areas)
        self._objects = whole[(sides > 0).all(axis=1)]
        self._starts = np.searchsorted(self._objects.images, np.arange(len(image_ids) + 1))
        unclear = unclear_classes(objects.labels, objects.difficult | objects.crowd, self.class_names)
        # Kept for training, which shows no other warnings about the test split.
        self.unclear = [unclear_message(name, unclear, crowd=bool(objects.crowd.any()))] if unclear else []
        for line in self.unclear:
            warnings.warn(line, stacklevel=3)
        maybe = self._labels if self._unknown is None else self._labels | self._unknown
        unlabeled = int((~maybe.any(axis=1)).sum())
        if 2 * unlabeled > len(self):  # fewer are usual, and welcome as examples of the background
            warnings.warn(
                f"{name}: {unlabeled} of {len(self)} images show no class; if they should, see whether "
                "DATASETS.CLASSES and the labels name the classes alike",
                stacklevel=3,
            )

    def _clip(self, objects: Objects) -> np.ndarray:
        """Boxes (M, 4) clipped to their images; one warning counts those that change notably."""
        boxes, sizes = objects.boxes, self._sizes[objects.images]
        forwards = np.isfinite(boxes).all(axis=1) & (boxes[:, :2] <= boxes[:, 2:]).all(axis=1)  # (M,)
        if not forwards.all():
            wrong = self._describe(objects, int(np.argmin(forwards)))
            raise DataError(f"{wrong}, which is inverted or not finite")
        if len(boxes) and boxes.max() <= 1 and (boxes % 1).any():
            raise DataError(
                f"{self._describe(objects, 0)}, and all other boxes are within one pixel, too: {SHARES_HINT}"
            )
        clipped = boxes.clip(0, np.tile(sizes[:, ::-1], 2))  # to width, height, width, height
        cut = np.abs(boxes - clipped).max(axis=1, initial=0) > _OUTSIDE_TOLERANCE
        empty = (clipped[:, :2] >= clipped[:, 2:]).any(axis=1)
        if (cut | empty).any():
            first = int(np.argmax(cut | empty))
            height, width = sizes[first]
            warnings.warn(
                f"{self.name}: of {len(boxes)} boxes {int((cut & ~empty).sum())} extend outside of their "
                f"image and were clipped, {int(empty.sum())} have no area in it and were dropped; the first: "
                f"{self._describe(objects, first)}, and is {width} wide and {height} high",
                stacklevel=4,
            )
        return clipped

    def _describe(self, objects: Objects, row: int) -> str:
        image_id, name = self.image_ids[objects.images[row]], self.class_names[objects.labels[row]]
        return f"{self.source}: image {image_id} has the box {objects.boxes[row].tolist()} ({name})"

    def __len__(self) -> int:
        return len(self.image_ids)

    def image_path(self, index: int) -> Path:
        return Path(self._paths[index])

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) in pixels."""
        height, width = self._sizes[index].tolist()
        return height, width

    def read_image(self, index: int) -> Tensor:
        """Image (3, H, W), uint8 RGB.

        Raises:
            FileNotFoundError, DataError: it cannot be read, or its size is not the expected one.
        """
        image = read_image(self._paths[index], apply_orientation=self.apply_orientation)
        found, expected = tuple(image.shape[1:]), self.image_size(index)
        if found != expected:
            state, hint = ("rotated by its EXIF orientation" if self.apply_orientation else "as stored"), ""
            if (
                not self.apply_orientation
                and read_image_size(self._paths[index], apply_orientation=True) == expected
            ):
                hint = f", as a viewer shows it: {ORIENTATION_HINT}"
            raise DataError(
                f"image {self._paths[index]} has the (height, width) {found} {state}, "
                f"but its boxes were made for {expected}{hint}"
            )
        return image

    def labels(self, index: int) -> Tensor:
        """Image-level labels (C,), float32: 1 if the image shows the class, else 0."""
        return torch.from_numpy(self._labels[index]).float()

    def unknown(self, index: int) -> Tensor | None:
        """(C,) bool, the classes that the image may show or not; None if no image has any."""
        return None if self._unknown is None else torch.from_numpy(self._unknown[index])

    def all_labels(self) -> np.ndarray:
        """(N, C) bool: whether the image shows the class."""
        return self._labels

    def annotation(self, index: int) -> Annotation | None:
        """The ground-truth boxes; None if the image has none."""
        if self._boxed is not None and not self._boxed[index]:
            return None
        rows = slice(self._starts[index], self._starts[index + 1])
        objects = self._objects[rows]
        return Annotation(
            image_id=self.image_ids[index],
            boxes=torch.from_numpy(objects.boxes),
            labels=torch.from_numpy(objects.labels),
            difficult=torch.from_numpy(objects.difficult),
            crowd=torch.from_numpy(objects.crowd),
            areas=torch.from_numpy(objects.areas),
        )


def unclear_message(source: object, unclear: Sequence[str], *, crowd: bool) -> str:
    """A warning about the classes of :func:`unclear_classes`.

    Args:
        crowd: some are iscrowd regions of COCO, not difficult objects of VOC or a table.
    """
    what, hint = (UNCLEAR_OBJECTS, CVAT_CROWD_HINT) if crowd else ("difficult", DIFFICULT_HINT)
    return (
        f"{source}: all objects of {shortened(unclear)} are {what}: nothing is measured or learned from "
        f"their boxes; {hint}"
    )


def unclear_classes(labels: np.ndarray, unclear: np.ndarray, class_names: Sequence[str]) -> list[str]:
    """The classes that have objects, all of which are unclear: difficult, or iscrowd regions.

    Args:
        labels: (M,) int64, the class of each object.
        unclear: (M,) bool.
    """
    all_objects, clear = (
        np.bincount(indices, minlength=len(class_names)) for indices in (labels, labels[~unclear])
    )
    return [class_names[i] for i in np.flatnonzero((all_objects > 0) & (clear == 0)).tolist()]


def unknown_class(name: str, class_names: Iterable[str]) -> str:
    """The error message about a class name that is not in `class_names`."""
    known = list(class_names)
    text = f"unknown class {describe_value(name)}{hint_nearest(name, known)}; known are "
    if len(known) <= _FEW_CLASSES:
        return text + ", ".join(known)
    folded = {known_name.casefold(): known_name for known_name in known}
    near = get_close_matches(name.casefold(), folded, n=3, cutoff=0) if len(name) < 200 else []
    return f"{text}{len(known)} classes, such as {', '.join([folded[key] for key in near] or known[:3])}"


def hint_nearest(name: str, known: Iterable[str]) -> str:
    """ " (did you mean ...?)" with the known name that is most similar to `name`, or ""; ignores case."""
    by_folded = {known_name.casefold(): known_name for known_name in known}
    nearest = get_close_matches(name.casefold(), by_folded, n=1)
    return f" (did you mean {by_folded[nearest[0]]}?)" if nearest else ""
