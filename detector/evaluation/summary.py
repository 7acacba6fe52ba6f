"""What a test finds: its metrics as a dict, a text table and a JSON file, its detections as an .npz file.

The arrays of the file of detections, which holds no pickles:
    image_ids (N,) unicode
    counts (N,) int64, number of detections in each image
    boxes (sum counts, 4) float32 xyxy in pixels, scores (sum counts,) float32, labels (sum counts,) int64
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch

from detector.structures import Detections
from detector.utils.errors import DataError
from detector.utils.files import atomic_write
from detector.utils.npz import Pieces, open_npz, pick, write_npz

_COLUMNS = {
    "AP50": "mAP50",
    "AP50_11point": "mAP50_11point",
    "CorLoc": "CorLoc",
}  # per class: name of the mean
MEANS = _COLUMNS | {"AP": "AP", "image_AP": "image_mAP"}  # all possible columns
HEADS = {"AP50_11point": "AP50 11-point", "image_AP": "image AP"}
_ARRAYS = ("boxes", "scores", "labels")
_FIELDS = {  # kind of dtype, dimensions
    "image_ids": ("U", 1),
    "counts": ("i", 1),
    "boxes": ("f", 2),
    "scores": ("f", 1),
    "labels": ("i", 1),
}
_COCO = ("AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large")


def summarize(
    class_names: Sequence[str],
    ap: np.ndarray,
    ap_11point: np.ndarray,
    corloc: np.ndarray,
    coco: Mapping[str, np.ndarray] = MappingProxyType({}),
    image_ap: np.ndarray | None = None,
) -> dict:
    """Metrics in percent: mAP50, mAP50_11point, CorLoc, and per_class {name: {AP50, AP50_11point, CorLoc}}.

    COCO metrics add AP, AP50, AP75, AP_small, AP_medium and AP_large, averaged over the classes, and the AP
    of each class; `image_ap` adds image_mAP, and the image_AP of each class.

    Args:
        ap, ap_11point, corloc, image_ap: (C,) in [0, 1]; nan, for classes without objects, becomes None and
            is excluded from the mean.
        coco: the result of `coco_ap`, or empty.
    """
    columns = {
        name: [_percent(value) for value in values]
        for name, values in zip(_COLUMNS, (ap, ap_11point, corloc), strict=True)
    }
    means: dict = {_COLUMNS[name]: _mean(values) for name, values in columns.items()}
    means |= {name: _mean(map(_percent, values)) for name, values in coco.items()}
    if coco:
        columns["AP"] = [_percent(value) for value in coco["AP"]]
    if image_ap is not None:
        columns["image_AP"] = [_percent(value) for value in image_ap]
        means["image_mAP"] = _mean(columns["image_AP"])
    rows = zip(class_names, *columns.values(), strict=True)
    return means | {"per_class": {name: dict(zip(columns, values, strict=True)) for name, *values in rows}}


def metrics_table(metrics: dict) -> str:
    """The dict of :func:`summarize` as text: one line for each class, then the means; None is shown as "-".

    COCO metrics add the column AP and a line below the table. Columns without values are omitted.
    """
    coco = [name for name in _COCO if name in metrics]
    shown = {name: mean for name, mean in MEANS.items() if metrics.get(mean) is not None}
    rows = [["class", *(HEADS.get(name, name) for name in shown)]]
    for name, values in metrics["per_class"].items():
        rows += [[name, *(_cell(values[column]) for column in shown)]]
    rows += [["mean", *(_cell(metrics[mean]) for mean in shown.values())]]
    lines = align(rows)
    rule = "-" * max(map(len, lines))
    below = ["", "COCO: " + "  ".join(f"{name} {_cell(metrics[name])}" for name in coco)] if coco else []
    return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], *below])


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines of text with aligned columns, the first at the left, the others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])]).rstrip()
        for name, *cells in rows
    ]


def write_json(path: str | Path, content: dict) -> None:
    """Write a dict without NaN to a file, atomically."""
    with atomic_write(path) as file:
        file.write(encode_json(content))


def encode_json(content: dict) -> bytes:
    """A dict without NaN as the content of a JSON file."""
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def encode_detections(detections: Sequence[Detections]) -> bytes:
    """The content of a file with the detections of all images, in their order; reads them several times."""
    ids, counts = [], []
    for image in detections:
        ids.append(image.image_id)
        counts.append(len(image))
    total, buffer = sum(counts), BytesIO()
    write_npz(
        buffer,
        {
            "image_ids": np.array(ids, dtype=np.str_),
            "counts": np.array(counts, dtype=np.int64),
            "boxes": Pieces((total, 4), np.dtype(np.float32), (image.boxes.numpy() for image in detections)),
            "scores": Pieces((total,), np.dtype(np.float32), (image.scores.numpy() for image in detections)),
            "labels": Pieces((total,), np.dtype(np.int64), (image.labels.numpy() for image in detections)),
        },
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
    if not fits or any(len(arrays[name]) != rows for name in _ARRAYS) or arrays["boxes"].shape[1:] != (4,):
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise DataError(f"{path} does not hold detections that `detector test` wrote: found {shapes}")
    columns = [torch.from_numpy(arrays[name]).split(counts.tolist()) for name in _ARRAYS]
    return [Detections(*row) for row in zip(ids, *columns, strict=True)]


def _percent(fraction: float) -> float | None:
    return None if math.isnan(fraction) else 100 * float(fraction)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
