"""Trains and tests methods, variants and self-training with several seeds, and saves the metrics."""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import cycle
from pathlib import Path
from queue import SimpleQueue

import torch

FIGURES = ("mAP50", "mAP50_11point", "CorLoc", "train_seconds")
ROOT = Path(__file__).resolve().parent.parent

# Name of a variant -> config overrides, KEY VALUE KEY VALUE ...; "{seed}" in a value is the seed of the run
Variants = Mapping[str, Sequence[str]]
# Name of a self-training run -> its teachers, which are variants or other self-training runs, and config
# overrides beside those of the first. Teachers have the seed of the run; one that is named again, the next.
Students = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def methods(*names: str) -> Variants:
    """Variants that differ only in MODEL.METHOD."""
    return {name: ("MODEL.METHOD", name) for name in names}


def compare(
    name: str,
    config: str,
    variants: Variants | None = None,
    students: Students | None = None,
    prepare: Callable[[Sequence[str], Sequence[str]], None] | None = None,
) -> None:
    """Run each variant with each seed, as set on the command line; print and save the table.

    Args:
        name: determines the result file, benchmarks/results/methods_NAME.json, and the folder of the runs.
        config: config file of all runs.
        variants: default: WSDDN, OICR and PCL.
        students: self-training runs.
        prepare: called with the names of the runs and the config overrides, before the first run.
    """
    variants, students = variants or methods("wsddn", "oicr", "pcl"), students or {}
    all_names = [*variants, *students]
    parser = argparse.ArgumentParser(description=f"{', '.join(all_names)}: {config}, over several seeds")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs, shared among all GPUs")
    parser.add_argument(
        "--only", action="append", choices=all_names, help="run only this variant; may be repeated"
    )
    parser.add_argument("--resume", action="store_true", help="continue runs that were stopped")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="config overrides")
    options = parser.parse_intermixed_args()
    names = options.only or all_names
    if prepare is not None:
        prepare(names, options.overrides)
    folder = f"runs/methods_{name}"
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    free_gpus: SimpleQueue[str] = SimpleQueue()  # one entry per parallel run
    for _, gpu in zip(range(options.jobs), cycle(gpus.split(",")), strict=False):
        free_gpus.put(gpu)

    def one_run(run_name: str, seed: int) -> dict:
        teachers, keys = students.get(run_name, ((), ()))
        first = teachers[0] if teachers else run_name
        keys = [*variants.get(first, ()), *keys, *options.overrides]  # a student as teacher adds none
        seeds = [(seed + teachers[:i].count(each)) % options.seeds for i, each in enumerate(teachers)]
        inside = "self_train/" if first in students else ""
        pairs = zip(teachers, seeds, strict=True)
        weights = [f"{folder}/{each}_{number}/{inside}model_final.pt" for each, number in pairs]
        gpu = free_gpus.get()
        try:
            return run(f"{folder}/{run_name}_{seed}", config, keys, seed, weights, options.resume, gpu)
        finally:
            free_gpus.put(gpu)

    table_rows: dict[str, list[dict]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        later = {n for n, (teachers, _) in students.items() if teachers[0] in students}
        # In this order: a student needs its teacher's weights.
        for group in (variants, students.keys() - later, later):
            runs = [(n, seed) for n in names if n in group for seed in range(options.seeds)]
            for (run_name, _), figures in zip(runs, pool.map(lambda r: one_run(*r), runs), strict=True):
                table_rows.setdefault(run_name, []).append(figures)
    print(table(table_rows))
    path = ROOT / f"benchmarks/results/methods_{name}.json"
    # The variants of earlier calls stay; each run says with which overrides and at which commit it was made.
    earlier = json.loads(path.read_text())["methods"] if path.exists() else {}
    any_run = json.loads(next((ROOT / folder / f"{names[0]}_0").rglob("run.json")).read_text())
    content = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "config": config,
        "overrides": " ".join(options.overrides),
        "machine": any_run["device_name"],
        "packages": any_run["packages"],
        "commit": any_run["commit"],
        "methods": {**earlier, **table_rows},
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"written to {path.relative_to(ROOT)}")


def run(
    output: str,
    config: str,
    overrides: Sequence[str],
    seed: int,
    teachers: Sequence[str] = (),
    resume: bool = False,
    gpu: str = "",
) -> dict:
    """Make one run and return its metrics. The tools raise an error if the folder already contains a run.

    Args:
        teachers: checkpoints of weak detectors, for self-training; none: train a weak detector.
        resume: continue a run that was stopped; one that has been measured is not made again.
        gpu: index of the only GPU that the run sees; empty: none.
    """
    keys = [word.replace("{seed}", str(seed)) for word in overrides]
    keys += ["SEED", str(seed), "OUTPUT_DIR", output]
    measured = ROOT / output / ("self_train" if teachers else "") / "metrics.json"
    again = ["--resume"] if resume else []
    commands = [["train", *again], ["test"]]
    if teachers:
        commands = [["self-train", *(word for path in teachers for word in ("--weights", path)), *again]]
    if resume and measured.exists():
        commands = []
    for name, *options in commands:
        command = [sys.executable, "-m", "detector", name, config, *options, *keys]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    metrics = json.loads(measured.read_text())
    made_by = json.loads((measured.parent / "run.json").read_text())
    metrics |= {"commit": made_by["commit"], "machine": made_by["device_name"], "overrides": " ".join(keys)}
    print(f"{output}: mAP50 {metrics['mAP50']:.1f}, CorLoc {_number(metrics['CorLoc']):.1f}", flush=True)
    return metrics


def _number(metric: float | None) -> float:
    """nan for a metric that could not be measured: CorLoc needs boxes of training images."""
    return math.nan if metric is None else metric


def table(rows: Mapping[str, list[dict]]) -> str:
    """Format mean, minimum and maximum over the seeds."""
    width = 2 + max(map(len, rows))
    lines = [f"{'':{width}}" + "".join(f"{figure:>26}" for figure in FIGURES)]
    for name, runs in rows.items():
        cells = []
        for figure in FIGURES:
            values = [_number(r[figure]) for r in runs]
            cells.append(f"{statistics.mean(values):.1f} ({min(values):.1f} - {max(values):.1f})")
        lines.append(f"{name:{width}}" + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)
