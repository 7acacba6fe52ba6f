"""What the runs of teachers.py say: the student beside both sources alone, and how well trials choose.

    python benchmarks/teacher_sources.py [FOLDER]

Reads teachers_SET.json of a folder (default: benchmarks/results) and prints two tables for each data set:

* mAP50 of the students of each teacher, the means over the seeds that have all three, and how far "both" is
  from the better one of the two sources; the worst seed in brackets.
* How often the choice of the trials is right, over classes, teachers and seeds. "Better": of the two sources
  alone, that with the higher image AP has the higher AP50, too, where these differ by more than 1. "Advice":
  the AP50 of the source that it names is at most 1 below the best of the two sources and both.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from detector.self_training.fuse import ADVICE

SOURCES = {word: source for source, word in ADVICE.items()}
SIMILAR = 1.0  # AP50 that counts as no difference


def complete(methods: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[Any, Any, Any]]]]:
    """Each teacher, and of the seeds that have all the runs of tags, of both, and of the teacher alone."""
    by_seed = {name: {row["seed"]: row for row in rows} for name, rows in methods.items()}
    for name in methods:
        kind, _, quality = name.partition("_")
        alone = f"alone_{quality}"
        if kind == "both" and alone in methods:
            seeds = sorted(by_seed["tags"].keys() & by_seed[name].keys() & by_seed[alone].keys())
            if seeds:
                yield quality, [tuple(by_seed[each][s] for each in ("tags", name, alone)) for s in seeds]


def describe(methods: Mapping[str, Any]) -> Iterator[str]:
    better, advised = [], []
    yield f"{'teacher':12}{'alone':>8}{'both':>8}{'tags':>8}{'beside the better':>24}{'seeds':>8}"
    for quality, runs in complete(methods):
        tags, both, alone = (np.array([row["mAP50"] for row in column]) for column in zip(*runs, strict=True))
        beside = both - np.maximum(tags, alone)
        means = "".join(f"{each.mean():8.1f}" for each in (alone, both, tags))
        yield f"{quality:12}{means}{beside.mean():+14.1f} ({beside.min():+.1f})".ljust(60) + f"{len(runs):8}"
        for of_tags, of_both, of_teacher in runs:
            for name, values in of_both["teacher"].items():
                ap50 = {"tags": of_tags, "both": of_both, "teacher": of_teacher}
                found = {source: run["per_class"][name]["AP50"] for source, run in ap50.items()}
                if (image_ap := values.get("image_AP")) and None not in image_ap.values():
                    if abs(found["tags"] - found["teacher"]) > SIMILAR:
                        right = image_ap["tags"] > image_ap["teacher"]
                        better.append(right == (found["tags"] > found["teacher"]))
                    source = SOURCES[values["advice"]]
                    advised.append(found[source] >= max(found.values()) - SIMILAR)
    for what, right in (("better", better), ("advice", advised)):
        yield f"{what}: right in {sum(right)} of {len(right)} classes ({sum(right) / max(1, len(right)):.0%})"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    for path in sorted(folder.glob("teachers_*.json")):
        print(path.stem)
        print("\n".join(describe(json.loads(path.read_text())["methods"])), end="\n\n")


if __name__ == "__main__":
    main()
