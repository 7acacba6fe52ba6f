"""Times selective search of a batch of images, whose images the threads share.

    python benchmarks/bench_proposal_batches.py --device cpu [--voc FOLDER] [--split val]

The photographs of FOLDER, a data set in VOC layout, are read and reduced to 300 pixels first. Each row is a
process of its own; its time is the wall-clock time of the best of three passes, on an idle machine.
"""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch
from measure import device_parser, report
from torchvision.transforms.functional import InterpolationMode, resize

from detector.data.datasets.voc import VOCDataset
from detector.data.images import read_image
from detector.layers.selective_search import FAST, QUALITY, selective_search

LONGEST_SIDE, BATCH = 300, 32


@dataclass(frozen=True)
class Batches:
    mode: str
    threads: int
    images_per_batch: int
    images_per_second: float
    peak_mib: float  # of the process
    search_mib: float  # what the search added to it


def measure(mode: str, threads: int, paths: list[Path]) -> Batches:
    torch.set_num_threads(threads)
    images = [reduced(read_image(path)) for path in paths]
    strategies = FAST if mode == "fast" else QUALITY
    before = peak_mib()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        for i in range(0, len(images), BATCH):
            selective_search(images[i : i + BATCH], strategies)
        seconds.append(time.perf_counter() - start)
    peak = peak_mib()
    return Batches(mode, threads, BATCH, len(images) / min(seconds), peak, peak - before)


def reduced(image: torch.Tensor) -> torch.Tensor:
    """The image (3, H, W), its longer side of LONGEST_SIDE pixels."""
    height, width = image.shape[1:]
    scale = LONGEST_SIDE / max(height, width)
    return resize(image, [round(height * scale), round(width * scale)], InterpolationMode.BICUBIC)


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = device_parser(__doc__ or "")
    parser.add_argument("--voc", default="datasets/photos", help="data set in VOC layout")
    parser.add_argument("--split", default="val")
    arguments = parser.parse_args()
    if arguments.device != "cpu":
        return
    if not Path(arguments.voc).is_dir():
        print(f"no data set at {arguments.voc}: name one with --voc")
        return
    dataset = VOCDataset(arguments.voc, arguments.split)
    paths = [dataset.image_path(i) for i in range(len(dataset))]
    rows = []
    for mode in ("quality", "fast"):
        for threads in (1, 2):
            with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                rows.append(pool.submit(measure, mode, threads, paths).result())
    report("proposal_batches", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
