"""The top of the page: one sentence and a few numbers that sum up the run."""

from collections.abc import Mapping
from datetime import timedelta

import numpy as np

from detector.evaluation.errors import KINDS

CARDS = {"mAP50": "mAP50", "CorLoc": "CorLoc", "AP": "COCO AP", "image_mAP": "image mAP"}  # metric: heading


def cards(metrics: Mapping) -> dict[str, str]:
    """The mean metrics that were computed, the number of steps and the training time, as text."""
    shown = {name: f"{metrics[key]:.1f}" for key, name in CARDS.items() if metrics.get(key) is not None}
    return shown | {
        "steps": f"{metrics['iteration']:,}",
        "training time": str(timedelta(seconds=round(metrics["train_seconds"]))),
    }


def summary(metrics: Mapping, test_name: str, kinds: np.ndarray | None) -> str:
    """One sentence: the method, its mAP50 and CorLoc, the best and worst class, and the most frequent error.

    Args:
        kinds: the counts (C, len(KINDS)) of `count_kinds`; None if the test set has no ground-truth boxes.
    """
    start = f"{metrics['method'].upper()}, trained for {metrics['iteration']:,} steps,"
    if metrics.get("mAP50") is None:
        return f"{start} was tested on {test_name}, which has no ground-truth boxes to measure AP with."
    sentence = f"{start} reaches {metrics['mAP50']:.1f} mAP50 on {test_name}"
    if metrics.get("CorLoc") is not None:
        sentence += f" and {metrics['CorLoc']:.1f} CorLoc on the training images"
    ap = {name: row["AP50"] for name, row in metrics["per_class"].items() if row["AP50"] is not None}
    if len(ap) > 1:
        best, worst = max(ap, key=ap.__getitem__), min(ap, key=ap.__getitem__)
        sentence += f"; its best class is {best} (AP50 {ap[best]:.1f}), its worst {worst} ({ap[worst]:.1f})"
    totals = np.zeros(len(KINDS)) if kinds is None else kinds.sum(axis=0)
    errors = {kind: int(n) for kind, n in zip(KINDS, totals, strict=True) if kind != "true positive" and n}
    if errors:
        most = max(errors, key=errors.__getitem__)
        share = 100 * errors[most] / totals.sum()
        sentence += f"; the most frequent error is {most!r} ({share:.0f} % of the counted detections)"
    return sentence + "."
