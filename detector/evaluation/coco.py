"""COCO average precision, computed by pycocotools."""

import contextlib
import io
from collections.abc import Sequence

import numpy as np

from detector.evaluation.voc import in_order_of
from detector.structures import Annotation, Detections
from detector.utils.errors import MissingPackage

# For each metric: a slice of the IoU thresholds 0.5, 0.55, ..., 0.95, and the index of the area range (all,
# small, medium, large).
_METRICS = {
    "AP": (slice(None), 0),
    "AP50": (slice(0, 1), 0),
    "AP75": (slice(5, 6), 0),
    "AP_small": (slice(None), 1),  # areas up to 32 x 32
    "AP_medium": (slice(None), 2),
    "AP_large": (slice(None), 3),  # areas from 96 x 96
}

_MAX_DETECTIONS = 100  # per image and class, as in COCO


def require_pycocotools() -> None:
    """Raise a MissingPackage error unless pycocotools is installed."""
    try:
        import pycocotools.cocoeval  # noqa: F401
    except ImportError as error:
        raise MissingPackage(
            "COCO metrics need a package that is not installed: pip install pycocotools"
        ) from error


def coco_ap(
    detections: Sequence[Detections],
    annotations: Sequence[Annotation],
    num_classes: int,
) -> dict[str, np.ndarray]:
    """COCO's AP, AP50, AP75, AP_small, AP_medium and AP_large of each class, (C,) float64 in [0, 1] each.

    The value is nan for a class without objects; COCO reports the mean over the other classes. Detections
    with equal scores rank in the order of `annotations`, where COCO sorts by image id. A difficult object and
    one detection of it are ignored.

    Args:
        detections, annotations: one for each image, in any order.

    Raises:
        ValueError: the image ids differ.
        MissingPackage: pycocotools is not installed.
    """
    require_pycocotools()
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth = COCO()
        truth.dataset = _as_dataset(annotations, num_classes)
        truth.createIndex()
        ordered = in_order_of(annotations, detections)
        rows = [row for index, image in enumerate(ordered) for row in image.to_coco(index)]
        if rows:
            found = truth.loadRes(rows)
        else:  # pycocotools cannot load an empty list
            found = COCO()
            found.dataset = truth.dataset | {"annotations": []}
            found.createIndex()
        run = COCOeval(truth, found, "bbox")
        run.params.maxDets = [_MAX_DETECTIONS]
        run.evaluate()
        run.accumulate()
    # (IoU thresholds, recalls, C, ranges of areas, 1); -1 without objects
    precision = np.where(run.eval["precision"] < 0, np.nan, run.eval["precision"])
    return {name: precision[ious, :, :, area, 0].mean(axis=(0, 1)) for name, (ious, area) in _METRICS.items()}


def _as_dataset(annotations: Sequence[Annotation], num_classes: int) -> dict:
    """The ground-truth boxes in COCO format; ids of images are their indices, ids of classes one more."""
    rows = [
        {
            "image_id": index,
            "category_id": label + 1,
            "bbox": [x1, y1, x2 - x1, y2 - y1],
            # An area outside all ranges is ignored; unlike a crowd it absorbs only one detection.
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
        "categories": [{"id": label + 1, "name": str(label)} for label in range(num_classes)],
        "annotations": [
            row | {"id": number} for number, row in enumerate(rows, start=1)
        ],  # from 1: pycocotools reads 0 as no match
    }
