"""Draws docs/images/few_boxes.svg: AP50 against the share of training images with reviewed boxes.

pip install matplotlib
python docs/make/few_boxes.py
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes

REPOSITORY = Path(__file__).parents[2]
OUTPUT = REPOSITORY / "docs/images/few_boxes.svg"
TITLES = {"photos": "Photographs", "toybox": "Toybox", "doom": "Doom", "pcb": "Circuit boards"}
LINES = {  # * stands for the share
    "tags*": "tags of all images, boxes of some",
    "student_tags*": "the Faster R-CNN that learns from it",
    "boxes*": "the boxed images alone",
    "student_boxes*": "... and their Faster R-CNN",
    "suggested_information-density*": "tags of all, boxes where detector suggest chooses",
    "student_suggested_information-density*": "... and its Faster R-CNN",
}
SHARES = (0, 1, 5, 10, 25, 50, 100)  # percent, at equal distances on the axis


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    paths = {name: REPOSITORY / f"benchmarks/results/methods_few_boxes_{name}.json" for name in TITLES}
    found = {name: json.loads(path.read_text())["methods"] for name, path in paths.items() if path.exists()}
    figure, charts = pyplot.subplots(2, 2, figsize=(9, 6.8), layout="constrained")
    for chart, (name, methods) in zip(charts.flat, found.items(), strict=True):
        draw(chart, methods)
        chart.set(title=TITLES[name], xlabel="% of the training images with boxes", ylim=(0, 100))
        chart.set_ylabel("AP50 on the test split")
    figure.legend(*charts[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


def draw(chart: Axes, methods: Mapping[str, Sequence[dict]]) -> None:
    """One line for each of LINES that was measured: the mean over seeds, with lowest and highest."""
    prefix = "opencv_" if "opencv_tags" in methods else ""  # Doom also has runs with worse proposals
    methods = {name.removeprefix(prefix): runs for name, runs in methods.items() if name.startswith(prefix)}
    for number, (kind, label) in enumerate(LINES.items()):
        points = []
        for name, runs in methods.items():
            match = re.fullmatch(kind.replace("*", r"(?:_(\d+))?"), name)
            if match:
                values = [run["mAP50"] for run in runs]
                mean = sum(values) / len(values)
                points.append(
                    (SHARES.index(int(match[1] or 0)), mean, mean - min(values), max(values) - mean)
                )
        if points:
            places, means, below, above = zip(*sorted(points), strict=True)
            style = {"color": f"C{number}", "marker": "o", "markersize": 4, "capsize": 3}
            chart.errorbar(places, means, (below, above), label=label, **style)
    chart.set_xticks(range(len(SHARES)), map(str, SHARES))
    chart.grid(alpha=0.3)


if __name__ == "__main__":
    main()
