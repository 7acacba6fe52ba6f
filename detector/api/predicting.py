"""Find objects in files, folders and videos, and write pictures, COCO's JSON or VOC's XML of them."""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor
from tqdm import tqdm

from detector.api.loading import find_checkpoint, load
from detector.api.run_folder import Model
from detector.data.formats import encode_coco, review_image
from detector.data.images import open_image
from detector.data.pictures import count_frames, find_pictures, is_video, video_frames
from detector.data.voc_writer import detected_objects, encode_annotation
from detector.engine.predictor import SCORE_THRESHOLD, Predictor
from detector.evaluation.pictures import draw_detections
from detector.structures import Scores
from detector.utils.command_line import usable_cores
from detector.utils.distributed import local_world_size
from detector.utils.errors import UserError, counted, is_out_of_memory
from detector.utils.files import check_regular, encode_image, file_digest
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

logger = logging.getLogger(__name__)

FORMATS = ("pictures", "coco", "voc")
UNREADABLE = (OSError, UserError, MemoryError)  # of one file, which is left out

T = TypeVar("T")
R = TypeVar("R")


def run(
    paths: Sequence[Path],
    weights: str | Path,
    output: Path,
    *,
    formats: Sequence[str] | None = None,
    score_threshold: float = SCORE_THRESHOLD,
    stride: int = 1,
    device: str = "auto",
    model: Model = "auto",
) -> None:
    """Write what a detector finds to a folder.

    Only files that a call with the same arguments wrote are replaced; anything else in the way is an error
    before the work begins.

    Args:
        paths: images, folders of images, and videos.
        weights: a run folder or a checkpoint.
        output: the folder to write to.
        formats: some of FORMATS; None: pictures.
        score_threshold: a box scores more than this.
        stride: of a video, every so many frames.
        device: "auto", "cpu" or "cuda".
        model: of a run folder, see :func:`detector.api.loading.load`.

    Raises:
        UserError: an argument cannot be used, or a file is in the way; or, once all others are done, some
            files could not be read.
    """
    formats = formats or ("pictures",)
    if stride < 1:
        raise UserError(f"--stride is {stride}, expected 1 or more")
    with folder_lock(output):
        sources = find_pictures(paths, outside=output)
        weights = find_checkpoint(weights, model)
        outputs = OutputFolder(output, command_key(paths, weights, score_threshold, stride))
        check_outputs(outputs, sources, formats, stride)
        predictor = load(weights, device, score_threshold=score_threshold, model=model)
        write_all(predictor, sources, outputs, formats, stride, score_threshold)


def write_all(
    predictor: Predictor,
    sources: dict[str, Path],
    outputs: OutputFolder,
    formats: Sequence[str],
    stride: int,
    score_threshold: float,
) -> None:
    """Write what is found in each image or frame; files that cannot be read are named at the end."""
    reviews, classes = [], predictor.class_names
    counts = [count_frames(path, stride) if is_video(path) else 1 for path in sources.values()]
    images = boxes = failures = 0
    best = 0.0  # score of all proposals, above the threshold or not
    with tqdm(total=sum(counts), unit="image", disable=None) as bar:
        for scored in score_sources(predictor, read_sources(sources, stride)):
            bar.update()
            if scored is None:
                failures += 1
                continue
            image, scores = scored
            found = predictor.detections(scores)
            images, boxes = images + 1, boxes + len(found)
            best = max(best, float(scores.scores.max()) if scores.scores.numel() else 0.0)
            name, size = scores.image_id, (image.shape[1], image.shape[2])
            if "pictures" in formats:
                picture = draw_detections(image, found, None, classes, score_threshold=0.0)
                outputs.write(output_name(name, "pictures"), encode_image(picture, "jpeg", quality=90))
            if "coco" in formats:
                reviews.append(review_image(name, size, found, classes))
            if "voc" in formats:
                objects = detected_objects(found, size)
                content = encode_annotation(name, size, objects, folder="pictures", upright=True)
                outputs.write(output_name(name, "voc"), content)
    if "coco" in formats:
        outputs.write(output_name("", "coco"), encode_coco(reviews, classes))
    found_boxes, of_images = counted(boxes, "box", "boxes"), counted(images, "image", "images")
    print(f"{found_boxes} in {of_images}: {outputs.folder}")
    if images and not boxes:
        print(
            f"the best score is {best:.3g}, and a box must score more than --score-threshold "
            f"{score_threshold:g}"
        )
    check_all_read(failures)


def log_unreadable(path: Path, error: BaseException) -> None:
    """Name a file that cannot be read; the others are done before :func:`check_all_read`."""
    message = str(error) or type(error).__name__
    place = "" if str(path) in message else f"{path}: "
    logger.error("not done: %s%s", place, message)


def check_all_read(failures: int) -> None:
    """Raise a UserError if some files could not be read."""
    if failures:
        raise UserError(f"{failures} of the files could not be read, as named above; all others are done")


def output_name(name: str, form: str) -> str:
    """The file, below the output folder, that one of FORMATS writes for the image or frame `name`."""
    if form == "coco":
        return "detections.json"
    folder, suffix = {"pictures": ("pictures", ".jpg"), "voc": ("Annotations", ".xml")}[form]
    return (PurePosixPath(folder) / name).with_suffix(suffix).as_posix()


def command_key(paths: Sequence[Path], checkpoint: Path, score_threshold: float, stride: int) -> str:
    """What the results depend on: the same command has the same key, and replaces its earlier results."""
    check_regular(checkpoint, "checkpoint")
    words = [file_digest(checkpoint), score_threshold, stride, *sorted(str(path.resolve()) for path in paths)]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def check_outputs(
    outputs: OutputFolder, sources: dict[str, Path], formats: Sequence[str], stride: int
) -> None:
    """Raise a UserError, before any work, where a file to write is an input or one that others made."""
    names = []
    for name, path in sources.items():
        if is_video(path):
            names += [frame_name(name, i * stride) for i in range(count_frames(path, stride))]
        else:
            names.append(name)
    files = {output_name(name, form) for name in names for form in formats}
    inputs = {path.resolve() for path in sources.values()}
    for file in sorted(files):
        if outputs.path(file).resolve() in inputs:
            raise UserError(
                f"{outputs.path(file)} is one of the input pictures and would be replaced: "
                "name another folder to write to (--output)"
            )
    outputs.check(sorted(files))


def ahead(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[tuple[T, Future[R]]]:
    """Yield each item with the future of `function(item)`, in order, computed in threads.

    For functions that release the GIL, as those of OpenCV and torch do.

    Up to `threads` calls run at a time, and up to twice as many results wait to be consumed. The items are
    iterated in the caller's thread.
    """
    with ThreadPoolExecutor(threads) as pool:
        begun: deque[tuple[T, Future[R]]] = deque()
        try:
            for item in items:
                begun.append((item, pool.submit(function, item)))
                if len(begun) > 2 * threads:
                    yield begun.popleft()
            while begun:
                yield begun.popleft()
        finally:
            for _, future in begun:
                future.cancel()


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
        except UNREADABLE as error:
            yield Source(name, path, error)


def score_sources(predictor: Predictor, sources: Iterable[Source]) -> Iterator[tuple[Tensor, Scores] | None]:
    """Each image (3, H, W) and its scores; None: it cannot be read, which is logged.

    Finding proposals takes most of the time: while the model runs on one image, threads find those of the
    next images.
    """

    def search(source: Source) -> tuple[Tensor, Tensor | None]:
        if isinstance(source.image, Exception):
            raise source.image
        image = open_image(source.image)
        return image, predictor.find_proposals(image)

    # One per core, at most 8, as each may hold two images of a gigabyte.
    threads = min(max(1, usable_cores() // local_world_size()), 8)
    for source, searched in ahead(search, sources, threads):
        try:
            image, proposals = searched.result()
            scored = image, predictor.scores(image, proposals, source.name)
        except (*UNREADABLE, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            log_unreadable(source.path, error)
            scored = None
        yield scored


def frame_name(video: str, number: int) -> str:
    """The name of a frame, as if the video were a folder of images."""
    return f"{Path(video).with_suffix('').as_posix()}/frame_{number:06d}.jpg"
