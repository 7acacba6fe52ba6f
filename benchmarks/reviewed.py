"""Simulated reviews beside the boxes of all training images: AP of the detectors that learn from each.

    python benchmarks/reviewed.py toybox photos [--seeds 3] [--only NAME] [--set KEY VALUE ...]

The first arguments are data sets of few_boxes.py; photographs have the recipe of `detector init`. A scripted
annotator (review_rules.py) corrects boxes as `detector review` shows them, in its order. The first ones are
those of a Faster R-CNN that learned from tags alone, "tags".

* "once": until a tenth of all objects is drawn.
* "once_look": then the other images are looked at without drawing, where right boxes are accepted and false
  ones rejected.
* "twice": after three in a hundred a short student, "second", learns from them, without the steps of a
  teacher, and finds the boxes of the other images anew. Then on as "once".
* "twice_look": then as "once_look".

Students learn what was reviewed, and in other images what the student of their last review finds there;
"again_...": what a weak detector finds there that has learned from the review, too, as `detector train --to
detector` with DATASETS.BOXED does. "all" learns the ground-truth boxes of all images. Each is added to
benchmarks/results/reviewed_SET.json when it ends, and not made again. Runs are in runs/reviewed/SET.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from few_boxes import DATA
from measure import command_line
from methods import ROOT
from review_rules import Review, objects_of

from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.review.session import open_session
from detector.review.store import Store

CONFIGS = {**DATA, "photos": "configs/photos_mist_lite0.yaml"}
FIRST, DRAWN = 0.03, 0.1  # share of all objects that is drawn before "second" learns, and in all
REVIEWS = ("once", "once_look", "twice", "twice_look")
NAMES = ("tags", "all", "second", *REVIEWS, *(f"again_{name}" for name in REVIEWS))
QUIET = "DATASETS.WORKERS 1 THREADS 1 TEST.PICTURES 0 SOLVER.LOG_PERIOD 100 SOLVER.CHECKPOINT_PERIOD 100000"
QUIET += " SOLVER.PICTURE_PERIOD 0 SOLVER.AP_SHARE 0"


class Chain:
    """The runs of a data set and seed, each made when another needs it."""

    def __init__(self, data_set: str, seed: int, words: list[str]) -> None:
        self.data_set, self.seed = data_set, seed
        self.config, self.words = CONFIGS[data_set], [*QUIET.split(), *words, "SEED", str(seed)]
        self.folder = Path("runs/reviewed") / data_set
        self.results = ROOT / f"benchmarks/results/reviewed_{data_set}.json"
        self.is_small = load_cfg(ROOT / self.config, self.words).self_train.backbone == "small"

    def of(self, name: str) -> Path:
        return self.folder / f"{name}_{self.seed}"

    def detector(self, command: str, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "detector", command, self.config, *words], cwd=ROOT, check=True)

    def weak(self, name: str, *keys: str) -> Path:
        weights = self.of(name) / "model_final.pt"
        if not (ROOT / weights).exists():
            self.detector("train", *self.words, *keys, "OUTPUT_DIR", str(self.of(name)))
        return weights

    def student(self, name: str) -> Path:
        """Train a student with all that it needs, and add what it is worth to the results."""
        weights = self.of(name) / "self_train/model_final.pt"
        if (ROOT / weights).exists():
            return weights
        begin, keys = self._begin(name)
        words = [*self.words, *keys, "OUTPUT_DIR", str(self.of(name))]
        self.detector("self-train", "--weights", str(begin), *words)
        self._add(name)
        return weights

    def _begin(self, name: str) -> tuple[Path, tuple[str, ...]]:
        """The detector whose boxes a student learns, and its keys."""
        if name == "tags":
            return self.weak("tags"), ()
        if name == "all":  # a backbone of its own needs no weak detector
            boxed = ("DATASETS.BOXED_SHARE", "1")
            steps = () if self.is_small else ("SOLVER.MAX_ITER", "1", "SOLVER.WARMUP_ITERS", "0")
            return self.weak("all", *(boxed if self.is_small else steps)), boxed
        if name == "second":
            boxed = ("DATASETS.BOXED", str(self.review("first")))
            self._share_weak("second")
            return self.student("tags"), (*boxed, "SELF_TRAIN.TEACHER_STEPS", "0")
        review = name.removeprefix("again_")
        boxed = ("DATASETS.BOXED", str(self.review(review)))
        if review != name:
            return self.weak(name, *boxed), boxed
        return self.student("second" if review.startswith("twice") else "tags"), boxed

    def _share_weak(self, name: str) -> None:
        """Put the weak detector of tags beside a student: `detector review` takes their order from it."""
        (ROOT / self.of(name)).mkdir(parents=True, exist_ok=True)
        for file in ("model_final.pt", "config.yaml", "run.json"):
            shutil.copy(ROOT / self.of("tags") / file, ROOT / self.of(name))

    def review(self, name: str) -> Path:
        """The file of a review, from the root."""
        path = self.of(name).with_suffix(".sqlite")
        if (ROOT / path).exists():
            return path
        earlier = {"once": "first", "twice": "first", "once_look": "once", "twice_look": "twice"}.get(name)
        temporary = ROOT / path.with_name(f"making_{path.name}")
        for suffix in ("", "-wal", "-shm"):
            temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)
        if earlier:
            shutil.copy(ROOT / self.review(earlier), temporary)
        cfg = load_cfg(ROOT / self.config, self.words)
        dataset = build_dataset(cfg, cfg.datasets.train_split)
        if name in ("first", "twice"):
            finder = "tags" if name == "first" else "second"
            self.student(finder)
            words = [*self.words, "OUTPUT_DIR", str(ROOT / self.of(finder))]
            open_session(str(ROOT / self.config), words, file=temporary).store.close()
        store = Store(temporary, dataset.class_names)
        review = Review(store, objects_of(dataset))
        if name.endswith("look"):
            review.look()
        else:
            review.draw(FIRST if name == "first" else DRAWN)
        objects = sum(map(len, review.objects.values()))
        found = {"objects": objects, "drawn_in_all": review.drawn(), "actions": dict(review.actions)}
        self._write("reviews", name, found)
        store.close()
        temporary.rename(ROOT / path)
        return path

    def _add(self, name: str) -> None:
        folder = ROOT / self.of(name) / "self_train"
        metrics = json.loads((folder / "metrics.json").read_text())
        made_by = json.loads((folder / "run.json").read_text())
        self._write("methods", name, metrics | {"commit": made_by["commit"]}, made_by)
        print(f"{self.of(name)}: mAP50 {metrics['mAP50']:.1f}", flush=True)

    def _write(
        self, kind: str, name: str, row: dict[str, Any], made_by: dict[str, Any] | None = None
    ) -> None:
        content = json.loads(self.results.read_text()) if self.results.exists() else {}
        rows = content.setdefault(kind, {}).setdefault(name, [])
        rows[:] = [other for other in rows if other["seed"] != self.seed] + [{"seed": self.seed, **row}]
        rows.sort(key=lambda row: row["seed"])
        content |= {"date": datetime.now(timezone.utc).date().isoformat(), "command": command_line()}
        content |= {"config": self.config, "overrides": " ".join(self.words[:-2])}
        if made_by is not None:
            content |= {"machine": made_by["device_name"], "packages": made_by["packages"]}
        temporary = self.results.with_suffix(".tmp")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        os.replace(temporary, self.results)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data_sets", nargs="+", choices=CONFIGS, metavar="SET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help="may be repeated")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="KEY VALUE")
    options = parser.parse_args()
    for seed in range(options.seeds):
        for data_set in options.data_sets:
            chain = Chain(data_set, seed, options.overrides)
            for name in options.only or NAMES:
                chain.student(name)


if __name__ == "__main__":
    main()
