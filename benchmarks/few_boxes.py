"""What reviewed boxes of some training images add to the tags of all: PCL with 0 to 100 % of them boxed.

    python benchmarks/few_boxes.py toybox [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

The first argument is a data set of DATA. Its ground-truth boxes stand for those of a person.

* "tags": no boxes. "tags_P": P % of the images are boxed, and half of the draws of each class are of them;
  "tags_P_draws_10": a tenth, "sparse_P": four fifths. "tags_100" is full supervision with the same network
  and schedule.
* "boxes_P": the same boxed images alone; all others, and their tags, are left out.
* "points": a point in the center of each object of all images, and no boxes. "counts": how many objects of
  each class they show.
* "suggested_RULE_P": as "tags_P", but the images are those that `detector suggest --by RULE` chooses with the
  detector "tags" of the same seed, which must have been trained before.
* "student_...": the Faster R-CNN that learns from the detector of that name and from the reviewed boxes.
  "..._no_teacher": without the teacher's steps. "..._views": nor mosaics. "..._plain": nor copy-paste,
  strong views and scale jitter. "..._w25": plain, and it counts pseudo boxes a quarter. "..._quarter" and
  "..._tenth": with the views and the teacher, pseudo boxes count so much. "student_boxes_first_P": the
  student "student_boxes_P" has found the boxes of the other images. "trial_..._boxed_last" (a patch): the
  last 300 steps draw the boxed images alone, and have no teacher.

Results with other names are of patches, of other keys or of earlier code: see the notes in their file.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from methods import ROOT, compare

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages

DATA = {
    "toybox": "configs/toybox_pcl.yaml",
    "photos": "configs/photos_pcl_lite0.yaml",
    "doom": "configs/doom_pcl_lite0.yaml",
    "pcb": "configs/boards_pcl_lite0.yaml",
}
PERCENT = (1, 5, 10, 25, 50, 100)


RULES = "information-density", "typical", "entropy"
SUGGESTED = 1, 5, 10, 25, 50
PLAIN = ("SELF_TRAIN.COPY_PASTE", "0", "SELF_TRAIN.STRONG_VIEWS", "False")
PLAIN = (*PLAIN, "SELF_TRAIN.MOSAIC", "0", "SELF_TRAIN.SCALE_JITTER", "(1, 1)")
PLAIN = (*PLAIN, "SELF_TRAIN.TEACHER_STEPS", "0")
OPTIONS = {
    "no_teacher": ("SELF_TRAIN.TEACHER_STEPS", "0"),
    "views": ("SELF_TRAIN.TEACHER_STEPS", "0", "SELF_TRAIN.MOSAIC", "0"),
    "plain": PLAIN,
    "w25": (*PLAIN, "SELF_TRAIN.PSEUDO_WEIGHT", "0.25"),
    "quarter": ("SELF_TRAIN.PSEUDO_WEIGHT", "0.25"),
    "tenth": ("SELF_TRAIN.PSEUDO_WEIGHT", "0.1"),
}


def take_data_set() -> str:
    """The first argument of the command, one of DATA, which is taken out of sys.argv."""
    if len(sys.argv) < 2 or sys.argv[1] not in DATA:
        sys.exit(f"name a data set first: {', '.join(DATA)}")
    return sys.argv.pop(1)


def variants(data_set: str) -> dict[str, tuple[str, ...]]:
    """The config overrides of each variant; :func:`prepare` writes the files that they name."""
    folder = f"runs/few_boxes_{data_set}"
    found: dict[str, tuple[str, ...]] = {"tags": ()}
    for percent in PERCENT:
        share = "DATASETS.BOXED_SHARE", str(percent / 100), "SOLVER.BOXED_SHARE"
        found[f"tags_{percent}"] = *share, "0.5"
        if percent < 100:
            found[f"tags_{percent}_draws_10"] = *share, "0.1"
            found[f"boxes_{percent}"] = *share, "1"
            found[f"sparse_{percent}"] = *share, "0.8"
    for name in ("points", "counts"):
        found[name] = "DATASETS.HINTS", f"{folder}/{name}.jsonl"
    for rule in RULES:
        for percent in SUGGESTED:
            boxed = f"{folder}/{rule}_{percent}_{{seed}}.txt"
            found[f"suggested_{rule}_{percent}"] = "DATASETS.BOXED", boxed, "SOLVER.BOXED_SHARE", "0.5"
    return found


def students(data_set: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """The teacher of each student and its config overrides."""
    found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    weak = variants(data_set)
    for name in weak:
        found[f"student_{name}"] = (name,), ()
        found |= {f"student_{name}_{suffix}": ((name,), keys) for suffix, keys in OPTIONS.items()}
    for percent in PERCENT[:-1]:
        found[f"student_boxes_first_{percent}"] = (f"student_boxes_{percent}",), weak[f"tags_{percent}"]
    return found


def prepare(data_set: str, names: Sequence[str], overrides: Sequence[str]) -> None:
    """Write the points and counts, and the lists of suggested images of each seed that has a detector."""
    rules = [rule for rule in RULES if any(f"suggested_{rule}_" in name for name in names)]
    cfg, folder = load_cfg(ROOT / DATA[data_set], overrides), ROOT / f"runs/few_boxes_{data_set}"
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    folder.mkdir(parents=True, exist_ok=True)
    write_hints(dataset, folder)
    trained = sorted(ROOT.glob(f"runs/methods_few_boxes_{data_set}/tags_[0-9]/model_final.pt"))

    def suggest(run: Path, rule: str) -> None:
        seed = run.name.removeprefix("tags_")
        output, most = folder / f"{rule}_{seed}", round(max(SUGGESTED) * len(dataset) / 100)
        if not (output / "images.txt").exists():
            command = ["suggest", DATA[data_set], "-n", str(most), "--by", rule, "--output", str(output)]
            command += ["--format", "coco", *overrides, "OUTPUT_DIR", str(run)]
            subprocess.run([sys.executable, "-m", "detector", *command], cwd=ROOT, check=True)
        lines = (output / "images.txt").read_text().splitlines()
        for percent in SUGGESTED:  # the best come first
            best = lines[: max(1, round(percent * len(dataset) / 100))]
            (folder / f"{rule}_{percent}_{seed}.txt").write_text("\n".join(best) + "\n")

    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: suggest(pair[0].parent, pair[1]), product(trained, rules)))


def write_hints(dataset: AnnotatedImages, folder: Path) -> None:
    """Write points.jsonl, the centers of all clear objects, and counts.jsonl, their numbers."""
    points, counts = [], []
    for index, image_id in enumerate(dataset.image_ids):
        truth = dataset.annotation(index)
        assert truth is not None
        clear = ~(truth.difficult | truth.crowd)
        centers = (truth.boxes[clear, :2] + truth.boxes[clear, 2:]) / 2  # (G, 2)
        names = [dataset.class_names[label] for label in truth.labels[clear].tolist()]
        marked = [{"label": name, "point": xy} for name, xy in zip(names, centers.tolist(), strict=True)]
        points.append({"file": image_id, "points": marked})
        counts.append({"file": image_id, "counts": Counter(names)})
    for name, rows in {"points": points, "counts": counts}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    data_set = take_data_set()
    config, prepare_set = DATA[data_set], partial(prepare, data_set)
    compare(f"few_boxes_{data_set}", config, variants(data_set), students(data_set), prepare_set)
