"""How good the thresholds are that `detector test` chooses, for runs whose test split has ground-truth boxes.

    python benchmarks/thresholds.py toybox RUN [RUN ...]

A RUN was tested, the weak detector, its student, or both. For each detector: the mean over classes of F1 in
the test split, and the boxes that are shown, at one threshold for all classes, at those chosen from tags
alone, from tags and the boxes of 20 images (mean and range of ten draws), and at the best of each class, as
all boxes give it. Writes benchmarks/results/thresholds_NAME.json.
"""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, commit, machine_name

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.evaluation.summary import load_detections
from detector.evaluation.thresholds import choose_thresholds
from detector.evaluation.voc import RankedHits, ranked_hits
from detector.structures import Annotation, Detections
from detector.utils.files import read_json

FIXED, BOXED, DRAWS = (0.3, 0.5), 20, 10


def mean_f1(hits: Sequence[RankedHits], thresholds: Sequence[float]) -> tuple[float, int]:
    """The mean over classes of F1 in percent, and the number of boxes that are shown."""
    f1, shown = [], 0
    for own, threshold in zip(hits, thresholds, strict=True):
        kept = own.scores > threshold
        shown += int(kept.sum())
        f1.append(2 * own.is_tp[kept].sum() / (kept.sum() + own.objects))
    return 100 * float(np.mean(f1)), shown


def chosen(
    test_set: AnnotatedImages, found: Sequence[Detections], truth: Sequence[Annotation | None]
) -> list[float]:
    labels = torch.from_numpy(test_set.all_labels())
    return [each.value for each in choose_thresholds(found, truth, labels, torch.ones_like(labels))]


def measure(folder: Path) -> dict[str, object]:
    """The figures of the detector in a folder."""
    cfg = load_cfg(folder / "config.yaml")
    test_set = build_dataset(cfg, cfg.datasets.test_split)
    by_id = {each.image_id: each for each in load_detections(folder / "detections.npz")}
    found = [by_id[image_id] for image_id in test_set.image_ids]
    truth = [test_set.annotation(index) for index in range(len(test_set))]
    hits = ranked_hits(found, [each for each in truth if each is not None], len(test_set.class_names))
    options = {f"{each:g}": [each] * len(hits) for each in FIXED}
    options |= {"tags": chosen(test_set, found, [None] * len(found)), "best": chosen(test_set, found, truth)}
    rows = {
        name: dict(zip(("F1", "boxes"), mean_f1(hits, each), strict=True)) for name, each in options.items()
    }
    draws = []
    for seed in range(DRAWS):
        drawn = set(np.random.default_rng(seed).permutation(len(found))[:BOXED].tolist())
        some = [each if index in drawn else None for index, each in enumerate(truth)]
        draws.append(mean_f1(hits, chosen(test_set, found, some)))
    scores, shown = zip(*draws, strict=True)
    rows[f"tags, boxes of {BOXED} images"] = {
        "F1": float(np.mean(scores)),
        "least": min(scores),
        "most": max(scores),
        "boxes": float(np.mean(shown)),
    }
    metrics = read_json(folder / "metrics.json")
    known = {"detector": metrics["method"], "steps": metrics["iteration"], "mAP50": metrics["mAP50"]}
    return known | {"images": len(found), "objects": sum(each.objects for each in hits), "thresholds": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    options = parser.parse_args()
    folders = [each for run in options.runs for each in (run, run / "self_train")]
    rows = [measure(folder) for folder in folders if (folder / "metrics.json").is_file()]
    for row in rows:
        print(f"{row['detector']}, mAP50 {row['mAP50']:.1f}, {row['objects']} objects")
        for name, values in row["thresholds"].items():
            print(f"  {name:28s} F1 {values['F1']:5.1f}  {values['boxes']:6.0f} boxes")
    result = {
        "machine": machine_name(torch.device("cpu")),
        "date": date.today().isoformat(),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "commit": commit(),
        "rows": rows,
    }
    path = RESULTS / f"thresholds_{options.name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(temporary, path)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
