"""Kills a training run with SIGKILL at 30 random times, resumes it, and compares the final weights.

python benchmarks/bench_resume.py --device cpu [--kills 30]

The run is `detector train` with PCL on a small Toybox, with all random augmentations and dropouts enabled.
It writes a checkpoint every second step, so that some kills interrupt a write. Every third kill comes during
startup, before the first step; the others within half a second after it. The final weights and momenta must
be bitwise equal to those of an uninterrupted run. `lost` counts the logged steps that had to be repeated.
"""

import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from measure import device_parser, report

from detector.commands.main import main as detector
from detector.data.datasets.voc import VOCDataset
from detector.data.proposals import save_proposals
from detector.data.toybox import CLASSES, draw_toybox
from detector.engine.checkpoint import load_checkpoint
from detector.engine.resuming import list_checkpoints

ROOT = Path(__file__).parents[1]
STEPS, PERIOD = 300, 2
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch._dynamo",
        "detector.engine.build",
        "detector.data.build",
        "detector.evaluation.summary",
        "measure",
    ]
)


@dataclass(frozen=True)
class Kill:
    """One row of the table; the last row is for the whole run."""

    kill: str
    after_seconds: float  # since the start of the process
    steps_made: int  # last logged step
    resumed_at: int  # newest checkpoint
    lost: int
    in_a_write: bool  # an unfinished checkpoint was left
    reached: bool


def write_data(root: Path) -> None:
    """Write a small Toybox with random proposals."""
    draw_toybox(root, train=16, test=1)
    generator, dataset = np.random.default_rng(0), VOCDataset(root, "trainval", CLASSES)
    sizes = [dataset.image_size(i) for i in range(len(dataset))]
    corners = [generator.uniform(size=(40, 2, 2)) * (width, height) for height, width in sizes]
    boxes = [np.concatenate([c.min(axis=1), c.max(axis=1)], axis=1) for c in corners]  # (40, 4) each
    save_proposals(root / "proposals.npz", dataset.image_ids, boxes, sizes)


def start(root: Path, folder: Path, device: str) -> BaseProcess:
    keys = {
        "OUTPUT_DIR": folder,
        "DEVICE": device,
        "DATASETS.ROOT": root,
        "DATASETS.PROPOSALS": root / "proposals.npz",
        "INPUT.TRAIN_SIZES": "(64,80)",
        "MODEL.BOX_FEATURES.WIDTHS": "(32,32)",
        "MODEL.DROP_BLOCK.ENABLED": "True",
        "MODEL.REGRESSION.ENABLED": "True",
        "SOLVER.IMAGES_PER_BATCH": 1,
        "SOLVER.MAX_ITER": STEPS,
        "SOLVER.CHECKPOINT_PERIOD": PERIOD,
        "SOLVER.LOG_PERIOD": 1,
    }
    words = [str(word) for pair in keys.items() for word in pair]
    config = str(ROOT / "configs" / "toybox_pcl.yaml")
    process = CONTEXT.Process(target=train, args=(["--config-file", config, "--resume", *words],))
    process.start()
    return process


def train(words: list[str]) -> None:
    """Run `detector train` without console output."""
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere), redirect_stdout(nowhere):
        sys.exit(detector(["train", *words]))


def steps_logged(folder: Path, position: int = 0) -> int:
    """The last step in the log from `position` on, or 0."""
    log = folder / "log.txt"
    found = re.findall(r"step (\d+)/", log.read_text()[position:]) if log.exists() else []
    return int(found[-1]) if found else 0


def wait_for_step(process: BaseProcess, folder: Path) -> float:
    """Seconds until a newly started process has logged a step."""
    began, log = time.perf_counter(), folder / "log.txt"
    position = len(log.read_text()) if log.exists() else 0
    while steps_logged(folder, position) == 0:
        if process.exitcode is not None:
            raise RuntimeError(
                f"the run finished before it was killed (status {process.exitcode}); increase STEPS"
            )
        time.sleep(0.02)
    return time.perf_counter() - began


def kill_and_resume(root: Path, folder: Path, device: str, kills: int, start_seconds: float) -> list[Kill]:
    """Start and kill the run `kills` times, then let it finish."""
    draw, rows = random.Random(0), []
    process = start(root, folder, device)
    for number in range(1, kills + 1):
        began = time.perf_counter()
        if number % 3 == 0:
            process.join(draw.uniform(0, start_seconds))
        else:
            wait_for_step(process, folder)
            process.join(draw.uniform(0, 0.5))
        process.kill()
        process.join()
        after = time.perf_counter() - began
        made, saved = steps_logged(folder), list_checkpoints(folder)
        in_a_write = any((folder / "checkpoints").glob(".*.tmp"))
        newest = int(saved[-1].stem) if saved else 0
        lost = made - newest
        rows.append(Kill(str(number), after, made, newest, lost, in_a_write, lost <= PERIOD))
        print(rows[-1], flush=True)
        process = start(root, folder, device)
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the last run ended with status {process.exitcode}")
    return rows


def equal_runs(one: Path, other: Path) -> bool:
    """Whether the weights and momenta of two finished runs are bitwise equal."""
    first, second = (load_checkpoint(list_checkpoints(folder)[-1]) for folder in (one, other))
    momenta, others = first["optimizer"]["state"], second["optimizer"]["state"]
    pairs = [(value, second["model"][name]) for name, value in first["model"].items()]
    pairs += [(value, others[key][name]) for key, slot in momenta.items() for name, value in slot.items()]
    return first["iteration"] == second["iteration"] and all(a.equal(b) for a, b in pairs)


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--kills", type=int, default=30)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root, whole, broken = Path(name, "toybox"), Path(name, "whole"), Path(name, "broken")
        write_data(root)
        start(root, whole, arguments.device).join()
        process = start(root, Path(name, "timed"), arguments.device)
        seconds = wait_for_step(process, Path(name, "timed"))
        process.kill()
        rows = kill_and_resume(root, broken, arguments.device, arguments.kills, seconds)
        resumed_from = re.findall(r"from \S*?(\d+)\.pt", (broken / "log.txt").read_text())
        # A process that was killed before it loaded a checkpoint has not logged its name.
        expected = {row.resumed_at for row in rows}
        equal = equal_runs(whole, broken) and {int(number) for number in resumed_from} <= expected
        lost, in_a_write = max(row.lost for row in rows), any(row.in_a_write for row in rows)
        rows.append(Kill("all: bitwise equal", 0.0, STEPS, STEPS, lost, in_a_write, equal))
        report("resume", torch.device(arguments.device), rows)


if __name__ == "__main__":
    main()
