"""The top of the page, which sums up the run, and the sections with metrics, curves and counts."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from detector.evaluation.errors import KINDS, OUTCOMES
from detector.evaluation.voc import voc_ap
from detector.reporting.charts import line_chart
from detector.reporting.document import Section, render
from detector.structures import Annotation, Detections
from detector.utils.files import reading

CARDS = {
    "mAP50": "mAP50",
    "mAP75": "mAP75",
    "mAP50_95": "mAP50:95",
    "AP": "COCO AP",
    "CorLoc": "CorLoc",
    "image_mAP": "image mAP, of labels",
}  # metric: heading
_COLUMNS = {  # of a class: the mean over classes
    "AP50": "mAP50",
    "AP75": "mAP75",
    "AP50_95": "mAP50_95",
    "AP": "AP",
    "CorLoc": "CorLoc",
    "image_AP": "image_mAP",
}
_HEADS = {"AP50_95": "AP50:95", "AP": "COCO AP", "image_AP": "image AP"}
_STRICT = [0.5 + 0.05 * step for step in range(10)]  # IoU thresholds of AP50:95
_CURVES = "train/"  # how the names of training curves begin in TensorBoard's events
_RULES = {
    "true positive": "the highest-scoring detection with IoU >= 0.5 with an object of its class",
    "part": "part domination: IoU < 0.5, and 0.8 or more of the box lies in an object of its class",
    "grouped": "grouped instances: the box contains half or more of two or more objects of its class",
    "localization": "IoU from 0.1 to 0.5 with an object of its class, and neither part nor grouped",
    "wrong class": "IoU >= 0.5 with an object of another class, or >= 0.1 if no other type applies",
    "duplicate": "IoU >= 0.5 with an object that a detection with a higher score matches",
    "background": "none of the above",
    "missed": "an object that no counted detection relates to",
}


def cards(metrics: Mapping) -> dict[str, str]:
    """The mean metrics that were computed, the number of steps and the training time, as text."""
    shown = {name: f"{metrics[key]:.1f}" for key, name in CARDS.items() if metrics.get(key) is not None}
    if metrics.get("mAP50") is None:  # before a figure of the labels, which is no figure of the boxes
        shown = {"mAP50": "not measured"} | shown
    return shown | {
        "steps": f"{metrics['iteration']:,}",
        "training time": str(timedelta(seconds=round(metrics["train_seconds"]))),
    }


def describe_method(method: str) -> str:
    """The method in metrics.json for readers: "PCL", or "Faster R-CNN on the boxes of PCL"."""
    weak, student, _ = method.upper().replace("_", " ").partition(" + SELF-TRAINING")
    return f"Faster R-CNN on the boxes of {weak}" if student else weak


def with_strict_ap(
    metrics: Mapping[str, Any], detections: Sequence[Detections], annotations: Sequence[Annotation]
) -> dict[str, Any]:
    """The metrics with AP75 and AP50:95, whose rule beside the IoU is that of AP50, in percent.

    COCO's differ slightly, as they interpolate precision at 101 recalls.

    Args:
        detections, annotations: of the images with ground-truth boxes.
    """
    names = list(metrics["per_class"])
    by_iou = [voc_ap(detections, annotations, len(names), iou_threshold=iou) for iou in _STRICT]
    columns = {"AP75": by_iou[5], "AP50_95": np.mean(by_iou, axis=0)}  # (C,), nan for a class without objects
    found = dict(metrics) | {"per_class": {name: dict(row) for name, row in metrics["per_class"].items()}}
    for column, values in columns.items():
        known = values[~np.isnan(values)]
        found[_COLUMNS[column]] = 100 * float(known.mean()) if len(known) else None
        for name, value in zip(names, values, strict=True):
            found["per_class"][name][column] = None if np.isnan(value) else 100 * float(value)
    return found


def summary(metrics: Mapping, test_name: str, kinds: np.ndarray | None) -> str:
    """One sentence: the method, its mAP50 and CorLoc, the best and worst class, and the most frequent error.

    Args:
        kinds: the counts (C, len(KINDS)) of `count_kinds`; None if the test set has no ground-truth boxes.
    """
    start = f"{describe_method(metrics['method'])}, trained for {metrics['iteration']:,} steps,"
    if metrics.get("mAP50") is None:
        return f"{start} was tested on the labels of {test_name}, which has no ground-truth boxes."
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


def read_curves(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The training curves of a run, (steps, values) by name with ascending steps, from TensorBoard's events.

    If a resumed run logged a step twice, the last value counts. Of a damaged file, TensorBoard reads the
    records before the damage.
    """
    files = sorted(folder.glob("events.out.tfevents.*"))
    if not files:
        return {}
    curves = {}
    with reading(files[-1], "TensorBoard events"):
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 1})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            if tag.startswith(_CURVES):
                last = {event.step: event.value for event in events.Scalars(tag)}
                steps = sorted(last)
                curves[tag.removeprefix(_CURVES)] = np.array(steps), np.array([last[step] for step in steps])
    return curves


def curves_section(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Section:
    """The training curves, (steps, values) by the name under which training logs them."""
    groups = {
        "AP50 on some test images": ["AP50"],
        "total loss": ["loss"],
        "weighted losses": [],
        "gradient norm": ["gradient_norm"],
        "learning rate": ["lr", "lr_backbone"],
        "images per second": ["images/s"],
    }
    unsmoothed = ("AP50 on some test images", "learning rate")
    others = set().union(*groups.values())
    groups["weighted losses"] = [name for name in curves if name not in others]
    figures = []
    for caption, names in groups.items():
        lines = {name: curves[name] for name in names if name in curves}
        if lines:
            chart = line_chart(lines, x_name="step", y_name=caption, smooth=caption not in unsmoothed)
            figures.append((caption, chart, list(lines)))
    return Section("Training", render("training", figures=figures))


def classes_section(tested: Mapping[str, Mapping[str, Any]], on_what: str) -> Section:
    """The metrics of each class, from dicts of `summarize`, of one detector or of several beside each other.

    Args:
        tested: the metrics by the name of the detector.
        on_what: the images that they are of.
    """
    every = list(tested.values())
    columns = {
        column: mean
        for column, mean in _COLUMNS.items()
        if any(metrics.get(mean) is not None for metrics in every)
    }
    names = list(every[0]["per_class"])
    rows = [(name, [metrics["per_class"][name] for metrics in every]) for name in names]
    means = [{column: metrics.get(mean) for column, mean in columns.items()} for metrics in every]
    values = {
        "columns": columns,
        "heads": _HEADS,
        "detectors": list(tested),
        "rows": [*rows, ("mean", means)],
    }
    has_ap = any(metrics.get("mAP50") is not None for metrics in every)
    return Section("Classes", render("classes", on_what=on_what, has_ap=has_ap, **values))


def precision_recall_section(
    class_names: Sequence[str], curves: Sequence[tuple[np.ndarray, np.ndarray]], ap: Sequence[float | None]
) -> Section:
    """One small chart of (recall, precision) for each class."""

    def chart(name: str, recall: np.ndarray, precision: np.ndarray) -> Markup:
        return line_chart(
            {name: _stairs(recall, precision)},
            x_name="recall",
            y_name="precision",
            size=(230, 195),
            x_range=(0, 1),
            y_range=(0, 1),
            fill=True,
        )

    classes = [
        (name, chart(name, *curve) if value is not None else "", value)
        for name, curve, value in zip(class_names, curves, ap, strict=True)
    ]
    return Section("Precision and recall", render("precision_recall", classes=classes))


def errors_section(class_names: Sequence[str], kinds: np.ndarray, outcomes: np.ndarray) -> Section:
    """Error types of the counted detections, (C, len(KINDS)), and outcomes of objects, (C, len(OUTCOMES))."""

    def rows(counts: np.ndarray) -> dict[str, list[int]]:
        by_class = dict(zip(class_names, counts.tolist(), strict=True))
        return {"all": counts.sum(axis=0).tolist()} | by_class if len(class_names) > 1 else by_class

    counts = {"detections": rows(kinds), "objects": rows(outcomes)}
    return Section("Errors", render("errors", kinds=KINDS, outcomes=OUTCOMES, rules=_RULES, **counts))


def confusion_section(class_names: Sequence[str], counts: np.ndarray) -> Section:
    """The confusion matrix (C + 1, C + 1) of `confusion`."""
    rows = list(zip([*class_names, "background"], counts.tolist(), strict=True))
    return Section("Confusion", render("confusion", class_names=class_names, rows=rows))


def _stairs(recall: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of the curve where recall rises, extended to recall 0."""
    rises = np.flatnonzero(np.diff(recall, prepend=0) > 0)
    if len(rises) == 0:
        return np.array([0.0, 0.0]), np.array([0.0, 0.0])
    x, y = recall[rises], precision[rises]
    return np.concatenate([[0], x]), np.concatenate([y[:1], y])
