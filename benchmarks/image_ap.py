"""How often the image AP, which needs no box, picks the better of two recipes trained on tags alone.

python benchmarks/image_ap.py

Reads benchmarks/results/methods_*.json: means over seeds of all recipes of a data set, weak detectors and
students apart. A pair counts if AP50 differs by at least 3 points.
"""

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
SETS = ("photos", "doom", "toybox", "pcb", "peopleart", "cards", "steel")
NOT_TAGS_ALONE = re.compile(  # runs that know boxes, points or counts, or that have other test images
    r"boxe|sparse|suggested|points|counts|full|truth|localized|complete|proposals|sources|fold"
    r"|(tags|student)_(1|5|10|25|50|100)(_|$)|_10$"
)
APART = 3.0  # of AP50
BANDS = ((0, 95), (95, 100))  # of the lower image AP of a pair


def recipes(results: Path) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """The image AP and AP50 of each recipe, by data set and kind of detector."""
    found = defaultdict(list)
    for path in sorted(results.glob("methods_*.json")):
        name = path.stem.removeprefix("methods_")
        data_set = next((each for each in SETS if each in name), "")
        if not data_set or re.search("one_class|_tags|teachers", name):
            continue
        for recipe, runs in json.loads(path.read_text())["methods"].items():
            if NOT_TAGS_ALONE.search(recipe) or any(run.get("image_mAP") is None for run in runs):
                continue
            kind = "student" if "self-training" in runs[0]["method"] else "weak"
            found[data_set, kind].append((mean(runs, "image_mAP"), mean(runs, "mAP50")))
    return dict(found)


def mean(runs: Sequence[Mapping], figure: str) -> float:
    return statistics.mean(run[figure] for run in runs)


def picked(rows: Sequence[tuple[float, float]], least: float, most: float) -> tuple[int, int]:
    """In how many pairs the higher image AP has the higher AP50, and of how many.

    Args:
        rows: image AP and AP50 of each recipe.
        least, most: what the lower image AP of a pair is at least, and below.
    """
    pairs = [
        (one[0] - other[0]) * (one[1] - other[1]) > 0
        for one, other in combinations(rows, 2)
        if abs(one[1] - other[1]) >= APART and least <= min(one[0], other[0]) < most
    ]
    return sum(pairs), len(pairs)


def main() -> None:
    heads = [f"{least} to {most}" for least, most in BANDS]
    print(f"{'':10}{'':9}{'recipes':>8}" + "".join(f"{head:>14}" for head in heads))
    for (data_set, kind), rows in sorted(recipes(RESULTS).items()):
        cells = [picked(rows, *band) for band in BANDS]
        shown = "".join(f"{f'{right} of {pairs}':>14}" for right, pairs in cells)
        print(f"{data_set:10}{kind:9}{len(rows):8}{shown}")


if __name__ == "__main__":
    main()
