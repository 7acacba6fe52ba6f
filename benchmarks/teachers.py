"""What a teacher adds to tags, and tags to a teacher: simulated teachers of several qualities and faults.

    python benchmarks/teachers.py toybox photos [--seeds 3] [--jobs 1] [--minutes 60] [--only NAME]
        [--output FOLDER] [--set KEY VALUE ...]

Data sets are those of few_boxes.py: toybox, photos, doom, pcb. Their ground-truth boxes are spoiled as
QUALITIES and PLACES of simulated_teachers.py say, and written as a teacher's file, so that its quality is
known. All results are of a Faster R-CNN, whose weak detector, PCL on tags alone, is the same for a seed:

* "tags": it learns what the weak detector finds.
* "both_QUALITY": and the boxes of the teacher, DATASETS.TEACHER.
* "alone_QUALITY": only those of the teacher, as if a person had reviewed them, complete.
* "joined_QUALITY": as "both", without trials, SELF_TRAIN.TRIAL_SHARE 0.

With toybox QUALITY is also that of a real teacher, PCL that has learned the boxes of half of the classes in
another Toybox: "half", which knows no other classes, and "agnostic", the same boxes without names, as SAM's.

The six trials of a run are made at once, each in a process of its own, if --jobs allows, or, where
processes take turns on a GPU, on the CPU beside it: --cpu-trials. Runs are made for one seed after the other,
in the order of NAMES; --minutes later all are stopped. Each that ends is added to FOLDER/teachers_SET.json
(default: benchmarks/results), with the trust and the image APs of its trials, and is not made again. Logs and
runs are in runs/teachers/SET.
"""

import argparse
import heapq
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from few_boxes import DATA
from measure import command_line
from methods import ROOT
from simulated_teachers import PLACES, QUALITIES, simulate, write_teacher

import detector
from detector.commands.self_train import self_train_and_test
from detector.config import load_cfg
from detector.data.build import build_dataset, build_proposals
from detector.data.toybox import CLASSES, draw_toybox
from detector.self_training.fuse import SOURCES
from detector.self_training.trials import HALVES, Trials

REAL = ("half", "agnostic")
FIRST = [f"{kind}_{quality}" for kind in ("both", "alone") for quality in (*QUALITIES, *PLACES, *REAL)]
FIRST.remove("alone_agnostic")  # it has no classes
NAMES = ["tags", *FIRST, *(f"joined_{quality}" for quality in QUALITIES)]
QUIET = ["DATASETS.WORKERS", "1", "THREADS", "1", "TEST.PICTURES", "0", "SOLVER.LOG_PERIOD", "100"]
QUIET += ["SOLVER.CHECKPOINT_PERIOD", "100000", "SOLVER.PICTURE_PERIOD", "0"]
KNOWN = CLASSES[::2]  # of the real teacher
RUNS = "runs/teachers"


class Slots:
    """At most so many processes at a time, each on one of the GPUs; the least number comes first."""

    def __init__(self, jobs: int, gpus: Sequence[str]) -> None:
        self.free = [gpu for _, gpu in zip(range(jobs), cycle(gpus), strict=False)]
        self.waiting: list[tuple[float, int]] = []
        self.changed, self.count = threading.Condition(), 0

    @contextmanager
    def take(self, number: float) -> Iterator[str]:
        """The index of a GPU, or ""."""
        with self.changed:
            self.count += 1
            own = number, self.count
            heapq.heappush(self.waiting, own)
            self.changed.wait_for(lambda: self.free and self.waiting[0] == own)
            heapq.heappop(self.waiting)
            gpu = self.free.pop(0)
            self.changed.notify_all()
        try:
            yield gpu
        finally:
            with self.changed:
                self.free.append(gpu)
                self.changed.notify_all()


class Runner:
    """The runs of a data set, which are threads that wait for processes."""

    def __init__(self, data_set: str, options: argparse.Namespace, slots: Slots, trial_slots: Slots) -> None:
        self.data_set, self.words = data_set, [*QUIET, *options.overrides]
        self.slots, self.trial_slots = slots, trial_slots
        self.folder, self.results = f"{RUNS}/{data_set}", options.output / f"teachers_{data_set}.json"
        self.small = load_cfg(ROOT / DATA[data_set], self.words).self_train.backbone == "small"
        self.ready = {
            (name, seed): threading.Event()
            for name in ("weak", "any", "real")
            for seed in range(options.first_seed, options.seeds)
        }
        self.writing, self.running = threading.Lock(), set[subprocess.Popen[bytes]]()
        self.stopped = False
        self.content: dict[str, Any] = {"methods": {}}
        if self.results.exists():
            self.content = json.loads(self.results.read_text())

    def start(self, name: str, gpu: str, *words: str) -> subprocess.Popen[bytes]:
        """A part of this script in a process of its own, with its output in a log."""
        if self.stopped:  # a slot is free because its process was stopped
            raise RuntimeError(f"{name} was not begun")
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        log = ROOT / self.folder / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, __file__, "--part", *words],
                cwd=ROOT,
                env=environment,
                stdout=file,
                stderr=file,
                start_new_session=True,  # it is stopped with its workers
            )
        self.running.add(process)
        return process

    def finish(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            raise RuntimeError(f"{name}: {(ROOT / self.folder / f'{name}.log').read_text()[-1500:]}")

    def weak(self, kind: str, seed: int) -> None:
        """Train "weak", the detector of all runs of a seed; "any", which is not used; or a "real" teacher."""
        name, keys = f"{kind}_{seed}", [*self.words]
        if kind == "any":
            keys += ["SOLVER.MAX_ITER", "1", "SOLVER.WARMUP_ITERS", "0"]
        if kind == "real":
            other = f"{RUNS}/other"
            keys += ["DATASETS.ROOT", other, "DATASETS.PROPOSALS", f"{other}/proposals.npz"]
            keys += ["DATASETS.CLASSES", str([*KNOWN]), "DATASETS.BOXED_SHARE", "1"]
        keys += ["SEED", str(seed), "OUTPUT_DIR", f"{self.folder}/{name}"]
        try:
            with self.slots.take(-1000) as gpu:
                self.finish(name, self.start(name, gpu, "train", DATA[self.data_set], *keys))
                if kind == "real":
                    self.finish(name, self.start(name, gpu, "find", self.data_set, str(seed), *self.words))
        finally:
            self.ready[kind, seed].set()  # after an error those that wait for it fail, too

    def student(self, kind: str, quality: str, seed: int, number: int) -> None:
        """Train and test a student, and add what it is worth to the results."""
        name = f"{kind}_{quality}_{seed}" if quality else f"{kind}_{seed}"
        weak = "any" if kind == "alone" and not self.small else "weak"
        self.ready[weak, seed].wait()
        if quality in REAL:
            self.ready["real", seed].wait()
        path = f"{self.folder}/{quality}_{seed}"
        keys = {
            "tags": [],
            "both": ["DATASETS.TEACHER", f"{path}.json"],
            "joined": ["DATASETS.TEACHER", f"{path}.json", "SELF_TRAIN.TRIAL_SHARE", "0"],
            "alone": ["DATASETS.BOXED", f"{path}_reviewed.json"],
        }[kind]
        words = DATA[self.data_set], f"{self.folder}/{weak}_{seed}/model_final.pt", *self.words, *keys
        began, task = time.time(), None
        with self.slots.take(number) as gpu:
            process = self.start(
                name, gpu, "student", *words, "SEED", str(seed), "OUTPUT_DIR", f"{self.folder}/{name}"
            )
            while process.poll() is None and task is None:
                time.sleep(0.5)
                run = ROOT / self.folder / name / "self_train"
                paths = (each / "trials/task.pkl" for each in (run, run / "round_1"))
                task = next((path for path in paths if path.exists()), None)
        if task is not None and process.poll() is None:
            trials = [(name, task, number, *trial) for trial in product(SOURCES, range(HALVES))]
            with ThreadPoolExecutor(len(trials)) as pool:
                list(pool.map(lambda trial: self.trial(*trial), trials))
            with self.slots.take(number - 1000):  # those that have begun end before others begin
                task.with_name("go").touch()
                self.finish(name, process)
        self.finish(name, process)
        self.add(f"{kind}_{quality}" if quality else kind, name, seed, round(time.time() - began))

    def trial(self, name: str, task: Path, number: int, source: str, half: int) -> None:
        with self.trial_slots.take(number - 500) as gpu:
            self.finish(name, self.start(name, gpu, "trial", str(task), source, str(half)))

    def add(self, method: str, name: str, seed: int, seconds: int) -> None:
        folder = ROOT / self.folder / name / "self_train"
        metrics = json.loads((folder / "metrics.json").read_text())
        made_by = json.loads((folder / "run.json").read_text())
        metrics |= {"seed": seed, "seconds": seconds, "commit": made_by["commit"]}
        for path in folder.rglob("teacher.json"):
            metrics["teacher"] = json.loads(path.read_text())
        with self.writing:
            rows = self.content["methods"].setdefault(method, [])
            rows[:] = sorted(
                [row for row in rows if row["seed"] != seed] + [metrics], key=lambda row: row["seed"]
            )
            self.content |= {
                "date": datetime.now(timezone.utc).date().isoformat(),
                "config": DATA[self.data_set],
                "overrides": " ".join(self.words),
                "machine": f"{made_by['device_name']}, {os.cpu_count()} CPU cores",
                "packages": made_by["packages"],
                "command": command_line(),
            }
            self.results.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.results.with_suffix(".tmp")
            temporary.write_text(json.dumps(self.content, indent=1) + "\n")
            os.replace(temporary, self.results)
        print(f"{self.folder}/{name}: mAP50 {metrics['mAP50']:.1f}, {seconds} s", flush=True)

    def done(self, method: str, seed: int) -> bool:
        return any(row["seed"] == seed for row in self.content["methods"].get(method, []))

    def stop(self) -> None:
        """End all processes; no other begins."""
        self.stopped = True
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def part(kind: str, *words: str) -> None:
    """What a process of :class:`Runner` does."""
    if kind == "train":
        detector.train(words[0], words[1:])
    if kind == "find":
        find(*words)
    if kind == "student":
        Trials.image_ap = made_by_others  # type: ignore[method-assign]
        self_train_and_test(words[0], words[2:], [words[1]], False)
    if kind == "trial":
        task, source, half = words
        folder, trials = Path(task).parent, pickle.loads(Path(task).read_bytes())
        if not torch.cuda.is_available():  # the student has a GPU, its trials have none
            trials = replace(trials, run=replace(trials.run, device=torch.device("cpu")))
        np.save(folder / f"{source}_{half}.npy", trials.image_ap(source, int(half)))


def made_by_others(trials: Trials, source: str, half: int) -> np.ndarray:
    """The image AP of a trial that another process makes; the first one asks for all."""
    task = trials.run.folder / "task.pkl"
    if not task.exists():
        task.with_suffix(".tmp").write_bytes(pickle.dumps(trials))
        task.with_suffix(".tmp").rename(task)
    while not task.with_name("go").exists():
        time.sleep(0.2)
    return np.load(trials.run.folder / f"{source}_{half}.npy")


def find(data_set: str, seed: str, *words: str) -> None:
    """Write what a real teacher finds in the training images, with and without the names of classes."""
    cfg, folder = load_cfg(ROOT / DATA[data_set], words), ROOT / RUNS / data_set
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    proposals = build_proposals(cfg.datasets, dataset)
    predictor = detector.load(folder / f"real_{seed}", score_threshold=0.1, model="weak")
    found: dict[str, list[dict[str, Any]]] = {}
    for index, image_id in enumerate(dataset.image_ids):
        boxes = predictor(dataset.image_path(index), proposals[image_id])
        rows = zip(boxes.names, boxes.boxes.tolist(), boxes.scores.tolist(), strict=True)
        found[image_id] = [{"label": name, "box": box, "score": score} for name, box, score in rows]
    write_teacher(folder / f"half_{seed}", dataset, found)
    unnamed = {
        key: [{"box": each["box"], "score": each["score"]} for each in rows] for key, rows in found.items()
    }
    (folder / f"agnostic_{seed}.json").write_text(json.dumps(unnamed))


def draw_other(root: Path, words: Sequence[str]) -> None:
    """The Toybox of real teachers, whose annotations have the classes that they know."""
    if (root / "proposals.npz").exists():
        return
    draw_toybox(
        root, seed=7, train=len(build_dataset(load_cfg(ROOT / DATA["toybox"], words), "trainval")), test=1
    )
    for path in (root / "Annotations").iterdir():
        tree = ElementTree.parse(path)
        for each in tree.getroot().findall("object"):
            if each.findtext("name") not in KNOWN:
                tree.getroot().remove(each)
        tree.write(path)
    command = ["propose", "--voc", str(root), "--mode", "fast", "--longest-side", "160"]
    command += ["--output", str(root / "proposals.npz")]
    subprocess.run([sys.executable, "-m", "detector", *command], cwd=ROOT, check=True)


def prepare(data_set: str, names: Sequence[str], seeds: Sequence[int], words: Sequence[str]) -> None:
    """Write the files of the simulated teachers, and draw the data of real ones."""
    cfg, folder = load_cfg(ROOT / DATA[data_set], words), ROOT / RUNS / data_set
    dataset = build_dataset(cfg, cfg.datasets.train_split)
    folder.mkdir(parents=True, exist_ok=True)
    for (quality, values), seed in product({**QUALITIES, **PLACES}.items(), seeds):
        write_teacher(folder / f"{quality}_{seed}", dataset, simulate(dataset, values, seed))
    if data_set == "toybox" and {name.partition("_")[2] for name in names} & {*REAL}:
        draw_other(ROOT / RUNS / "other", words)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data_sets", nargs="+", choices=DATA, metavar="SET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, metavar="N", help="of those below --seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time, shared among all GPUs")
    parser.add_argument("--cpu-trials", type=int, metavar="N", help="trials at a time, without a GPU")
    parser.add_argument("--minutes", type=float, default=1e6, help="all are stopped then")
    parser.add_argument("--only", action="append", choices=NAMES, metavar="NAME", help="may be repeated")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results", metavar="FOLDER")
    parser.add_argument("--set", dest="overrides", nargs="*", default=[], metavar="KEY VALUE")
    options = parser.parse_args()
    end = time.time() + 60 * options.minutes
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    slots, runners = Slots(options.jobs, gpus.split(",")), []
    trial_slots = Slots(options.cpu_trials, [""]) if options.cpu_trials else slots
    seeds = range(options.first_seed, options.seeds)
    threads: list[tuple[Any, ...]] = []
    number = 0
    for data_set in options.data_sets:
        names = options.only or [n for n in NAMES if data_set == "toybox" or n.partition("_")[2] not in REAL]
        prepare(data_set, names, seeds, options.overrides)
        runners.append((Runner(data_set, options, slots, trial_slots), names))
    for seed, (runner, names) in product(seeds, runners):
        wanted = [name for name in names if not runner.done(name, seed)]
        kinds = {
            "weak": True,
            "any": not runner.small,
            "real": any(name.partition("_")[2] in REAL for name in wanted),
        }
        threads += [(runner.weak, kind, seed) for kind, is_needed in kinds.items() if is_needed and wanted]
        for name in wanted:
            kind, _, quality = name.partition("_")
            number += 1
            threads.append((runner.student, kind, quality, seed, number))
    failed = []

    def run(call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:  # the others go on
            failed.append(error)
            if not runners[0][0].stopped:
                print(error, file=sys.stderr, flush=True)

    started = [threading.Thread(target=run, args=each, daemon=True) for each in threads]
    try:
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(max(0.0, end - time.time()))
    finally:  # Ctrl-C, too
        left, errors = sum(thread.is_alive() for thread in started), len(failed)
        for runner, _ in runners:
            runner.stop()
    print(f"{len(started) - left - errors} of {len(started)} ended, {errors} failed, {left} were stopped")
    return 1 if errors or left else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        part(*sys.argv[2:])
    else:
        status = main()
        sys.stdout.flush()
        os._exit(status)  # threads of runs that were stopped still wait
