"""What unknown tags and balanced sampling do on Toybox: PCL trained on tables of tags that lack some.

python benchmarks/tags_toybox.py [--seeds 3] [--jobs 1] [--only NAME] [KEY VALUE ...]

Requires datasets/toybox with its proposals, which `make demo` creates; writes tables to datasets/toybox_tags.

* "complete": all tags. "absent": of all pairs of an image and a class 40 % are lost and taken for absent.
  "unknown": the same pairs are marked as unknown.
* "rare": all tags, but only 12 of the images that show a bird, and 12 of those that show a robot.
  "balanced": the same images with SOLVER.REPEAT_THRESHOLD 0.3.
"""

import json
from pathlib import Path

import numpy as np
from methods import compare

from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES

SOURCE, ROOT = Path("datasets/toybox"), Path("datasets/toybox_tags")
LOST, RARE, KEPT = 0.4, ("bird", "robot"), 12

KEYS = ("DATASETS.FORMAT", "image_labels", "DATASETS.ROOT", str(ROOT), "DATASETS.TRAIN_SPLIT")
VARIANTS = {
    **{name: (*KEYS, name) for name in ("complete", "absent", "unknown", "rare")},
    "balanced": (*KEYS, "rare", "SOLVER.REPEAT_THRESHOLD", "0.3"),
}


def write_tables() -> None:
    """Write links to the images and the tables of all variants into the folder ROOT unless it exists."""
    if ROOT.exists():
        return
    ROOT.mkdir()
    rows: dict[str, list[dict]] = {name: [] for name in ("complete", "absent", "unknown", "rare", "test")}
    generator, seen = np.random.default_rng(0), dict.fromkeys(RARE, 0)
    for split in ("trainval", "test"):
        dataset = VOCDataset(SOURCE, split, CLASSES)
        for index in range(len(dataset)):
            path, labels = dataset.image_path(index), dataset.labels(index).bool().tolist()
            (ROOT / path.name).symlink_to(path.resolve())
            shown = [name for name, label in zip(CLASSES, labels, strict=True) if label]
            if split == "test":
                truth = dataset.annotation(index)
                pairs = zip(truth.labels.tolist(), truth.boxes.tolist(), strict=True)
                boxes = [{"label": CLASSES[label], "box": box} for label, box in pairs]
                rows["test"].append({"file": path.name, "boxes": boxes})
                continue
            lost = [name for name in CLASSES if generator.random() < LOST]
            left = [name for name in shown if name not in lost]
            rows["complete"].append({"file": path.name, "labels": shown})
            rows["absent"].append({"file": path.name, "labels": left})
            rows["unknown"].append({"file": path.name, "labels": left, "unknown": lost})
            of_rare = [name for name in RARE if name in shown]
            if all(seen[name] < KEPT for name in of_rare):
                rows["rare"].append({"file": path.name, "labels": shown})
                seen.update({name: seen[name] + 1 for name in of_rare})
    for name, lines in rows.items():
        (ROOT / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    compare("toybox_tags", "configs/toybox_pcl.yaml", VARIANTS, prepare=lambda *_: write_tables())
