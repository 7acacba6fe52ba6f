"""The sections of the page with metrics, curves and counts."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from detector.evaluation.errors import KINDS, OUTCOMES
from detector.evaluation.page.charts import line_chart
from detector.evaluation.page.document import Section, render
from detector.evaluation.report import HEADS, MEANS

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


def curves_section(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Section:
    """The training curves, (steps, values) by the name under which training logs them."""
    groups = {
        "total loss": ["loss"],
        "weighted losses": [
            name for name in curves if name not in ("loss", "lr", "images/s", "gradient_norm")
        ],
        "gradient norm": ["gradient_norm"],
        "learning rate": ["lr"],
        "images per second": ["images/s"],
    }
    figures = []
    for caption, names in groups.items():
        lines = {name: curves[name] for name in names if name in curves}
        if lines:
            chart = line_chart(lines, x_name="step", y_name=caption, smooth=caption != "learning rate")
            figures.append((caption, chart, list(lines)))
    return Section("Training", render("training", figures=figures))


def config_section(changes: Sequence[tuple[str, object, object]], facts: Mapping[str, str]) -> Section:
    """Facts about the run, and the (key, default, value) of every key that differs from its default."""
    return Section("Run", render("run", changes=changes, facts=facts))


def classes_section(metrics: Mapping, on_what: str) -> Section:
    """AP and CorLoc of each class, from the dict of `summarize`."""
    columns = {name: metrics[mean] for name, mean in MEANS.items() if metrics.get(mean) is not None}
    values = {"columns": columns, "heads": HEADS, "per_class": metrics["per_class"]}
    has_ap = metrics.get("mAP50") is not None
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
