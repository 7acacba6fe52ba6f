"""Times the searches for proposals and measures how many objects their first N boxes cover.

    python benchmarks/bench_proposals.py --device cpu [--voc FOLDER] [--split val]

The photographs of FOLDER, a data set in VOC layout, are searched on 300 pixels, each mode in a process of its
own on one core. The time is CPU time without reading images, so other load hardly matters. The boxes of
OpenCV are sorted by size, largest first, as detector.data.proposals.opencv returns them.
"""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from measure import device_parser, report

from detector.data.datasets.voc import VOCDataset
from detector.data.images import read_image
from detector.data.proposals.grid import grid_boxes
from detector.data.proposals.search import Mode, begin_worker, make_finder
from detector.evaluation.coverage import best_overlaps

MODES: tuple[Mode, ...] = ("quality", "opencv_quality", "fast", "opencv_fast", "grid")
NUM_BOXES = (100, 200, 500, 1000, 1500, 2000)


@dataclass(frozen=True)
class Search:
    """One row of the table: a mode and the first `num_boxes` boxes of each image."""

    mode: str
    num_boxes: int
    mean_boxes: float  # how many there are
    recall_50: float
    recall_70: float
    mean_best_overlap: float
    ms_per_image: float
    peak_mib: float


def search(mode: Mode, paths: list[Path], longest_side: int) -> tuple[list[np.ndarray], float, float]:
    """The boxes of each image, CPU seconds, and the most memory that the process took, in MiB."""
    find, _ = make_finder(mode, longest_side)
    find(np.zeros((64, 64, 3), np.uint8))  # loads libraries
    found, seconds = [], 0.0
    for path in paths:
        image = read_image(path).permute(1, 2, 0).numpy()
        start = time.process_time()
        found.append(find(image))
        seconds += time.process_time() - start
    return found, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(mode: Mode, dataset: VOCDataset, longest_side: int) -> list[Search]:
    paths = [dataset.image_path(i) for i in range(len(dataset))]
    begin = {"initializer": begin_worker, "initargs": (grid_boxes, False)}  # the mode's own is made there
    with ProcessPoolExecutor(1, get_context("spawn"), **begin) as pool:
        found, seconds, peak = pool.submit(search, mode, paths, longest_side).result()
    rows = []
    for num_boxes in NUM_BOXES:
        best = []
        for i, boxes in enumerate(found):
            annotation = dataset.annotation(i)
            if annotation is not None:
                best.append(best_overlaps(torch.from_numpy(boxes[:num_boxes]), annotation))
        overlaps = torch.cat(best)
        covered = [float((overlaps >= iou).double().mean()) for iou in (0.5, 0.7)]
        mean_boxes = sum(min(len(boxes), num_boxes) for boxes in found) / len(found)
        mean = float(overlaps.mean())
        milliseconds = 1e3 * seconds / len(found)
        rows.append(Search(mode, num_boxes, mean_boxes, *covered, mean, milliseconds, peak))
    return rows


def main() -> None:
    parser = device_parser(__doc__ or "")
    parser.add_argument("--voc", default="datasets/photos", help="data set in VOC layout")
    parser.add_argument("--split", default="val")
    parser.add_argument("--longest-side", type=int, default=300)
    arguments = parser.parse_args()
    if arguments.device != "cpu":
        return
    if not Path(arguments.voc).is_dir():
        print(f"no data set at {arguments.voc}: name one with --voc")
        return
    dataset = VOCDataset(arguments.voc, arguments.split)
    rows = [row for mode in MODES for row in measure(mode, dataset, arguments.longest_side)]
    report("proposals", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
