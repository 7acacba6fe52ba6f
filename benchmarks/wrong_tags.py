"""Wrong tags: what they cost, what training that doubts tags saves, and how many of them are found.

    python benchmarks/wrong_tags.py toybox [--seeds 3] [--jobs 1] [--resume] [--only NAME] [KEY VALUE ...]

The first argument is a data set of benchmarks/few_boxes.py. Of P % of the tags,

* "drop_P": the tag is lost.
* "swap_P": it is replaced by the tag of the similar class, or of any other where the image has that.
* "flip_P": half of them are lost, and as many are added to images that do not show the class.

"clean_0" has all tags as they are. "..._told" trains with DATASETS.MISSING_TAGS and FALSE_TAGS as they are;
"..._10" with 0.1 and 0.01, "..._30" with 0.3 and 0.03, whatever the tags are.
"student_..." is the student of the detector of that name.

After the trainings the scores of the training images are written, with the tags and the truth, to
runs/wrong_tags_DATA/scores: "seen" by the detector itself; "frozen_S" by detectors that learned S steps from
the other two thirds of the images, on its backbone; "doubtful_S" the same with MISSING_TAGS 0.3 and
FALSE_TAGS 0.03; "whole_S" with a backbone of their own. --rank prints how many of the doubted tags are wrong,
and writes benchmarks/results/wrong_tags_DATA.json: of `detector check --tags`, and, where the package
cleanlab is installed, of its find_label_issues for each class and of its ranking by normalized margins.

    python benchmarks/wrong_tags.py toybox --score-all JOBS seen,frozen_500 drop_40,swap_10
    python benchmarks/wrong_tags.py toybox --rank
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from itertools import cycle
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
from few_boxes import DATA, take_data_set
from measure import commit
from methods import ROOT, compare

from detector.commands.check_tags import trained_backbone
from detector.config import load_cfg
from detector.data.build import build_dataset, build_training_set
from detector.data.datasets.annotated import AnnotatedImages
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.evaluation.wrong_tags import find_wrong_tags
from detector.labeling.tag_scores import score_by_folds, score_images
from detector.modeling.build import build_model
from detector.utils.distributed import find_device
from detector.utils.reproducibility import package_version

SHARES = (5, 10, 20, 40)
KINDS = ("drop", "swap", "flip")
SIMILAR = {  # a class and the one that its tag is swapped for
    "toybox": {"bird": "fish", "fish": "bird", "car": "house", "house": "car", "flower": "robot"},
    "photos": {"apple": "orange", "orange": "apple", "kangaroo": "raccoon", "raccoon": "kangaroo"},
    "doom": {"imp": "zombieman", "zombieman": "imp", "medikit": "barrel", "demon": "revenant"},
}
TAGS_TO_OTHERS = {"toybox": 0.4, "photos": 0.28, "doom": 0.5}  # tags for each pair of image and other class
FOLDS = 3


def corrupt(
    truth: np.ndarray, names: Sequence[str], kind: str, percent: int, seed: int, similar: dict[str, str]
) -> np.ndarray:
    """The tags (N, C) bool of which `percent` % are wrong."""
    rng, tags = np.random.default_rng([seed, percent, KINDS.index(kind)]), truth.copy()
    shown = rng.permutation(np.argwhere(truth))
    count = round(len(shown) * percent / 100)
    if kind == "flip":
        added = rng.permutation(np.argwhere(~truth))[: count - count // 2]
        tags[added[:, 0], added[:, 1]] = True
        count //= 2
    for image, label in shown[:count]:
        tags[image, label] = False
        if kind == "swap":
            other = names.index(similar.get(names[label], names[label]))
            free = np.flatnonzero(~truth[image] & ~tags[image])
            if len(free):
                tags[image, other if other in free else rng.choice(free)] = True
    return tags


def write_tables(data_set: str, seeds: int, overrides: Sequence[str]) -> None:
    """Write links to the images and the tables of all variants, unless they are there."""
    root = folder_of(data_set)
    if root.exists():
        return
    root.mkdir(parents=True)
    cfg = load_cfg(ROOT / DATA[data_set], overrides)
    names = list(cfg.datasets.classes)
    for split in (cfg.datasets.train_split, cfg.datasets.test_split):
        dataset = build_dataset(cfg, split)
        for index in range(len(dataset)):
            (root / dataset.image_path(index).name).symlink_to(dataset.image_path(index).resolve())
        if split == cfg.datasets.test_split:
            write_rows(root / "test.jsonl", dataset, None)
            continue
        truth = dataset.all_labels()
        for seed in range(seeds):
            write_rows(root / f"clean_0_{seed}.jsonl", dataset, truth)
            for kind in KINDS:
                for share in SHARES:
                    tags = corrupt(truth, names, kind, share, seed, SIMILAR.get(data_set, {}))
                    write_rows(root / f"{kind}_{share}_{seed}.jsonl", dataset, tags)


def write_rows(path: Path, dataset: AnnotatedImages, tags: np.ndarray | None) -> None:
    """A table of tags, or of ground-truth boxes where there are none."""
    rows, names = [], dataset.class_names
    for index in range(len(dataset)):
        row: dict = {"file": dataset.image_path(index).name}
        if tags is not None:
            row["labels"] = [names[label] for label in np.flatnonzero(tags[index])]
        else:
            truth = dataset.annotation(index)
            assert truth is not None
            pairs = zip(truth.labels.tolist(), truth.boxes.tolist(), strict=True)
            row["boxes"] = [{"label": names[label], "box": box} for label, box in pairs]
        rows.append(json.dumps(row))
    path.write_text("\n".join(rows) + "\n")


def folder_of(data_set: str) -> Path:
    return ROOT / f"runs/wrong_tags_{data_set}/data"


def variants(data_set: str) -> dict[str, tuple[str, ...]]:
    """The config overrides of each variant."""
    keys = ("DATASETS.FORMAT", "image_labels", "DATASETS.ROOT", str(folder_of(data_set)))
    keys = (*keys, "DATASETS.TEST_SPLIT", "test", "DATASETS.TRAIN_SPLIT")
    names = ["clean_0", *(f"{kind}_{share}" for kind in KINDS for share in SHARES)]
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        found[name] = *keys, f"{name}_{{seed}}"
        kind, _, share = name.partition("_")
        missing, false = told(kind, int(share) / 100, data_set)
        rates = {"told": (missing, false), "10": (0.1, 0.01), "30": (0.3, 0.03)}
        for rule, (missing, false) in rates.items():
            words = ("DATASETS.MISSING_TAGS", f"{missing:.3f}", "DATASETS.FALSE_TAGS", f"{false:.3f}")
            found[f"{name}_{rule}"] = *found[name], *words
    return found


def told(kind: str, share: float, data_set: str) -> tuple[float, float]:
    """MISSING_TAGS and FALSE_TAGS of a variant."""
    if kind == "flip":
        share /= 2
    return share, 0.0 if kind in ("drop", "clean") else share * TAGS_TO_OTHERS[data_set]


def students(data_set: str) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    return {f"student_{name}": ((name,), ()) for name in variants(data_set)}


def write_scores(data_set: str, run: Path, how: str) -> None:
    """The scores of the training images of a run, with their tags and the truth, as an npz file."""
    kind, _, steps = how.partition("_")
    words = ["DATASETS.MISSING_TAGS", "0.3", "DATASETS.FALSE_TAGS", "0.03"] if kind == "doubtful" else []
    cfg = load_cfg(run / "config.yaml", words)
    training_set, device = build_training_set(cfg), find_device(cfg.device)
    checkpoint = load_checkpoint(run / "model_final.pt")
    if kind == "seen":
        model = build_model(cfg)
        model.load_state_dict(checkpoint["model"])
        every = range(len(training_set.dataset))
        scores = score_images(cfg, model.to(device), training_set, every, Precision(cfg.precision, device))
    else:
        weights = trained_backbone(cfg, run / "model_final.pt")
        scores = score_by_folds(
            *(cfg, training_set, device),
            folds=FOLDS,
            steps=int(steps),
            backbone=None if kind == "whole" else weights,
        )
    seed = cfg.datasets.train_split.rpartition("_")[2]
    true = build_dataset(
        load_cfg(run / "config.yaml", ["DATASETS.TRAIN_SPLIT", f"clean_0_{seed}"]), f"clean_0_{seed}"
    )
    path = folder_of(data_set).with_name("scores") / f"{run.name}_{how}.npz"
    path.parent.mkdir(exist_ok=True)
    tags, truth = training_set.labels(), true.all_labels()
    np.savez_compressed(path, scores=scores.heads.numpy(), tags=tags, truth=truth)


def score_all(data_set: str, jobs: int, hows: Sequence[str], only: Sequence[str]) -> None:
    """Score the training images of all weak detectors that are there."""
    runs = sorted((ROOT / f"runs/methods_wrong_tags_{data_set}").glob("*/model_final.pt"))
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    free: SimpleQueue[str] = SimpleQueue()
    for _, gpu in zip(range(jobs), cycle(gpus.split(",")), strict=False):
        free.put(gpu)

    def one(job: tuple[Path, str]) -> None:
        run, how = job
        path = folder_of(data_set).with_name("scores") / f"{run.name}_{how}.npz"
        if path.exists():
            return
        gpu = free.get()
        try:
            words = [__file__, data_set, "--score", str(run), how]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            done = subprocess.run(
                [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, env=environment
            )
            print(path.name, "written" if done.returncode == 0 else done.stderr[-800:], flush=True)
        finally:
            free.put(gpu)

    chosen = [path.parent for path in runs if not only or path.parent.name.rpartition("_")[0] in only]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, [(run, how) for how in hows for run in chosen]))


def rank(path: Path) -> dict:
    """How many doubted tags are wrong, in percent, of those listed and at the number of wrong ones."""
    file = np.load(path)
    scores, tags, truth = file["scores"].astype(np.float64), file["tags"], file["truth"]
    scores = scores.mean(axis=1) if scores.ndim == 3 else scores  # of the heads
    wrong, found = tags != truth, find_wrong_tags(scores, tags)
    count = int(wrong.sum())

    def precision(suspicion: np.ndarray) -> float:
        order = np.argsort(-suspicion, axis=None, kind="stable")[:count]
        return round(100 * float(wrong.ravel()[order].mean()), 1)

    pairs = found.suspects()
    row = {
        "scores": path.stem,
        "wrong": count,
        "precision": precision(found.probability),
        "listed": len(pairs),
        "listed_precision": round(100 * float(np.mean([wrong[pair] for pair in pairs])), 1),
        "expected_precision": round(100 * float(np.mean([found.probability[pair] for pair in pairs])), 1),
    }
    with suppress(ImportError):
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        listed, margins = np.zeros_like(wrong), np.zeros(wrong.shape)
        for label in range(tags.shape[1]):
            both = np.stack([1 - scores[:, label], scores[:, label]], axis=1)
            given = tags[:, label].astype(int)
            listed[:, label] = find_label_issues(given, both)
            options = {"method": "normalized_margin", "adjust_pred_probs": True}
            margins[:, label] = -get_label_quality_scores(given, both, **options)
        row |= {
            "cleanlab_listed": int(listed.sum()),
            "cleanlab_listed_precision": round(100 * float(wrong[listed].mean()), 1),
            "cleanlab_margin_precision": precision(margins),
        }
    return row


def rank_all(data_set: str) -> None:
    """Print and write the results of all files of scores."""
    rows = [rank(path) for path in sorted(folder_of(data_set).with_name("scores").glob("*.npz"))]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    path = ROOT / f"benchmarks/results/wrong_tags_{data_set}.json"
    content = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "packages": {name: package_version(name) for name in ("torch", "numpy", "cleanlab")},
        "commit": commit(),
        "rows": rows,
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    data_set = take_data_set()
    if sys.argv[1:2] == ["--rank"]:
        rank_all(data_set)
    elif sys.argv[1:2] == ["--score"]:
        write_scores(data_set, Path(sys.argv[2]), sys.argv[3])
    elif sys.argv[1:2] == ["--score-all"]:  # JOBS HOW,HOW NAME,NAME
        jobs, hows, names = sys.argv[2:5]
        score_all(data_set, int(jobs), hows.split(","), names.split(",") if names else [])
    else:
        prepare = partial(_prepare, data_set)
        compare(f"wrong_tags_{data_set}", DATA[data_set], variants(data_set), students(data_set), prepare)


def _prepare(data_set: str, names: Sequence[str], overrides: Sequence[str]) -> None:
    write_tables(data_set, 3, overrides)


if __name__ == "__main__":
    main()
