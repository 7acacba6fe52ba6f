"""Draws docs/images/teachers.svg: mAP50 of students from a teacher alone, from tags, and from both.

pip install matplotlib
python docs/make/teachers.py
"""

import json
from pathlib import Path

from matplotlib import pyplot

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks/results/methods_teachers_toybox.json"
WITH_TRIALS = REPOSITORY / "benchmarks/results/teachers_toybox.json"
OUTPUT = REPOSITORY / "docs/images/teachers.svg"
QUALITIES = ("blind", "poor", "middle", "good", "perfect")
LINES = {  # * stands for the quality
    "student_alone_*": "the teacher alone",
    "student_tags": "tags alone",
    "student_both_*": "with tags, by trust",
}


def main() -> None:
    pyplot.rcParams.update(
        {"svg.hashsalt": "detector", "svg.fonttype": "none"}
    )  # reproducible, and text as text
    methods = json.loads(RESULTS.read_text())["methods"]
    figure, chart = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for name, label in LINES.items():
        seeds = [[run["mAP50"] for run in methods[name.replace("*", quality)]] for quality in QUALITIES]
        means = [sum(each) / len(each) for each in seeds]
        below = [mean - min(each) for mean, each in zip(means, seeds, strict=True)]
        above = [max(each) - mean for mean, each in zip(means, seeds, strict=True)]
        chart.errorbar(QUALITIES, means, (below, above), label=label, marker="o", markersize=4, capsize=3)
    methods = json.loads(WITH_TRIALS.read_text())["methods"]
    tried = [quality for quality in QUALITIES if f"both_{quality}" in methods]
    values = [methods[f"both_{quality}"][0]["mAP50"] for quality in tried]
    chart.plot(tried, values, "x", color="black", label="with tags, by trials (one seed)", zorder=5)
    chart.set(xlabel="simulated teacher", ylabel="mAP50 on Toybox", ylim=(0, 100))
    chart.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(OUTPUT, metadata={"Date": None})
    print(OUTPUT)


if __name__ == "__main__":
    main()
