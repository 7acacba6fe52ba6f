"""Times training in 1, 2, ... processes with one GPU each and a fixed batch size per process.

python benchmarks/bench_distributed.py --device cuda [KEY VALUE ...] [--processes 1 2]

The step is that of tools/train_net.py (detector.engine.loop: DistributedDataParallel, optimizer, log) with
configs/voc07_pcl_pytorch_vgg16.yaml on synthetic images of 688 x 917 pixels with 2,000 proposals each. They
are in memory, so reading is not timed. `linear` is the scaling efficiency; the target is 0.93. On the CPU a
small network is run on small images in processes that share the cores, as a test; no file is written.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch
from measure import device_parser, print_table, write_result

from detector.config import load_cfg
from detector.engine.build import build_optimizer, build_train_options
from detector.engine.loop import make_steps
from detector.engine.precision import Precision
from detector.engine.run_folder import start_run
from detector.modeling.build import build_criterion, build_model
from detector.structures import Batch
from detector.utils.distributed import find_device, is_main, process_group, rank, world_size

ROOT = Path(__file__).parents[1]
TARGET = 0.93
# By device: config, height and width of an image, proposals per image, warm-up steps, timed steps.
SETTINGS = {
    "cuda": ("configs/voc07_pcl_pytorch_vgg16.yaml", 688, 917, 2000, 15, 60),
    "cpu": ("configs/toybox_pcl.yaml", 96, 128, 100, 2, 8),
}


@dataclass(frozen=True)
class Throughput:
    """One row of the table."""

    processes: int
    images_per_batch: int
    keys: str
    images_per_second: float
    step_ms: float
    linear: float  # images/s relative to `processes` times that of one process
    target: float
    reached: bool


class Finished(Exception):
    """Raised when all timed steps are done."""


def make_batch(size: int, height: int, width: int, proposals: int, classes: int, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(size * proposals, 2, 2, generator=generator) * torch.tensor([width, height])
    index = torch.arange(size).repeat_interleave(proposals)[:, None]  # (sum R, 1)
    labels = torch.zeros(size, classes)
    labels[:, :2] = 1
    return Batch(
        images=torch.randint(256, (size, 3, height, width), generator=generator, dtype=torch.uint8),
        rois=torch.cat([index, corners.amin(dim=1), corners.amax(dim=1)], dim=1),
        labels=labels,
        counts=torch.full((size,), proposals),
        image_ids=tuple(f"image {seed} {i}" for i in range(size)),
    )


def timed(batches: Sequence[Batch], warm_up: int, steps: int, device: torch.device) -> Iterator[Batch]:
    """Cycle through the batches; raise Finished with the elapsed seconds after the timed steps."""
    began = 0.0
    for number in count():
        if number in (warm_up, warm_up + steps):
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number > warm_up:
                raise Finished(time.perf_counter() - began)
            began = time.perf_counter()
        yield batches[number % len(batches)]


def work(device_type: str, words: Sequence[str]) -> None:
    """The work of each process; the main process prints its results as the last line."""
    config, height, width, proposals, warm_up, steps = SETTINGS[device_type]
    keys = ["DEVICE", device_type, "SOLVER.LOG_PERIOD", "1000"]
    keys += ["SOLVER.IMAGES_PER_BATCH", "2", "SOLVER.IMAGES_PER_STEP", "0"] if device_type == "cuda" else []
    cfg = load_cfg(ROOT / config, [*keys, *words])
    with process_group(find_device(cfg.device), 120), tempfile.TemporaryDirectory() as folder:
        device = start_run(cfg, Path(folder))
        model = build_model(cfg).to(device)
        size = cfg.solver.images_per_batch
        shape = (size, height, width, proposals, len(cfg.datasets.classes))
        batches = [make_batch(*shape, seed=10 * rank() + i) for i in range(4)]
        if device.type == "cuda":
            batches = [batch.pin_memory() for batch in batches]
        try:
            make_steps(
                model,
                build_criterion(cfg),
                build_optimizer(cfg.solver, model),
                timed(batches, warm_up, steps, device),
                build_train_options(cfg.solver, cfg.seed),
                folder=Path(folder),
                precision=Precision(cfg.precision, device),
            )
        except Finished as finished:
            (seconds,) = finished.args
        if is_main():
            print(json.dumps({"images": size * world_size() * steps, "steps": steps, "seconds": seconds}))


def measure(processes: int, device_type: str, words: Sequence[str]) -> dict:
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes)]
    command = [*launch, __file__, "--device", device_type, "--work", *words]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--processes", type=int, nargs="+", help="default: 1 and 2, or 1 with a single GPU")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE", help="config overrides")
    arguments = parser.parse_intermixed_args()
    if arguments.work:
        work(arguments.device, arguments.overrides)
        return
    gpus = torch.cuda.device_count() if arguments.device == "cuda" else 2
    words, rows = arguments.overrides, []
    cfg = load_cfg(ROOT / SETTINGS[arguments.device][0], words)
    for processes in arguments.processes or [n for n in (1, 2) if n <= gpus]:
        done = measure(processes, arguments.device, words)
        rate = done["images"] / done["seconds"]
        step_ms = 1e3 * done["seconds"] / done["steps"]
        one = rows[0].images_per_second / rows[0].processes if rows else rate / processes
        linear = rate / (processes * one)
        size = cfg.solver.images_per_batch
        keys = " ".join(words)
        rows.append(Throughput(processes, size, keys, rate, step_ms, linear, TARGET, linear >= TARGET))
        print_table(rows)
        if arguments.device == "cuda":
            write_result("distributed", torch.device("cuda"), rows)


if __name__ == "__main__":
    main()
