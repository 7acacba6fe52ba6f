"""What `detector train --quick` costs in AP, beside the recipe that `detector init` writes without a GPU.

    python benchmarks/quick.py PICTURES [PICTURES ...] [--seeds 3] [--jobs 1]

PICTURES are folders that `detector init` reads, in whose test split boxes are known: datasets/toybox, or
photographs in the layout of VOC. A GPU, if there is one, trains the same recipe. Runs go to runs/quick_ap,
and are continued if they are there. Writes benchmarks/results/quick_ap.json.
"""

import argparse
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from measure import report

from detector.utils.distributed import find_device
from detector.utils.files import read_json

FOLDER = Path("runs/quick_ap")
KINDS = {"--quick": ["--quick"], "--to detector": ["--to", "detector"]}


@dataclass(frozen=True)
class Row:
    case: str
    kind: str
    images: int  # of the test
    weak_mAP50: float  # the mean over the seeds
    mAP50: float  # of the student
    least: float
    most: float


def write_config(pictures: Path) -> Path:
    """The config of a folder, as without a GPU."""
    config = FOLDER / f"{pictures.name}.yaml"
    if not config.exists():
        call("init", pictures, "--output", config, gpu=False)
    return config


def train(config: Path, kind: str, seed: int) -> Path:
    output = FOLDER / f"{config.stem}_{kind.strip('-').replace(' ', '_')}_{seed}"
    if not (output / "self_train" / "metrics.json").exists():
        keys = {"SEED": seed, "OUTPUT_DIR": output, "DATASETS.PROPOSALS": f"{output}.npz"}
        call("train", config, *KINDS[kind], *(word for pair in keys.items() for word in pair))
    return output


def call(*words: object, gpu: bool = True) -> None:
    environment = os.environ if gpu else {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "detector", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}")


def measure(case: str, kind: str, outputs: list[Path]) -> Row:
    metrics = [read_json(output / "self_train" / "metrics.json") for output in outputs]
    weak = statistics.mean(read_json(output / "metrics.json")["mAP50"] for output in outputs)
    points = [each["mAP50"] for each in metrics]
    return Row(case, kind, metrics[0]["num_images"], weak, statistics.mean(points), min(points), max(points))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pictures", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    configs = [write_config(pictures) for pictures in options.pictures]
    # The longest first.
    runs = [(c, kind, seed) for kind in reversed(KINDS) for c in configs for seed in range(options.seeds)]
    with ThreadPoolExecutor(options.jobs) as pool:
        outputs = dict(zip(runs, pool.map(lambda run: train(*run), runs), strict=True))
    rows = [
        measure(config.stem, kind, [outputs[config, kind, seed] for seed in range(options.seeds)])
        for config in configs
        for kind in KINDS
    ]
    report("quick_ap", find_device("auto"), rows)


if __name__ == "__main__":
    main()
