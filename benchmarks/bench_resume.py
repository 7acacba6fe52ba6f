"""Kills a training run 30 times at random moments by SIGKILL, resumes it each time, and compares the weights.

python benchmarks/bench_resume.py --device cpu [--kills 30]

The run is tools/train_net.py with PCL on Toybox at a small size and every random part on. It writes a
checkpoint every second step, so that some kills fall into a write. Of three kills one comes at any moment of
the start, before the first step; two come within half a second after it. The final weights and momenta must
equal those of a run that nobody killed, bit by bit. `lost` counts steps that had been logged and were made
again.
"""

import multiprocessing
import os
import random
import re
import runpy
import sys
import tempfile
import time
from contextlib import redirect_stderr
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch
from measure import device_parser, report

from detector.data.proposals import save_proposals
from detector.data.toybox import CLASSES, draw_toybox
from detector.data.voc import VOCDataset
from detector.engine.checkpoint import load_checkpoint
from detector.engine.resuming import list_checkpoints

ROOT = Path(__file__).parents[1]
STEPS, PERIOD = 300, 2
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch._dynamo", "detector.build", "detector.build_data", "detector.evaluation.report", "measure"]
)


@dataclass(frozen=True)
class Kill:
    """One line of the table; the last one is of the run as a whole."""

    kill: str
    after_seconds: float  # since the process was started
    steps_made: int  # that had been logged
    resumed_at: int  # by the next process
    lost: int
    in_a_write: bool  # was an unfinished checkpoint left?
    reached: bool


def write_data(root: Path) -> None:
    """A small Toybox with proposals at random."""
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
    """What the process does: the command, which keeps to its log file."""
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        sys.exit(runpy.run_path(str(ROOT / "tools" / "train_net.py"))["main"](words))


def steps_logged(folder: Path, position: int = 0) -> int:
    """The last step that the log names from `position` on; 0: none."""
    log = folder / "log.txt"
    found = re.findall(r"step (\d+)/", log.read_text()[position:]) if log.exists() else []
    return int(found[-1]) if found else 0


def wait_for_step(process: BaseProcess, folder: Path) -> float:
    """Seconds until the process, which has just been started, has logged a step."""
    began, log = time.perf_counter(), folder / "log.txt"
    position = len(log.read_text()) if log.exists() else 0
    while steps_logged(folder, position) == 0:
        if process.exitcode is not None:
            raise RuntimeError(f"the run ended by itself, with status {process.exitcode}: raise STEPS")
        time.sleep(0.02)
    return time.perf_counter() - began


def kill_and_resume(root: Path, folder: Path, device: str, kills: int, start_seconds: float) -> list[Kill]:
    """Start the run `kills` times and kill it, then let it end."""
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
    """Are the weights and the momenta of two finished runs equal, bit by bit?"""
    first, second = (load_checkpoint(list_checkpoints(folder)[-1]) for folder in (one, other))
    momenta, others = first["optimizer"]["state"], second["optimizer"]["state"]
    pairs = [(value, second["model"][name]) for name, value in first["model"].items()]
    pairs += [(value, others[key][name]) for key, slot in momenta.items() for name, value in slot.items()]
    return first["iteration"] == second["iteration"] and all(mine.equal(theirs) for mine, theirs in pairs)


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
        went_on = re.findall(r"going on from \S*?(\d+)\.pt", (broken / "log.txt").read_text())
        # A process that was killed before it came to its checkpoint has not said where it went on.
        expected = {row.resumed_at for row in rows}
        equal = equal_runs(whole, broken) and {int(number) for number in went_on} <= expected
        lost, in_a_write = max(row.lost for row in rows), any(row.in_a_write for row in rows)
        rows.append(Kill("all: equal to the bit", 0.0, STEPS, STEPS, lost, in_a_write, equal))
        report("resume", torch.device(arguments.device), rows)


if __name__ == "__main__":
    main()
