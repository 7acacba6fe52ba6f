"""Draws docs/images/teachers.svg: mAP50 of students from a teacher alone, from tags, and from both.

pip install matplotlib
python docs/make/teachers.py
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks/results"
OUTPUT = REPOSITORY / "docs/images/teachers.svg"
CHARTS = {  # title, and what the names of students begin with
    "teachers_toybox": ("Toybox, three seeds", ""),
    "methods_teachers_photos": ("Photographs, one seed, without trials", "student_"),
}
QUALITIES = ("blind", "poor", "middle", "good", "perfect")  # at equal distances on the axis
LINES = {"alone_*": "the teacher alone", "tags": "tags alone", "both_*": "with tags"}  # *: the quality


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    figure, charts = pyplot.subplots(1, len(CHARTS), figsize=(9, 3.8), layout="constrained", sharey=True)
    for chart, (name, (title, prefix)) in zip(charts, CHARTS.items(), strict=True):
        draw(chart, json.loads((RESULTS / f"{name}.json").read_text())["methods"], prefix)
        chart.set(title=title, xlabel="simulated teacher", xlim=(-0.3, len(QUALITIES) - 0.7))
        chart.set_xticks(range(len(QUALITIES)), QUALITIES)
    charts[0].set(ylabel="mAP50 of the Faster R-CNN", ylim=(0, 100))
    figure.legend(*charts[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


def draw(chart: Axes, methods: Mapping[str, Sequence[Mapping[str, Any]]], prefix: str) -> None:
    """The mean over the seeds, with lowest and highest, of each quality that was measured."""
    for name, label in LINES.items():
        found = [methods.get(prefix + name.replace("*", quality), []) for quality in QUALITIES]
        seeds = {x: [run["mAP50"] for run in runs] for x, runs in enumerate(found) if runs}
        means = {x: sum(values) / len(values) for x, values in seeds.items()}
        below = [means[x] - min(values) for x, values in seeds.items()]
        above = [max(values) - means[x] for x, values in seeds.items()]
        chart.errorbar(
            [*means], [*means.values()], (below, above), label=label, marker="o", markersize=4, capsize=3
        )
    chart.grid(alpha=0.3)


if __name__ == "__main__":
    main()
