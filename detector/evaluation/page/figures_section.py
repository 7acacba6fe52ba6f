"""The sections of the page with metrics, curves and counts."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from detector.evaluation.errors import FATES, KINDS
from detector.evaluation.page.charts import kind_class, legend, line_chart, stacked_bars
from detector.evaluation.page.document import Section, details, facts, figure, grid, paragraph, table, warning
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
    if not curves:
        return Section("Training", warning("The run folder has no TensorBoard events."))
    losses = [name for name in curves if name not in ("loss", "lr", "images/s", "gradient_norm")]
    groups = {
        "total loss": ["loss"],
        "weighted losses": losses,
        "gradient norm": ["gradient_norm"],
        "learning rate": ["lr"],
        "images per second": ["images/s"],
    }
    figures = []
    for caption, names in groups.items():
        lines = {name: curves[name] for name in names if name in curves}
        if lines:
            chart = line_chart(lines, x_name="step", y_name=caption, smooth=caption != "learning rate")
            key = legend(list(lines)) if len(lines) > 1 else ""
            figures.append(figure(chart + key, f"<b>{escape(caption)}</b>"))
    note = "Pale: logged values; strong: their moving average."
    return Section("Training", paragraph(note, "muted") + grid(figures))


def config_section(changes: Sequence[tuple[str, object, object]], run: Mapping[str, str]) -> Section:
    """Facts about the run, and the (key, default, value) of every key that differs from its default."""
    rows = (
        f"<tr><td><code>{escape(key)}</code></td>"
        f'<td class="text"><code>{escape(str(value))}</code></td>'
        f'<td class="text muted"><code>{escape(str(default))}</code></td></tr>'
        for key, default, value in changes
    )
    told = f"<h3>Keys that differ from the defaults ({len(changes)})</h3>"
    head = '<tr><th class="text">key</th><th class="text">value</th><th class="text">default</th></tr>'
    return Section(
        "Run", f'{facts(run)}{told}<div class="wide"><table class="keys">{head}{"".join(rows)}</table></div>'
    )


def classes_section(metrics: Mapping, on_what: str) -> Section:
    """AP and CorLoc of each class, from the dict of `summarize`."""
    shown = [name for name, mean in MEANS.items() if metrics.get(mean) is not None]
    rows = []
    for name, values in metrics["per_class"].items():
        rows.append(f"<tr><td>{escape(name)}</td>{''.join(_meter(values[column]) for column in shown)}</tr>")
    means = "".join(_meter(metrics[MEANS[column]]) for column in shown)
    rows.append(f'<tr class="mean"><td>mean</td>{means}</tr>')
    body = paragraph(on_what, "muted")
    if metrics.get("mAP50") is None:
        body += warning(
            "No image of the test split has ground-truth boxes: AP and error types cannot be computed."
        )
    return Section(
        "Classes", body + table(["class", *(HEADS.get(name, name) for name in shown)], rows, "classes")
    )


def precision_recall_section(
    class_names: Sequence[str], curves: Sequence[tuple[np.ndarray, np.ndarray]], ap: Sequence[float | None]
) -> Section:
    """One small chart of (recall, precision) for each class."""
    figures = []
    for name, (recall, precision), value in zip(class_names, curves, ap, strict=True):
        if value is None:
            figures.append(figure("", f"<b>{escape(name)}</b> no objects"))
            continue
        line = _stairs(recall, precision)
        chart = line_chart(
            {name: line},
            x_name="recall",
            y_name="precision",
            size=(230, 195),
            x_range=(0, 1),
            y_range=(0, 1),
            fill=True,
        )
        figures.append(figure(chart, f"<b>{escape(name)}</b> AP {value:.1f}"))
    note = "At IoU 0.5. AP is the area under the curve after precision is made to decrease monotonically."
    return Section("Precision and recall", paragraph(note, "muted") + grid(figures, "small"))


def errors_section(class_names: Sequence[str], kinds: np.ndarray, fates: np.ndarray) -> Section:
    """Error types of the counted detections, (C, len(KINDS)), and fates of objects, (C, len(FATES))."""

    def rows(counts: np.ndarray) -> dict[str, list[int]]:
        by_class = dict(zip(class_names, counts.tolist(), strict=True))
        return {"all": counts.sum(axis=0).tolist()} | by_class if len(class_names) > 1 else by_class

    definitions = "".join(f"<dt>{_key(name)}</dt><dd>{escape(rule)}</dd>" for name, rule in _RULES.items())
    counted = (
        "For a class with N objects, the N detections with the highest scores are counted; those of a "
        "perfect detector would all be true positives."
    )
    return Section(
        "Errors",
        f"{paragraph(counted, 'muted')}<h3>Detections by type</h3>{_keys(KINDS)}"
        f"{stacked_bars(rows(kinds), KINDS)}"
        f"<h3>Objects by result</h3>{_keys(FATES)}{stacked_bars(rows(fates), FATES)}"
        + details("Definitions", f"<dl>{definitions}</dl>"),
    )


def confusion_section(class_names: Sequence[str], counts: np.ndarray) -> Section:
    """The confusion matrix (C + 1, C + 1) of `confusion`."""
    rows = []
    for place, (name, row) in enumerate(zip([*class_names, "background"], counts.tolist(), strict=True)):
        total = max(sum(row), 1)
        cells = "".join(_shade(count, count / total, column == place) for column, count in enumerate(row))
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    note = (
        "Rows: true class; columns: class of the matching detection at IoU 0.5, or missed. Background: "
        "detections that match no object, or only objects matched by detections with higher scores."
    )
    heads = ["true / detected", *class_names, "missed"]
    return Section("Confusion", paragraph(note, "muted") + table(heads, rows, "confusion"))


def _meter(value: float | None) -> str:
    if value is None:
        return '<td class="muted">-</td>'
    return f'<td class="meter" style="--share:{value / 100:.3f}"><span>{value:.1f}</span></td>'


def _shade(count: int, share: float, diagonal: bool) -> str:
    tone = "var(--true-positive)" if diagonal else "var(--part)"
    style = f' style="--tone:{tone};--share:{100 * share**0.5 * 0.75:.0f}%"'
    return f"<td{style}>{count or ''}</td>"


def _key(name: str) -> str:
    return f'<span class="legend"><span><i class="{kind_class(name)}"></i>{escape(name)}</span></span>'


def _keys(names: Sequence[str]) -> str:
    items = (f'<span><i class="{kind_class(name)}"></i>{escape(name)}</span>' for name in names)
    return f'<div class="legend">{"".join(items)}</div>'


def _stairs(recall: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points of the curve where recall rises, extended to recall 0."""
    rises = np.flatnonzero(np.diff(recall, prepend=0) > 0)
    if len(rises) == 0:
        return np.array([0.0, 0.0]), np.array([0.0, 0.0])
    x, y = recall[rises], precision[rises]
    return np.concatenate([[0], x]), np.concatenate([y[:1], y])
