"""The detections of a whole split in one .npz file that holds no pickles.

image_ids (N,) unicode
counts (N,) int64, detections of each image
boxes (sum counts, 4) float32 xyxy in pixels, scores (sum counts,) float32, labels (sum counts,) int64
"""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from detector.structures import Detections
from detector.utils.errors import DataError
from detector.utils.files import atomic_write


def save_detections(path: Path, detections: Sequence[Detections]) -> None:
    """Write the detections of all images, in their order; whole or not at all."""
    none = Detections("", torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    images = [*detections, none]  # for the shapes and types, where there is no image
    with atomic_write(path) as file:
        np.savez(
            file,
            image_ids=np.array([image.image_id for image in detections], dtype=np.str_),
            counts=np.array([len(image.scores) for image in detections], dtype=np.int64),
            boxes=torch.cat([image.boxes for image in images]).numpy(),
            scores=torch.cat([image.scores for image in images]).numpy(),
            labels=torch.cat([image.labels for image in images]).numpy(),
        )


def load_detections(path: Path) -> list[Detections]:
    """What :func:`save_detections` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is another file, or a damaged one.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: run tools/test_net.py first")
    try:
        with np.load(path, allow_pickle=False) as file:
            ids, counts = file["image_ids"].tolist(), file["counts"].tolist()
            columns = [torch.from_numpy(file[name]).split(counts) for name in ("boxes", "scores", "labels")]
    except (EOFError, KeyError, ValueError, OSError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} does not hold detections that tools/test_net.py wrote: {error}") from None
    return [Detections(*row) for row in zip(ids, *columns, strict=True)]
