"""Draws docs/images/review_learning.svg: AP50 on the test split while a person reviews.

pip install matplotlib
python docs/make/review_curve.py
"""

import json
from pathlib import Path

from matplotlib import pyplot

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks/results/review_learning_cpu.json"
OUTPUT = REPOSITORY / "docs/images/review_learning.svg"


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    rows = json.loads(RESULTS.read_text())["rows"]
    images, ap50 = ([row[key] for row in rows] for key in ("images", "ap50_test"))
    figure, chart = pyplot.subplots(figsize=(6, 2.8), layout="constrained")
    chart.plot(images, ap50, marker="o", markersize=4, label="the detector that goes on learning")
    chart.axhline(ap50[0], linestyle="--", color="gray", label="the detector of the start")
    undone = [(row["images"], row["ap50_test"]) for row in rows if not row["kept"]]
    if undone:
        chart.plot(*zip(*undone, strict=True), "o", markerfacecolor="white", label="a round that was undone")
    chart.set(xlabel="reviewed images of 300", ylabel="mAP50 on the test split", xticks=images)
    chart.set_ylim(0, 1.15 * max(ap50))
    chart.grid(alpha=0.3)
    chart.legend(loc="lower right")
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


if __name__ == "__main__":
    main()
