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
TITLES = {"toybox": "Toybox", "photos": "Photographs"}
QUALITIES = ("blind", "poor", "middle", "good", "perfect")  # at equal distances on the axis
LINES = {  # * stands for the quality
    "student_alone_*": "the teacher alone",
    "student_tags": "tags alone",
    "student_both_*": "with tags, by trust",
}


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    figure, charts = pyplot.subplots(1, len(TITLES), figsize=(9, 3.8), layout="constrained", sharey=True)
    for chart, (name, title) in zip(charts, TITLES.items(), strict=True):
        draw(chart, json.loads((RESULTS / f"methods_teachers_{name}.json").read_text())["methods"])
        chart.set(title=title, xlabel="simulated teacher", xlim=(-0.3, len(QUALITIES) - 0.7))
        chart.set_xticks(range(len(QUALITIES)), QUALITIES)
    charts[0].set(ylabel="mAP50 of the Faster R-CNN", ylim=(0, 100))
    methods = json.loads((RESULTS / "teachers_toybox.json").read_text())["methods"]
    tried = {x: methods[f"both_{name}"] for x, name in enumerate(QUALITIES) if f"both_{name}" in methods}
    values = [runs[0]["mAP50"] for runs in tried.values()]
    charts[0].plot([*tried], values, "x", color="black", label="with tags, by trials (one seed)", zorder=5)
    figure.legend(*charts[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


def draw(chart: Axes, methods: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The mean over the seeds, with lowest and highest, of each quality that was measured."""
    for name, label in LINES.items():
        found = [methods.get(name.replace("*", quality), []) for quality in QUALITIES]
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
