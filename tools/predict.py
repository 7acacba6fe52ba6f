"""Find objects in one's own images: files, folders and videos.

    python tools/predict.py --weights runs/demo --output found pictures/ more.jpg clip.mp4 [--stride 30]

Writes to the folder `found`, by --format (repeat it for several):
    pictures  pictures/NAME.jpg: the image with its boxes drawn (the default)
    coco      detections.json: images, categories and annotations with scores
    voc       Annotations/NAME.xml: as labeling tools read them, to correct by hand

The weights are a run folder or a checkpoint; how to test and to make proposals is as the run's config says.
A file that cannot be read does not stop the others: each is named, and the exit status is 2.
Only files that the same command (weights, paths and options) wrote are replaced: anything else in the way is
an error before the work begins. docs/predict.md has the formats.
"""

import argparse
import hashlib
import json
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from detector.utils.interrupts import quiet_interrupt

with quiet_interrupt():  # Ctrl-C during these imports, which take seconds
    import numpy as np
    from torch import Tensor
    from tqdm import tqdm

    from detector import load
    from detector.api.loading import find_checkpoint
    from detector.data.coco_writer import COCOWriter
    from detector.data.images import open_image
    from detector.data.pictures import count_frames, find_pictures, is_video, video_frames
    from detector.data.voc_writer import annotation_tree, detected_objects, encode_annotation
    from detector.engine.predictor import SCORE_THRESHOLD, Predictor
    from detector.evaluation.pictures import draw_detections
    from detector.structures import Detections
    from detector.utils.ahead import ahead
    from detector.utils.command_line import run_command, usable_cores
    from detector.utils.errors import UserError
    from detector.utils.files import check_regular, encode_image, file_digest
    from detector.utils.folder_lock import folder_lock
    from detector.utils.outputs import OutputFolder

logger = logging.getLogger("detector.tools.predict")

FORMATS = ("pictures", "coco", "voc")
_MOST_THREADS = 8  # each may hold two images, of a gigabyte where they have 20,000 x 20,000 pixels


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_arguments(arguments)
    return run_command(lambda: run(options))


def run(options: argparse.Namespace) -> None:
    """Write what is found. UserError at the end if some files could not be read."""
    check_writable(options.output)
    sources = find_pictures(options.paths, outside=options.output)
    formats = options.format or ["pictures"]
    with folder_lock(options.output):
        outputs = OutputFolder(options.output, command_key(options))
        check_outputs(outputs, sources, formats, options.stride)
        predictor = load(options.weights, options.device, score_threshold=options.score_threshold)
        write_all(predictor, sources, outputs, formats, options)


def write_all(
    predictor: Predictor,
    sources: dict[str, Path],
    outputs: OutputFolder,
    formats: Sequence[str],
    options: argparse.Namespace,
) -> None:
    coco = COCOWriter(predictor.class_names)
    counts = [count_frames(path, options.stride) if is_video(path) else 1 for path in sources.values()]
    images = boxes = failures = 0
    best = 0.0
    with tqdm(total=sum(counts), unit="image", disable=None) as bar:
        for result in predict_all(predictor, sources, options.stride):
            bar.update()
            if isinstance(result, str):
                failures += 1
                logger.error("not done: %s", result)
                continue
            images, boxes = images + 1, boxes + len(result.found.boxes)
            best = max(best, result.best_score)
            name, image, found = result.name, result.image, result.found
            size = (image.shape[1], image.shape[2])
            if "pictures" in formats:
                picture = draw_detections(image, found, None, predictor.class_names, score_threshold=0.0)
                outputs.write(output_name(name, "pictures"), encode_image(picture, "jpeg", quality=90))
            if "coco" in formats:
                coco.add(name, size, found)
            if "voc" in formats:
                tree = annotation_tree(name, size, detected_objects(found), folder="pictures")
                outputs.write(output_name(name, "voc"), encode_annotation(tree))
    if "coco" in formats:
        outputs.write(output_name("", "coco"), coco.encode())
    print(f"{boxes} boxes in {images} images: {options.output}")
    if images and not boxes:
        print(
            f"the best score is {best:.3g}, and a box must score more than --score-threshold "
            f"{options.score_threshold:g}"
        )
    if failures:
        raise UserError(f"{failures} of the files could not be read; they are named above")


def output_name(name: str, form: str) -> str:
    """The file, below the output folder, that one of FORMATS writes for the image or frame `name`."""
    if form == "coco":
        return "detections.json"
    folder, suffix = {"pictures": ("pictures", ".jpg"), "voc": ("Annotations", ".xml")}[form]
    return (PurePosixPath(folder) / name).with_suffix(suffix).as_posix()


def command_key(options: argparse.Namespace) -> str:
    """What the results depend on: the same command has the same key, and replaces its earlier results."""
    weights = find_checkpoint(options.weights)
    check_regular(weights, "checkpoint")
    words = [file_digest(weights), options.score_threshold, options.stride]
    words += sorted(str(path.resolve()) for path in options.paths)
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def check_outputs(
    outputs: OutputFolder, sources: dict[str, Path], formats: Sequence[str], stride: int
) -> None:
    """Raise a UserError, before any work, where a file to write is an input or one that others made."""
    names = []
    for name, path in sources.items():
        frames = range(count_frames(path, stride)) if is_video(path) else ()
        names += [name] if not is_video(path) else [frame_name(name, i * stride) for i in frames]
    files = {output_name(name, form) for name in names for form in formats}
    inputs = {path.resolve() for path in sources.values()}
    for file in sorted(files):
        if outputs.path(file).resolve() in inputs:
            raise UserError(
                f"{outputs.path(file)} is one of the pictures to look at, and would be replaced: "
                "name another folder to write to (--output)"
            )
    outputs.check(sorted(files))


class Result(NamedTuple):
    """What was found in an image or frame."""

    name: str
    image: Tensor  # (3, H, W) uint8
    found: Detections
    best_score: float  # of all its proposals, above the threshold or not; 0 without proposals


def predict_all(predictor: Predictor, sources: dict[str, Path], stride: int) -> Iterator[Result | str]:
    """The result of each image or frame, or why a file cannot be read.

    Finding proposals takes most of the time: while the model runs on one image, other threads find those of
    the next images.
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
            scores = predictor.scores(image, proposals)
            best = float(scores.scores.max()) if scores.scores.numel() else 0.0
            result = Result(source.name, image, predictor.detections(scores), best)
        except (OSError, ValueError, MemoryError) as error:
            message = str(error) or type(error).__name__
            yield message if str(source.path) in message else f"{source.path}: {message}"
        else:
            yield result


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
        try:
            for number, frame in video_frames(path, stride):
                yield Source(frame_name(name, number), path, frame)
        except (OSError, ValueError, MemoryError) as error:
            yield Source(name, path, error)


def frame_name(video: str, number: int) -> str:
    """The name of a frame, as if the video were a folder of images."""
    return f"{Path(video).with_suffix('').as_posix()}/frame_{number:06d}.jpg"


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
    add(
        "--score-threshold",
        type=float,
        default=SCORE_THRESHOLD,
        help=f"a box scores more than this (default: {SCORE_THRESHOLD})",
    )
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
