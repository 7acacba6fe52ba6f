"""The sections of the page that show numbers."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from detector.evaluation.errors import FATES, KINDS
from detector.evaluation.page.charts import kind_class, legend, line_chart, stacked_bars
from detector.evaluation.page.document import Section, facts, figure, grid, paragraph, table, warning
from detector.evaluation.report import HEADS, MEANS

_RULES = {
    "right": "the best-scored detection that overlaps an object of its class by IoU 0.5 or more",
    "part": "part domination: 0.8 or more of the box lies in an object of its class, which it does not fill",
    "grouped": "grouped instances: half or more of each of two or more objects of its class lies in the box",
    "localisation": "IoU from 0.1 to 0.5 with an object of its class, and neither a part nor grouped",
    "wrong class": "IoU of 0.5 or more with an object of another class; or of 0.1, where nothing above fits",
    "duplicate": "IoU of 0.5 or more with an object that a better-scored detection has",
    "background": "none of these: it is on nothing",
    "missed": "of an object: no counted detection is about it",
}


def curves_section(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> Section:
    """The training curves: (steps, values) by name, as training logs them."""
    if not curves:
        return Section("Training", warning("The run folder has no TensorBoard events with curves."))
    losses = [name for name in curves if name not in ("loss", "lr", "images/s", "gradient_norm")]
    groups = {
        "total loss": ["loss"],
        "losses, each as it enters the total": losses,
        "gradient norm": ["gradient_norm"],
        "learning rate": ["lr"],
        "images a second": ["images/s"],
    }
    figures = []
    for caption, names in groups.items():
        lines = {name: curves[name] for name in names if name in curves}
        if lines:
            chart = line_chart(lines, label=f"{caption} over the steps", smooth=caption != "learning rate")
            key = legend(list(lines)) if len(lines) > 1 else ""
            figures.append(figure(chart + key, f"<b>{escape(caption)}</b>"))
    note = "Over the steps of the optimizer. Pale: as logged; strong: a moving average."
    return Section("Training", paragraph(note, "muted") + grid(figures))


def config_section(changes: Sequence[tuple[str, object, object]], run: Mapping[str, str]) -> Section:
    """What the run was made with: facts about it, and (key, default, value) where the config has another."""
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
            "No image of the test split has boxes: there is no AP, and what needs boxes is left out."
        )
    return Section(
        "Classes", body + table(["class", *(HEADS.get(name, name) for name in shown)], rows, "classes")
    )


def precision_recall_section(
    class_names: Sequence[str], curves: Sequence[tuple[np.ndarray, np.ndarray]], ap: Sequence[float | None]
) -> Section:
    """A small chart a class of (recall, precision)."""
    figures = []
    for name, (recall, precision), value in zip(class_names, curves, ap, strict=True):
        if value is None:
            figures.append(figure("", f"<b>{escape(name)}</b> no object to find"))
            continue
        line = _stairs(recall, precision)
        chart = line_chart(
            {name: line},
            label=f"precision over recall of {name}",
            size=(210, 175),
            x_range=(0, 1),
            y_range=(0, 1),
            fill=True,
        )
        figures.append(figure(chart, f"<b>{escape(name)}</b> AP {value:.1f}"))
    note = "Precision (up) over recall (right) at IoU 0.5. The area under a curve that never rises is the AP."
    return Section("Precision and recall", paragraph(note, "muted") + grid(figures, "small"))


def errors_section(class_names: Sequence[str], kinds: np.ndarray, fates: np.ndarray) -> Section:
    """What the counted detections are, (C, len(KINDS)), and what became of the objects, (C, len(FATES))."""

    def rows(counts: np.ndarray) -> dict[str, list[int]]:
        by_class = dict(zip(class_names, counts.tolist(), strict=True))
        return {"all": counts.sum(axis=0).tolist()} | by_class if len(class_names) > 1 else by_class

    definitions = "".join(f"<dt>{_key(name)}</dt><dd>{escape(rule)}</dd>" for name, rule in _RULES.items())
    counted = (
        "Counted are, of each class, as many of the best-scored detections as it has objects: those of a "
        "perfect detector would all be right."
    )
    return Section(
        "Errors",
        f"{paragraph(counted, 'muted')}<h3>What the detections are</h3>{_keys(KINDS)}"
        f"{stacked_bars(rows(kinds), KINDS)}"
        f"<h3>What became of the objects</h3>{_keys(FATES)}{stacked_bars(rows(fates), FATES)}"
        f"<details><summary>What each means</summary><dl>{definitions}</dl></details>",
    )


def confusion_section(class_names: Sequence[str], counts: np.ndarray) -> Section:
    """The (C + 1, C + 1) table of `confusion`."""
    rows = []
    for place, (name, row) in enumerate(zip([*class_names, "background"], counts.tolist(), strict=True)):
        total = max(sum(row), 1)
        cells = "".join(_shade(count, count / total, column == place) for column, count in enumerate(row))
        rows.append(f"<tr><td>{escape(name)}</td>{cells}</tr>")
    note = (
        "Rows: what was there; columns: what the counted detections took it for, at IoU 0.5; in the last "
        "column what none of them found. Background: detections on no object that was still free."
    )
    heads = ["", *class_names, "missed"]
    return Section("Confusion", paragraph(note, "muted") + table(heads, rows, "confusion"))


def _meter(value: float | None) -> str:
    if value is None:
        return '<td class="muted">-</td>'
    return f'<td class="meter" style="--share:{value / 100:.3f}"><span>{value:.1f}</span></td>'


def _shade(count: int, share: float, diagonal: bool) -> str:
    tone = "var(--right)" if diagonal else "var(--part)"
    style = f' style="--tone:{tone};--share:{100 * share**0.5 * 0.75:.0f}%"'
    return f"<td{style}>{count or ''}</td>"


def _key(name: str) -> str:
    return f'<span class="legend"><span><i class="{kind_class(name)}"></i>{escape(name)}</span></span>'


def _keys(names: Sequence[str]) -> str:
    items = (f'<span><i class="{kind_class(name)}"></i>{escape(name)}</span>' for name in names)
    return f'<div class="legend">{"".join(items)}</div>'


def _stairs(recall: np.ndarray, precision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The curve from recall 0 on, at the places where recall rises, and what it ends at."""
    rises = np.flatnonzero(np.diff(recall, prepend=0) > 0)
    if len(rises) == 0:
        return np.array([0.0, 0.0]), np.array([0.0, 0.0])
    x, y = recall[rises], precision[rises]
    return np.concatenate([[0], x]), np.concatenate([y[:1], y])
