"""Find objects in one's own images: files, folders and videos.

    python tools/predict.py --weights runs/demo --output found pictures/ more.jpg clip.mp4 [--stride 30]

Writes to the folder `found`, by --format (repeat it for several):
    pictures  pictures/NAME.jpg: the image with its boxes drawn (the default)
    coco      detections.json: images, categories and annotations with scores
    voc       Annotations/NAME.xml: as labelling tools read them, to correct by hand

The weights are a run folder or a checkpoint; how to test and to make proposals is as the run's config says.
A file that cannot be read does not stop the others: all such are listed at the end, and the exit status is 1.
docs/predict.md has the formats.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from torch import Tensor
from tqdm import tqdm

from detector import load
from detector.data.coco_writer import COCOWriter
from detector.data.images import open_image
from detector.data.pictures import count_frames, find_pictures, is_video, video_frames
from detector.data.voc_writer import annotation_tree, detected_objects
from detector.engine.predictor import Predictor
from detector.evaluation.pictures import draw_detections
from detector.structures import Detections
from detector.utils.ahead import ahead
from detector.utils.command_line import run_command
from detector.utils.cores import usable_cores
from detector.utils.files import atomic_write

logger = logging.getLogger("detector.tools.predict")

FORMATS = ("pictures", "coco", "voc")
_MOST_THREADS = 8  # each may hold two images, of a gigabyte where they have 20,000 x 20,000 pixels


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    failures: list[str] = []
    status = run_command(lambda: run(options, failures))
    for failure in failures:
        logger.error("not done: %s", failure)
    if failures:
        logger.error("%d could not be read", len(failures))
    return status or (1 if failures else 0)


def run(options: argparse.Namespace, failures: list[str]) -> None:
    """Write what is found; `failures` takes a line for each file that cannot be read."""
    check_writable(options.output)
    sources = find_pictures(options.paths, outside=options.output)
    predictor = load(options.weights, options.device, score_threshold=options.score_threshold)
    formats = options.format or ["pictures"]
    coco = COCOWriter(predictor.class_names)
    counts = [count_frames(path, options.stride) if is_video(path) else 1 for path in sources.values()]
    images = boxes = 0
    with tqdm(total=sum(counts), unit="image", disable=None) as bar:
        for result in predict_all(predictor, sources, options.stride):
            bar.update()
            if isinstance(result, str):
                failures.append(result)
                continue
            name, image, found = result
            images, boxes = images + 1, boxes + len(found.boxes)
            size = (image.shape[1], image.shape[2])
            if "pictures" in formats:
                path = (options.output / "pictures" / name).with_suffix(".jpg")
                picture = draw_detections(image, found, None, predictor.class_names, score_threshold=0.0)
                with new_file(path) as file:
                    picture.save(file, format="jpeg", quality=90)
            if "coco" in formats:
                coco.add(name, size, found)
            if "voc" in formats:
                path = (options.output / "Annotations" / name).with_suffix(".xml")
                tree = annotation_tree(name, size, detected_objects(found), folder="pictures")
                with new_file(path) as file:
                    tree.write(file)
    if "coco" in formats:
        coco.write(options.output / "detections.json")
    print(f"{boxes} boxes in {images} images: {options.output}")


def predict_all(
    predictor: Predictor, sources: dict[str, Path], stride: int
) -> Iterator[tuple[str, Tensor, Detections] | str]:
    """Name, image (3, H, W) and detections of each image or frame; or why a file cannot be read.

    Proposals take most of the time: those of the next images are searched while one is looked at.
    """

    def search(source: Source) -> tuple[Tensor, np.ndarray]:
        if isinstance(source.image, Exception):
            raise source.image
        image = open_image(source.image)
        return image, predictor.find(image.permute(1, 2, 0).numpy())

    threads = min(usable_cores(), _MOST_THREADS)
    for source, found in ahead(search, read_sources(sources, stride), threads):
        try:
            image, proposals = found.result()
            yield source.name, image, predictor(image, proposals)
        except (OSError, ValueError, MemoryError) as error:
            message = str(error) or type(error).__name__
            yield message if str(source.path) in message else f"{source.path}: {message}"


class Source(NamedTuple):
    """Where an image comes from: a file, a frame (H, W, 3), or the error that a video ended with."""

    name: str
    path: Path
    image: Path | np.ndarray | Exception


def read_sources(sources: dict[str, Path], stride: int) -> Iterator[Source]:
    """The files, and the frames of those that are videos, by the names of what is written of them."""
    for name, path in sources.items():
        if not is_video(path):
            yield Source(name, path, path)
            continue
        stem = Path(name).with_suffix("").as_posix()
        try:
            for number, frame in video_frames(path, stride):
                yield Source(f"{stem}/frame_{number:06d}.jpg", path, frame)
        except (OSError, ValueError, MemoryError) as error:
            yield Source(name, path, error)


def new_file(path: Path) -> AbstractContextManager[IO[bytes]]:
    """A file to write, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return atomic_write(path)


def check_writable(folder: Path) -> None:
    """Make the folder; OSError names it if nothing can be written there, before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"cannot write to the folder {folder}: {error.strerror or error}") from error


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("paths", nargs="+", type=Path, metavar="PATH", help="an image, a folder of images, or a video")
    add("--weights", required=True, metavar="RUN_OR_FILE", help="a run folder or a checkpoint")
    add("--output", required=True, type=Path, metavar="DIR", help="folder to write to")
    add("--format", action="append", choices=FORMATS, help="what to write; may be repeated")
    add("--score-threshold", type=float, default=0.3, help="a box scores more than this (default: 0.3)")
    add("--stride", type=int, default=1, help="of a video, every so many frames (default: 1)")
    add("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    options = parser.parse_intermixed_args(arguments)
    if not 0 <= options.score_threshold <= 1:
        parser.error(f"--score-threshold is {options.score_threshold}, expected 0 to 1")
    if options.stride < 1:
        parser.error(f"--stride is {options.stride}, expected 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
