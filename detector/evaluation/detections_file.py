"""The detections of a split in one .npz file without pickles.

image_ids (N,) unicode
counts (N,) int64, number of detections in each image
boxes (sum counts, 4) float32 xyxy in pixels, scores (sum counts,) float32, labels (sum counts,) int64
"""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import torch

from detector.structures import Detections
from detector.utils.errors import DataError
from detector.utils.npz import open_npz, pick

_COLUMNS = ("boxes", "scores", "labels")
_FIELDS = {  # kind of dtype, dimensions
    "image_ids": ("U", 1),
    "counts": ("i", 1),
    "boxes": ("f", 2),
    "scores": ("f", 1),
    "labels": ("i", 1),
}


def encode_detections(detections: Sequence[Detections]) -> bytes:
    """The content of a file with the detections of all images, in their order."""
    none = Detections("", torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    images = [*detections, none]  # gives shapes and dtypes if there are no images
    buffer = BytesIO()
    np.savez(
        buffer,
        image_ids=np.array([image.image_id for image in detections], dtype=np.str_),
        counts=np.array([len(image) for image in detections], dtype=np.int64),
        boxes=torch.cat([image.boxes for image in images]).numpy(),
        scores=torch.cat([image.scores for image in images]).numpy(),
        labels=torch.cat([image.labels for image in images]).numpy(),
    )
    return buffer.getvalue()


def load_detections(path: Path) -> list[Detections]:
    """Read a file of :func:`encode_detections`.

    Raises:
        FileNotFoundError: the file does not exist.
        DataError: the file is damaged or of another kind.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: run `detector test` first")
    with open_npz(path, "file of detections") as file:
        arrays = pick(file, _FIELDS)
    ids, counts = arrays["image_ids"].tolist(), arrays["counts"]
    rows = len(arrays["boxes"])
    # Each count is compared as well as their sum, which may overflow.
    fits = ((counts >= 0) & (counts <= rows)).all() and counts.sum() == rows and len(ids) == len(counts)
    if not fits or any(len(arrays[name]) != rows for name in _COLUMNS) or arrays["boxes"].shape[1:] != (4,):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(f"{path} does not hold detections that `detector test` wrote: found {shapes}")
    columns = [torch.from_numpy(arrays[name]).split(counts.tolist()) for name in _COLUMNS]
    return [Detections(*row) for row in zip(ids, *columns, strict=True)]
