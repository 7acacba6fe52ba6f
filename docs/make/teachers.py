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
OUTPUT = REPOSITORY / "docs/images/teachers.svg"
TITLES = {"toybox": "Toybox", "photos": "Photographs"}
QUALITIES = ("blind", "poor", "middle", "good", "perfect")  # at equal distances on the axis
LINES = {"alone": "the teacher alone", "tags": "tags alone", "both": "both"}


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    figure, charts = pyplot.subplots(1, len(TITLES), figsize=(9, 3.6), layout="constrained", sharey=True)
    for chart, (name, title) in zip(charts, TITLES.items(), strict=True):
        path = REPOSITORY / f"benchmarks/results/teachers_{name}.json"
        draw(chart, json.loads(path.read_text())["methods"])
        chart.set(title=title, xlabel="simulated teacher", xticks=range(len(QUALITIES)))
        chart.set_xticklabels(QUALITIES)
    charts[0].set(ylabel="mAP50 of the Faster R-CNN", ylim=(0, 100), xlim=(-0.3, len(QUALITIES) - 0.7))
    figure.legend(*charts[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(LINES))
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


def draw(chart: Axes, methods: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The mean over the seeds, with lowest and highest, of each quality that was measured."""
    for kind, label in LINES.items():
        names = [kind if kind == "tags" else f"{kind}_{quality}" for quality in QUALITIES]
        seeds = {
            x: [run["mAP50"] for run in methods[name]] for x, name in enumerate(names) if name in methods
        }
        means = {x: sum(values) / len(values) for x, values in seeds.items()}
        below = [means[x] - min(values) for x, values in seeds.items()]
        above = [max(values) - means[x] for x, values in seeds.items()]
        chart.errorbar(
            [*means], [*means.values()], (below, above), label=label, marker="o", markersize=4, capsize=3
        )
    chart.grid(alpha=0.3)


if __name__ == "__main__":
    main()
