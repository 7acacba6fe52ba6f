"""Reader of a folder of pictures with a table of image labels, such as one's own.

    ROOT/SPLIT.csv or ROOT/SPLIT.jsonl    a line a picture: its file, from ROOT, and its labels
    ROOT/...                              the pictures

`image_table.py` says what a table may hold. Boxes, where JSON lines have them, are for evaluation. The id of
a picture is its file without the suffix. Pictures are turned as their EXIF orientation says, so boxes are
those that one sees in a viewer.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from detector.data.image_table import LabelledBox, Row, find_table, read_table
from detector.data.images import read_image, read_image_size
from detector.structures import Annotation

_OUTSIDE_TOLERANCE = 1.0  # pixels that a box may reach out of its picture, by rounding; it is clipped


@dataclass(frozen=True)
class _Record:
    """One picture. Arrays, as a tensor costs a file handle on its way to a worker process."""

    image_path: Path
    size: tuple[int, int]  # height, width
    labels: np.ndarray  # (L,) int64
    boxes: np.ndarray | None  # (G, 4) float32; None: nobody drew any
    box_labels: np.ndarray  # (G,) int64
    difficult: np.ndarray  # (G,) bool


class ImageLabels:
    """The pictures that a table lists, their labels and, where the table has them, their true boxes.

    A picture without labels is allowed; one warning counts such pictures. A label given twice counts once. A
    box that reaches at most one pixel outside its picture is clipped.

    Args:
        root: folder that holds the table.
        split: name of the table, without ".csv" or ".jsonl".
        class_names: the C foreground classes; their order is the order of the labels.

    Raises:
        FileNotFoundError: there is no such table.
        ValueError: a table that cannot be read; a picture that is missing, unreadable or listed twice; an
            unknown label; a bad box. Names the table and the line, of the first ten mistakes.
    """

    def __init__(self, root: str | Path, split: str, class_names: Sequence[str]):
        root = Path(root)
        self.name = f"{root.name}_{split}"
        self.class_names = tuple(class_names)
        rows, mistakes = read_table(find_table(root, split))
        first: dict[str, Row] = {}
        records = []
        for row in rows:
            image_id = PurePosixPath(row.file).with_suffix("").as_posix()
            earlier = first.setdefault(image_id, row)
            try:
                if earlier is not row:
                    raise ValueError(
                        f"picture {row.file!r} has the name of {earlier.file!r} on line {earlier.line}: "
                        "a picture is listed once, with all its labels, and suffixes do not tell two apart"
                    )
                records.append(_read_record(root, row, self.class_names))
            except (OSError, ValueError) as error:
                mistakes.add(row.line, error)
        mistakes.check()
        self.image_ids = tuple(first)
        self._records = records
        unlabelled = sum(len(record.labels) == 0 for record in records)
        if unlabelled:
            warnings.warn(
                f"{self.name}: {unlabelled} of {len(self)} pictures have no label; their labels are all 0",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self.image_ids)

    def image_path(self, index: int) -> Path:
        return self._records[index].image_path

    def image_size(self, index: int) -> tuple[int, int]:
        """(height, width) in pixels, as a viewer shows the picture."""
        return self._records[index].size

    def read_image(self, index: int) -> Tensor:
        """Image (3, H, W), uint8 RGB, turned as its EXIF orientation says."""
        return read_image(self._records[index].image_path, apply_orientation=True)

    def labels(self, index: int) -> Tensor:
        """Image-level labels (C,), float32: 1 where the picture shows the class, else 0."""
        labels = torch.zeros(len(self.class_names))
        labels[torch.from_numpy(self._records[index].labels)] = 1
        return labels

    def annotation(self, index: int) -> Annotation | None:
        """The true boxes, or None where nobody drew them."""
        record = self._records[index]
        if record.boxes is None:
            return None
        return Annotation(
            image_id=self.image_ids[index],
            boxes=torch.from_numpy(record.boxes),
            labels=torch.from_numpy(record.box_labels),
            difficult=torch.from_numpy(record.difficult),
        )


def _read_record(root: Path, row: Row, class_names: tuple[str, ...]) -> _Record:
    path = root / row.file
    size = read_image_size(path, apply_orientation=True)
    boxes = row.boxes or ()
    return _Record(
        image_path=path,
        size=size,
        labels=np.array([_class_index(label, class_names) for label in row.labels], dtype=np.int64),
        boxes=None
        if row.boxes is None
        else np.array([_clip(box, size) for box in boxes], dtype=np.float32).reshape(-1, 4),
        box_labels=np.array([_class_index(box.label, class_names) for box in boxes], dtype=np.int64),
        difficult=np.array([box.difficult for box in boxes], dtype=bool),
    )


def _class_index(label: str, class_names: tuple[str, ...]) -> int:
    if label not in class_names:
        nearest = get_close_matches(label, class_names, n=1)
        hint = f" (did you mean {nearest[0]}?)" if nearest else ""
        raise ValueError(f"unknown label {label!r}{hint}; known are {', '.join(class_names)}")
    return class_names.index(label)


def _clip(labelled: LabelledBox, size: tuple[int, int]) -> tuple[float, ...]:
    """The box inside its picture of `size` (height, width)."""
    (height, width), (x1, y1, x2, y2) = size, labelled.box
    found = f"a box ({labelled.label}) {list(labelled.box)}"
    if not (x1 < x2 and y1 < y2):  # also true of nan
        raise ValueError(f"{found}, expected x1 < x2 and y1 < y2")
    reach = max(-x1, -y1, x2 - width, y2 - height)
    box = max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))
    if reach > _OUTSIDE_TOLERANCE or box[0] >= box[2] or box[1] >= box[3]:
        raise ValueError(f"{found} outside its picture, whose width is {width} and height {height}")
    return box
