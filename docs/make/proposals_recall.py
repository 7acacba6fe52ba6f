"""Draws docs/images/proposals_recall.svg: the objects that the first N proposals cover, for each search.

pip install matplotlib
python docs/make/proposals_recall.py
"""

import json
from pathlib import Path

from matplotlib import pyplot

REPOSITORY = Path(__file__).parents[2]
OUTPUT = REPOSITORY / "docs/images/proposals_recall.svg"


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    rows = json.loads((REPOSITORY / "benchmarks/results/proposals_cpu.json").read_text())["rows"]
    figure, charts = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for chart, iou in zip(charts, (50, 70), strict=True):
        for mode in dict.fromkeys(row["mode"] for row in rows):
            points = [(row["num_boxes"], row[f"recall_{iou}"]) for row in rows if row["mode"] == mode]
            chart.plot(*zip(*points, strict=True), marker="o", markersize=3, label=mode)
        chart.set(title=f"IoU 0.{iou // 10}", xlabel="proposals of an image, the first N")
        chart.grid(alpha=0.3)
    charts[0].set_ylabel("share of the objects covered")
    charts[1].legend()
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


if __name__ == "__main__":
    main()
