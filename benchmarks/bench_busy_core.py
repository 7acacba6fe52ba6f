"""Times Toybox steps next to a busy core, with and without the OpenMP setting of detector/__init__.py.

python benchmarks/bench_busy_core.py --device cpu [--steps 10]

Each run is a separate process that trains PCL on Toybox with one thread per core, while another process keeps
one core busy. "without" imports torch before detector, so that GNU OpenMP reads its environment too early and
waiting threads spin for the default time.
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from bench_resume import write_data
from measure import device_parser, report

from detector.utils.command_line import usable_cores

ROOT = Path(__file__).parents[1]

TRAIN = """
import sys
if sys.argv[1] == "without":
    import torch
import detector
from detector.engine.checkpoint import load_checkpoint
from pathlib import Path
root, steps = Path(sys.argv[2]), int(sys.argv[3])
keys = {"DEVICE": "cpu", "OUTPUT_DIR": str(root / sys.argv[1]), "DATASETS.ROOT": str(root)}
keys |= {"DATASETS.PROPOSALS": str(root / "proposals.npz"), "DATASETS.WORKERS": 0}
keys |= {"SOLVER.MAX_ITER": steps, "SOLVER.PICTURE_PERIOD": 0, "SOLVER.AP_SHARE": 0}
folder = detector.train(sys.argv[4], keys)
print(load_checkpoint(folder / "model_final.pt")["train_seconds"])
"""


@dataclass(frozen=True)
class Run:
    """One row of the table."""

    spin_count: str  # with or without the package's setting
    steps: int
    threads: int
    seconds: float  # of all steps
    slower: float  # factor relative to "with"
    reached: bool  # "with" is not slower than "without"


def busy() -> None:
    while True:
        pass


def train(kind: str, root: Path, steps: int) -> float:
    """Seconds that the steps take in a separate process."""
    unset = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    config = str(ROOT / "configs" / "toybox_pcl.yaml")
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, kind, str(root), str(steps), config],
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.device != "cpu":
        print("bench_busy_core: CPU only")
        return
    with tempfile.TemporaryDirectory() as name:
        root = Path(name, "toybox")
        write_data(root)
        other = multiprocessing.get_context("spawn").Process(target=busy, daemon=True)
        other.start()
        try:
            seconds = {kind: train(kind, root, arguments.steps) for kind in ("with", "without")}
        finally:
            other.kill()
    reached = seconds["with"] <= seconds["without"]
    rows = [
        Run(kind, arguments.steps, usable_cores(), value, value / seconds["with"], reached)
        for kind, value in seconds.items()
    ]
    report("busy_core", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
