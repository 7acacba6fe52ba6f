"""Peak memory and time of proposals and predictions in one picture of many tiles, on a CPU.

    python benchmarks/large_picture_memory.py RUN [--side 20000] [--tile 1280] [--form tiff jpg]

RUN has a weak detector and a student. The picture is drawn: noise with squares, 3 bytes a pixel. Each
measurement is a process of its own, of which the system says the most memory that it had.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from measure import print_table, write_result
from PIL import Image

import detector
from detector.data.proposals.search import make_finder, search
from detector.data.proposals.tiled import TiledSearch
from detector.data.tiles import Tiling

BLOCK = 512  # pixels of a tile of the file
STEPS = ("start", "propose", "weak", "student")


@dataclass(frozen=True)
class Row:
    """One measurement."""

    form: str  # of the file
    side: int  # of the picture, in pixels
    tile: int
    step: str  # start: a process that has loaded the detector and done nothing
    peak_gb: float
    seconds: float
    boxes: int


def blocks(side: int) -> Iterator[np.ndarray]:
    """The tiles (BLOCK, BLOCK, 3) of the picture, row by row."""
    rng = np.random.default_rng(0)
    for _ in range((-(-side // BLOCK)) ** 2):
        block = rng.integers(90, 110, (BLOCK // 8, BLOCK // 8, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        y, x = rng.integers(0, BLOCK - 60, 2)
        block[y : y + 40, x : x + 50] = rng.integers(0, 256, 3)
        yield block


def write_picture(path: Path, side: int) -> None:
    """A TIFF file in tiles, or a file of another form, which is made in memory."""
    if path.suffix == ".tiff":
        import tifffile

        tifffile.imwrite(
            path,
            blocks(side),
            shape=(side, side, 3),
            dtype=np.uint8,
            photometric="rgb",
            tile=(BLOCK, BLOCK),
        )
        return
    picture, across = Image.new("RGB", (side, side)), -(-side // BLOCK)
    for number, block in enumerate(blocks(side)):
        picture.paste(Image.fromarray(block), (number % across * BLOCK, number // across * BLOCK))
    picture.save(path)


def measure(path: Path, side: int, tile: int, step: str, run: str) -> Row:
    """Run one step in this process, which has done nothing else."""
    torch.set_num_threads(1)
    words = {"INPUT.TILE": tile}
    predictor = detector.load(run, "cpu", model="student" if step == "student" else "weak", overrides=words)
    began, count = time.perf_counter(), 0
    if step == "propose":
        find = TiledSearch(make_finder("fast")[0], Tiling(tile))
        (_, found) = search(("picture", path), find, apply_orientation=True)
        if isinstance(found, str):
            raise SystemExit(found)
        count = len(found[1])
    elif step != "start":
        count = len(predictor(path))
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return Row(path.suffix[1:], side, tile, step, round(peak, 2), round(seconds, 1), count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="a run folder with a student")
    parser.add_argument("--side", type=int, default=20_000, help="of the picture (default: 20000)")
    parser.add_argument("--tile", type=int, default=1280, help="INPUT.TILE (default: 1280)")
    parser.add_argument("--form", nargs="+", choices=("tiff", "jpg"), default=("tiff", "jpg"))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for form in options.form:
            path = Path(folder, f"picture.{form}")
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as pool:  # its memory is not that of the others
                pool.submit(write_picture, path, options.side).result()
            for step in STEPS:
                with ProcessPoolExecutor(1, mp_context=context) as pool:
                    words = path, options.side, options.tile, step, options.run
                    rows.append(pool.submit(measure, *words).result())
                print(json.dumps(vars(rows[-1])), file=sys.stderr, flush=True)
    print_table(rows)
    write_result("large_picture_memory", torch.device("cpu"), rows)


if __name__ == "__main__":
    main()
