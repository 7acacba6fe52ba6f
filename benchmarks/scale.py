"""Seconds, memory and disk that an image costs where all are held or read at once, with 1,000 classes.

    python benchmarks/scale.py --save

Each part runs in a process of its own with two numbers of images; the difference of the two is the cost of an
image. Images are 64 pixels wide, have 400 proposals, one to three tags, and 100 detections. What a part reads
is made up when it is read, which counts in its time.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import torch
from measure import RESULTS, command_line, commit, machine_name
from PIL import Image

from detector.data.datasets.image_labels import ImageLabels
from detector.data.proposals import save_proposals
from detector.evaluation.voc import image_ap, voc_ap
from detector.inference.image_results import test_images
from detector.structures import Annotation, Detections, Scores
from detector.utils.lazy import Lazy

CLASSES, PROPOSALS, FOUND, SIDE = 1000, 400, 100, 64


def boxes(generator: np.random.Generator, count: int) -> np.ndarray:
    """(count, 4) float32 xyxy."""
    corners = generator.uniform(0, SIDE, (count, 2, 2)).astype(np.float32)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


def detections(image: int, count: int) -> Detections:
    generator = np.random.default_rng(image)
    found = torch.from_numpy(boxes(generator, count))
    scores, labels = generator.random(count, np.float32), generator.integers(0, CLASSES, count)
    return Detections(str(image), found, torch.from_numpy(scores), torch.from_numpy(labels))


def tables(folder: Path, count: int, generator: np.random.Generator) -> Callable[[], object]:
    """A table of tags and the sizes of its images."""
    Image.new("RGB", (SIDE, SIDE)).save(folder / "one.jpg")
    lines = ["file,labels"]
    for number in range(count):
        os.link(folder / "one.jpg", folder / f"{number:07}.jpg")
        tags = generator.integers(0, CLASSES, generator.integers(1, 4))
        lines.append(f"{number:07}.jpg,{';'.join(f'class {tag}' for tag in sorted({*tags.tolist()}))}")
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    names = [f"class {number}" for number in range(CLASSES)]
    return lambda: ImageLabels(folder, "train", names)


def writing_proposals(folder: Path, count: int, generator: np.random.Generator) -> Callable[[], object]:
    """The file of proposals, written at the end of `detector propose`."""
    found = Lazy(lambda index: boxes(np.random.default_rng(index), PROPOSALS), count)
    names = [f"{number:07}" for number in range(count)]
    return lambda: save_proposals(folder / "proposals.npz", names, found, [(SIDE, SIDE)] * count)


def test_results(folder: Path, count: int, generator: np.random.Generator) -> Callable[[], object]:
    """What `detector test` keeps of every image: detections, and the best score of each class."""
    found = detections(0, FOUND)

    def predict(indices: Sequence[int]) -> Iterator[Scores]:
        for index in indices:
            of_all_classes = torch.rand(PROPOSALS, 1, 4).expand(-1, CLASSES, -1)
            yield Scores(str(index), of_all_classes, torch.rand(PROPOSALS, CLASSES))

    names = [str(number) for number in range(count)]
    return lambda: test_images(predict, names, lambda _: found, path=folder / "results", key="0" * 16)


def average_precision(folder: Path, count: int, generator: np.random.Generator) -> Callable[[], object]:
    """AP of the boxes, of detections that are read one by one."""

    def annotation(image: int) -> Annotation:
        each = detections(image, 3)
        return Annotation(each.image_id, each.boxes, each.labels, torch.zeros(3, dtype=torch.bool))

    found, truth = Lazy(lambda image: detections(image, FOUND), count), Lazy(annotation, count)
    return lambda: voc_ap(found, truth, CLASSES)


def image_average_precision(folder: Path, count: int, generator: np.random.Generator) -> Callable[[], object]:
    """AP of the image labels, of scores that are read one by one."""
    scores = Lazy(lambda image: torch.from_numpy(np.random.default_rng(image).random(CLASSES)), count)
    return lambda: image_ap(scores, scores.map(lambda each: (each < 0.002).float()))


PARTS = {
    tables: (2000, 8000),
    writing_proposals: (1000, 4000),
    test_results: (300, 1200),
    average_precision: (5000, 12_000),
    image_average_precision: (5000, 12_000),
}


def measure(name: str, count: int) -> dict[str, float]:
    """CPU seconds of the call, peak memory in MB with its inputs, and MB on the disk, in this process."""
    (part,) = (part for part in PARTS if part.__name__ == name)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        call = part(Path(folder), count, np.random.default_rng(0))
        begin = time.process_time()
        result = call()
        seconds = time.process_time() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        del result
        disk = sum(file.stat().st_size for file in Path(folder).iterdir() if file.suffix != ".jpg")
    return {"seconds": seconds, "memory_mb": (peak - before) * 1024 / 1e6, "disk_mb": disk / 1e6}


def in_a_process(name: str, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--part", name, "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(parts: Iterable[Callable]) -> Iterator[dict[str, object]]:
    """The cost of an image in each part, and of a million, if it grows as between the two numbers."""
    for part in parts:
        few, many = PARTS[part]
        small, large = (in_a_process(part.__name__, count) for count in (few, many))
        each = {key: (large[key] - small[key]) / (many - few) for key in small}
        yield {
            "part": part.__name__,
            "images": [few, many],
            "cpu_ms_per_image": each["seconds"] * 1e3,
            "memory_kb_per_image": each["memory_mb"] * 1e3,
            "disk_kb_per_image": each["disk_mb"] * 1e3,
            "million_cpu_hours": each["seconds"] * 1e6 / 3600,
            "million_memory_gb": each["memory_mb"] * 1e3,
            "million_disk_gb": each["disk_mb"] * 1e3,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/scale_cpu.json")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part, options.count)))
        return
    found = []
    for row in rows(PARTS):
        found.append(row)
        print(*(f"{value:.3g}" if isinstance(value, float) else value for value in row.values()), flush=True)
    if options.save:
        result = {
            "date": date.today().isoformat(),
            "machine": machine_name(torch.device("cpu")),
            "versions": {"torch": torch.__version__, "numpy": np.__version__},
            "commit": commit(),
            "command": command_line(),
            "rows": found,
        }
        (RESULTS / "scale_cpu.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
