"""Sends many made-up images of 64 pixels through propose, train, test and label: time, memory and disk.

    python benchmarks/million.py FOLDER --images 10000 --images 100000 [--save]

Each image shows one to three rectangles, whose colors are their classes, of 1,000. All images are the
training split, by their tags, and the test split, by their boxes. Each command is one process with one
thread, and without workers. What was done is not done again. Extrapolates to a million images from the two
largest numbers, and with --save writes benchmarks/results/million_cpu.json.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from measure import report
from PIL import Image

from detector.utils.progress import progress_bar

SIDE, IN_A_FOLDER, MILLION = 64, 1000, 1_000_000


@dataclass(frozen=True)
class Row:
    images: int
    stage: str
    cpu_seconds: float
    peak_mb: float  # resident memory
    disk_mb: float  # that the stage leaves


def make_images(root: Path, count: int, classes: int) -> None:
    """Images and their table; the first ones are the same for any count."""
    lines = []
    for number in progress_bar(range(count), total=count, desc="images", unit="image"):
        generator = np.random.default_rng([number, classes])
        pixels = np.full((SIDE, SIDE, 3), 255, np.uint8)
        boxes = []
        for _ in range(generator.integers(1, 4)):
            label = int(generator.integers(classes))
            left, top = generator.integers(0, SIDE - 24, 2).tolist()
            width, height = generator.integers(12, 24, 2).tolist()
            pixels[top : top + height, left : left + width] = np.random.default_rng(label).integers(0, 230, 3)
            boxes.append({"label": f"class {label}", "box": [left, top, left + width, top + height]})
        file = Path(f"{number // IN_A_FOLDER:04}/{number:07}.jpg")
        (root / file.parent).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / file, quality=80)
        labels = sorted({box["label"] for box in boxes})
        lines.append(json.dumps({"file": str(file), "labels": labels, "boxes": boxes}) + "\n")
    (root / "test.jsonl").write_text("".join(lines))
    # Training has tags alone, so that CorLoc does not repeat the test.
    rows = (json.loads(line) for line in lines)
    tags = (json.dumps({key: row[key] for key in ("file", "labels")}) + "\n" for row in rows)
    (root / "train.jsonl").write_text("".join(tags))


def stages(root: Path, run: Path, classes: int, steps: int) -> Iterator[tuple[str, list[str], Path]]:
    """The name, command and result of each."""
    names = [f"class {number}" for number in range(classes)]
    keys = {
        "DATASETS.FORMAT": "image_labels",
        "DATASETS.ROOT": root,
        "DATASETS.TRAIN_SPLIT": "train",
        "DATASETS.TEST_SPLIT": "test",
        "DATASETS.CLASSES": json.dumps(names),
        "DATASETS.PROPOSALS": run / "proposals.npz",
        "DATASETS.WORKERS": 0,
        "INPUT.TRAIN_SIZES": f"[{SIDE}]",
        "INPUT.TEST_SIZES": f"[{SIDE}]",
        "INPUT.TEST_FLIP": False,
        "PROPOSALS.MAX_COUNT": 50,
        "MODEL.IMAGE_HEAD": False,
        "SOLVER.MAX_ITER": steps,
        "SOLVER.WARMUP_ITERS": 5,
        "SOLVER.PICTURE_PERIOD": 0,
        "SOLVER.AP_SHARE": 0.0,
        "OUTPUT_DIR": run,
    }
    words = [str(word) for pair in keys.items() for word in pair]
    config = run.with_suffix(".yaml")
    config.write_text("_BASE_: toybox_pcl\n")
    yield "propose", ["propose", str(config), *words, "--workers", "1"], run / "proposals.npz"
    yield "train", ["train", str(config), *words], run / "model_final.pt"
    yield "test", ["test", str(run)], run / "metrics.json"
    label = ["label", str(run), "--labels", str(root / "train.jsonl"), "--output", str(run / "boxes")]
    yield "label", [*label, "--format", "coco"], run / "boxes"


def measure(command: list[str]) -> tuple[float, float]:
    """CPU seconds and peak resident memory in MB of `detector COMMAND`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "detector", *command], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"detector {command[0]} failed with the status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def size_mb(path: Path) -> float:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files) / 1e6


def run_all(folder: Path, count: int, classes: int, steps: int) -> Iterator[Row]:
    root, run, done = folder / f"{count}_images", folder / f"{count}_run", folder / f"{count}.json"
    rows = [Row(**row) for row in json.loads(done.read_text())] if done.exists() else []
    yield from rows
    if not rows:
        shutil.rmtree(root, ignore_errors=True)
        began = time.process_time()
        make_images(root, count, classes)
        rows.append(Row(count, "made up", time.process_time() - began, 0.0, size_mb(root)))
        done.write_text(json.dumps(list(map(asdict, rows))))
        yield rows[-1]
    known = {row.stage for row in rows}
    for stage, command, result in stages(root, run, classes, steps):
        if stage not in known:
            before = size_mb(run) if run.exists() else 0.0
            rows.append(Row(count, stage, *measure(command), size_mb(run) - before))
            assert result.exists()
            done.write_text(json.dumps(list(map(asdict, rows))))
            yield rows[-1]


def extrapolated(rows: list[Row]) -> Iterator[Row]:
    """A million images, if each further one costs as much as between the two largest numbers."""
    few, many = sorted({row.images for row in rows})[-2:]
    for stage in dict.fromkeys(row.stage for row in rows):
        first, second = (next(r for r in rows if (r.images, r.stage) == (n, stage)) for n in (few, many))
        values = []
        for name in ("cpu_seconds", "peak_mb", "disk_mb"):
            low, high = getattr(first, name), getattr(second, name)
            values.append(high + (high - low) / (many - few) * (MILLION - many))
        yield Row(MILLION, f"{stage}, extrapolated", *values)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, action="append", required=True)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for count in options.images:
        for row in run_all(options.folder, count, options.classes, options.steps):
            rows.append(row)
            print(row, flush=True)
    if len(set(options.images)) > 1:
        rows += extrapolated(rows)
    if options.save:
        report("million", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
