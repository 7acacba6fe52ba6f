"""Four recipes on several data sets, and what image labels alone say of each run.

    python benchmarks/recipes.py peopleart:config photos:heads:0,1 --jobs 8 [--keys KEY VALUE ...]

Each word is DATA_SET:NAME, three seeds, or DATA_SET:NAME:SEED,SEED. "config" is MIST as
configs/own_mist_lite0.yaml has it, "heads" with a background class in the MIL head and an image head, "rates"
with the rates of the circuit boards, "rates_heads" with both. "..._full" has the ground-truth boxes of all
images, "..._10" of a tenth; "..._6000" makes 6,000 steps. Each is a weak detector and the Faster R-CNN that
learns from it, "student_NAME"; "..._three" is the student of three seeds alone. "fold_..." is a weak detector
of three quarters of the training images, tested on the others; "..._500" makes 500 steps. With each student
come the figures of benchmarks/label_free.py. The data sets are folders in datasets/ in the layout of VOC;
the notes in the results files say where cards and steel come from.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import cycle
from pathlib import Path
from queue import SimpleQueue

import torch
from methods import ROOT
from one_class import BOTH
from steps import FULL

from detector.config import load_cfg
from detector.data.datasets.voc_writer import write_split

OWN = "configs/own_mist_lite0.yaml"
CARDS = "['nine','ten','jack','queen','king','ace']"
STEEL = "['crazing','inclusion','patches','pitted_surface','rolled-in_scale','scratches']"
TOYS = "['bird','car','fish','flower','house','robot']"
SLOW = ("SOLVER.BASE_LR", "1e-4", "SOLVER.BACKBONE_LR_FACTOR", "0.2", "SOLVER.MAX_ITER", "1500")
RATES = ("SOLVER.BASE_LR", "2e-4", "SOLVER.BACKBONE_LR_FACTOR", "1", "SOLVER.MAX_ITER", "3000")
LONG = ("SOLVER.MAX_ITER", "6000")
TENTH = ("DATASETS.BOXED_SHARE", "0.1", "SOLVER.BOXED_SHARE", "0.5")
FOLD = ("DATASETS.TRAIN_SPLIT", "fold_train", "DATASETS.TEST_SPLIT", "fold_val")
FOLD = (*FOLD, "INPUT.TEST_SIZES", "(400,)", "INPUT.TEST_FLIP", "False")
RECIPES: dict[str, tuple[str, ...]] = {
    "config": SLOW,
    "heads": (*SLOW, *BOTH),
    "rates": RATES,
    "rates_heads": (*RATES, *BOTH),
    "config_6000": (*SLOW, *LONG),
    "rates_heads_6000": (*RATES, *BOTH, *LONG),
    "rates_heads_10": (*RATES, *BOTH, *TENTH),
    "config_full": (*SLOW, *FULL),
    "rates_heads_full": (*RATES, *BOTH, *FULL),
    "fold_config": (*SLOW, *FOLD),
    "fold_config_500": (*SLOW, *FOLD, "SOLVER.MAX_ITER", "500"),
    "fold_rates_heads_500": (*RATES, *BOTH, *FOLD, "SOLVER.MAX_ITER", "500"),
}
THREE = ("config_three", "rates_heads_three")


def voc(name: str, classes: str, train: str = "train", test: str = "val") -> tuple[str, ...]:
    """The config overrides of a data set in datasets/NAME, in the layout of VOC."""
    root = f"datasets/{name}"
    keys = ("DATASETS.FORMAT", "voc", "DATASETS.ROOT", root, "DATASETS.PROPOSALS", f"{root}/proposals.npz")
    return *keys, "DATASETS.CLASSES", classes, "DATASETS.TRAIN_SPLIT", train, "DATASETS.TEST_SPLIT", test


BOARDS = ("PROPOSALS.MODE", "corners", "PROPOSALS.SIDES", "(28.0,56.0)", "INPUT.TRAIN_SIZES", "(480,640)")
BOARDS = (*BOARDS, "INPUT.TEST_SIZES", "(640,)", "SELF_TRAIN.SIZES", "(480,640)", "SELF_TRAIN.MOSAIC", "0")
FAULTS = "['open','short','mousebite','spur','copper','pin-hole']"
DATA = {
    "peopleart": voc("peopleart", "['person']", "trainval", "test"),
    "photos": voc("photos", "['apple','banana','kangaroo','orange','raccoon']"),
    "pcb": (*voc("pcb", FAULTS), *BOARDS),
    "toybox": (
        *voc("toybox", TOYS, "trainval", "test"),
        "PROPOSALS.MODE",
        "fast",
        "PROPOSALS.LONGEST_SIDE",
        "160",
    ),
    "cards": voc("cards", CARDS),
    "steel": voc("steel", STEEL),
}
SOME, MOST = "some", 300  # training images for the CorLoc of weak detectors where there are thousands


def prepare(data_set: str) -> None:
    """Write the lists of images that are no splits of the data set, and its proposals."""
    cfg = load_cfg(OWN, DATA[data_set])
    lists = Path(cfg.datasets.root) / "ImageSets/Main"
    ids = (lists / f"{cfg.datasets.train_split}.txt").read_text().splitlines()
    parts = {"fold_train": [i for n, i in enumerate(ids) if n % 4], "fold_val": ids[::4], SOME: ids[:MOST]}
    for name, part in parts.items():
        if not (lists / f"{name}.txt").exists():
            write_split(Path(cfg.datasets.root), name, part)
    if not Path(cfg.datasets.proposals).exists():
        detector("propose", DATA[data_set], "")


def detector(command: str, keys: Sequence[str], gpu: str, *options: str) -> None:
    python(["-m", "detector", command, OWN, *options, *keys], gpu)


def python(words: Sequence[str], gpu: str) -> str:
    """What another Python prints, on one GPU.

    Raises:
        RuntimeError: it failed; with the end of what it wrote.
    """
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stderr[-1500:]}")
    return done.stdout


def weak_run(data_set: str, name: str, seed: int, overrides: Sequence[str], gpu: str) -> dict:
    """Train and test a weak detector."""
    folder = run_folder(data_set, name, seed)
    keys = [*DATA[data_set], *RECIPES[name], *overrides, "SEED", str(seed), "OUTPUT_DIR", str(folder)]
    detector("train", keys, gpu)
    few = ("DATASETS.TRAIN_SPLIT", SOME) if data_set == "peopleart" else ()
    detector("test", [*keys, *few], gpu)
    return record(tested(folder), folder, keys)


def student_run(data_set: str, name: str, seed: int, overrides: Sequence[str], gpu: str) -> dict:
    """Train and test the student of a weak detector, or of those of three seeds, and add its figures."""
    weak = name.removesuffix("_three")
    runs = [run_folder(data_set, weak, each) for each in ((seed,) if weak == name else range(3))]
    folder = run_folder(data_set, f"student_{name}", seed)
    keys = [*DATA[data_set], *RECIPES[weak], *overrides, "SEED", str(seed), "OUTPUT_DIR", str(folder)]
    weights = [word for run in runs for word in ("--weights", str(run / "model_final.pt"))]
    detector("self-train", keys, gpu, *weights)
    student = folder / "self_train"
    script = str(ROOT / "benchmarks/label_free.py")
    text = python([script, str(runs[0]), str(tested(runs[0])), str(student)], gpu)
    return record(student, student, keys) | {"label_free": json.loads(text.splitlines()[-1])}


def run_folder(data_set: str, name: str, seed: int) -> Path:
    return Path(f"runs/recipes_{data_set}/{name}_{seed}")


def tested(folder: Path) -> Path:
    """Where the test of a weak detector wrote."""
    return next(path.parent for path in folder.rglob("metrics.json"))


def record(test: Path, run: Path, keys: Sequence[str]) -> dict:
    metrics = json.loads((test / "metrics.json").read_text())
    made_by = json.loads((run / "run.json").read_text())
    about = {"machine": made_by["device_name"], "overrides": " ".join(keys), "packages": made_by["packages"]}
    return metrics | about


class Results:
    """The results files, written again after each run."""

    def __init__(self, commit: str) -> None:
        self.commit, self.lock = commit, threading.Lock()

    def add(self, data_set: str, name: str, run: dict, seed: int) -> None:
        path = ROOT / f"benchmarks/results/methods_recipes_{data_set}.json"
        with self.lock:
            content = json.loads(path.read_text()) if path.exists() else {"methods": {}}
            methods = content.pop("methods")
            packages = run.pop("packages")
            runs = [each for each in methods.get(name, []) if each["seed"] != seed] + [run | {"seed": seed}]
            methods[name] = sorted(runs, key=lambda each: each["seed"])
            content |= {
                "date": datetime.now(timezone.utc).date().isoformat(),
                "config": OWN,
                "machine": run["machine"],
                "packages": packages,
                "commit": self.commit,
                "methods": methods,
            }
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="DATA_SET:NAME[:SEED,SEED]")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs, shared among all GPUs")
    parser.add_argument("--commit", default="")
    parser.add_argument("--keys", nargs="*", default=[], metavar="KEY VALUE", help="config overrides")
    options = parser.parse_args()
    jobs = []
    for word in options.runs:
        data_set, name, *seeds = word.split(":")
        jobs += [(data_set, name, int(seed)) for seed in (seeds[0] if seeds else "0,1,2").split(",")]
    for data_set in dict.fromkeys(data_set for data_set, *_ in jobs):
        prepare(data_set)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    free_gpus: SimpleQueue[str] = SimpleQueue()  # one entry per parallel run
    for _, gpu in zip(range(options.jobs), cycle(gpus.split(",")), strict=False):
        free_gpus.put(gpu)
    results = Results(options.commit)

    def chain(job: tuple[str, str, int]) -> None:
        data_set, name, seed = job
        gpu, begin = free_gpus.get(), time.time()
        try:
            if name not in THREE:
                results.add(data_set, name, weak := weak_run(data_set, name, seed, options.keys, gpu), seed)
                print(
                    f"{time.time() - begin:4.0f} s {job}: {weak['mAP50']:.1f}, {weak['image_mAP']:.1f}",
                    flush=True,
                )
            if not name.startswith("fold"):
                student = student_run(data_set, name, seed, options.keys, gpu)
                results.add(data_set, f"student_{name}", student, seed)
                print(f"{time.time() - begin:4.0f} s {job}: student {student['mAP50']:.1f}", flush=True)
        except Exception:
            print(f"{job} failed\n{traceback.format_exc()}", flush=True)
        finally:
            free_gpus.put(gpu)

    with ThreadPoolExecutor(options.jobs) as pool:
        for last in (False, True):  # students of three seeds need the weak detectors of the others
            list(pool.map(chain, [job for job in jobs if (job[1] in THREE) == last]))


if __name__ == "__main__":
    main()
