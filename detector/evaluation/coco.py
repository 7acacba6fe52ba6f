"""Average precision as COCO defines it, computed by pycocotools or by hotcoco."""

import contextlib
import io
from collections.abc import Sequence
from importlib import import_module

import numpy as np

from detector.evaluation.voc import in_order_of
from detector.structures import Annotation, Detections
from detector.utils.errors import UserError

# Each figure's IoU thresholds, of 0.5, 0.55, ..., 0.95, and its range of areas, of all, small, medium, large.
_FIGURES = {
    "AP": (slice(None), 0),
    "AP50": (slice(0, 1), 0),
    "AP75": (slice(5, 6), 0),
    "AP_small": (slice(None), 1),  # areas up to 32 x 32
    "AP_medium": (slice(None), 2),
    "AP_large": (slice(None), 3),  # areas from 96 x 96
}

_MAX_DETECTIONS = 100  # the best of a class and image that count


def find_engine() -> str:
    """The name of the package that computes: "hotcoco", which is faster, where it is there, or "pycocotools".

    Raises:
        ValueError: neither is installed.
    """
    for name in ("hotcoco", "pycocotools"):
        with contextlib.suppress(ImportError):
            import_module(name)
            return name
    raise UserError("COCO metrics need a package that is not installed: pip install pycocotools")


def coco_ap(
    detections: Sequence[Detections],
    annotations: Sequence[Annotation],
    num_classes: int,
    *,
    engine: str | None = None,
) -> dict[str, np.ndarray]:
    """COCO's AP, AP50, AP75, AP_small, AP_medium and AP_large of each class, (C,) float64 in [0, 1] each.

    nan stands for a class without an object that counts; the mean over the others is COCO's figure. Of equal
    scores the image that comes first in `annotations` comes first: COCO's order is by image id. A difficult
    object is neither to be found nor wrong to find once.

    Args:
        detections, annotations: one of each for every image, in any order.
        engine: "hotcoco" or "pycocotools"; None: see :func:`find_engine`.

    Raises:
        ValueError: the two do not speak of the same images; see also :func:`find_engine`.
    """
    coco, evaluation = _load(engine or find_engine())
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools tells of its progress
        truth = coco()
        truth.dataset = _as_dataset(annotations, num_classes)
        truth.createIndex()
        rows = _as_rows(in_order_of(annotations, detections))  # (D, 7)
        if len(rows):
            found = truth.loadRes(rows)
        else:  # which pycocotools cannot load
            found = coco()
            found.dataset = truth.dataset | {"annotations": []}
            found.createIndex()
        run = evaluation(truth, found, "bbox")
        run.params.maxDets = [_MAX_DETECTIONS]
        run.evaluate()
        run.accumulate()
    # (IoU thresholds, recalls, C, ranges of areas, 1); -1 where there is nothing to find
    precision = np.where(run.eval["precision"] < 0, np.nan, run.eval["precision"])
    return {name: precision[ious, :, :, area, 0].mean(axis=(0, 1)) for name, (ious, area) in _FIGURES.items()}


def _load(engine: str) -> tuple[type, type]:
    """The classes COCO and COCOeval of a package."""
    if engine == "hotcoco":
        package = import_module("hotcoco")
        return package.COCO, package.COCOeval
    return import_module("pycocotools.coco").COCO, import_module("pycocotools.cocoeval").COCOeval


def _as_dataset(annotations: Sequence[Annotation], num_classes: int) -> dict:
    """The true boxes in COCO's form, image i of the id i, class c of the id c."""
    rows = [
        {
            "image_id": index,
            "category_id": label,
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            # An area out of every range: ignored, and unlike a crowd by one detection only.
            "area": -1.0 if difficult else area,
            "iscrowd": int(crowd),
        }
        for index, image in enumerate(annotations)
        for (x1, y1, x2, y2), label, difficult, crowd, area in zip(
            image.boxes.tolist(),
            image.labels.tolist(),
            image.difficult.tolist(),
            image.crowd.tolist(),
            image.areas.tolist(),
            strict=True,
        )
    ]
    return {
        "images": [{"id": index} for index in range(len(annotations))],
        "categories": [{"id": label, "name": str(label)} for label in range(num_classes)],
        "annotations": [row | {"id": number} for number, row in enumerate(rows, start=1)],  # 0 is no match
    }


def _as_rows(detections: Sequence[Detections]) -> np.ndarray:
    """(D, 7) float64: image id, x, y, width, height, score, category id."""
    rows = [np.empty((0, 7))]
    for index, image in enumerate(detections):
        boxes = image.boxes.double().numpy()
        sides = boxes[:, 2:] - boxes[:, :2]
        columns = [
            np.full(len(boxes), index),
            boxes[:, :2],
            sides,
            image.scores.numpy(),
            image.labels.numpy(),
        ]
        rows.append(np.column_stack(columns))
    return np.concatenate(rows)
