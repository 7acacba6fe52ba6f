"""Images of files, folders and videos, and their scores: proposals of the next ones are found in threads."""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from detector.data.large_images import LargeImage
from detector.data.pictures import is_video, video_frames
from detector.inference.predictor import Predictor
from detector.structures import Scores
from detector.utils.command_line import usable_cores
from detector.utils.distributed import local_world_size
from detector.utils.errors import UserError, is_out_of_memory

logger = logging.getLogger(__name__)

UNREADABLE = (OSError, UserError, MemoryError)  # of one file, which is left out

T = TypeVar("T")
R = TypeVar("R")


def log_unreadable(path: Path, error: BaseException) -> None:
    """Name a file that cannot be read; the others are done before :func:`check_all_read`."""
    message = str(error) or type(error).__name__
    place = "" if str(path) in message else f"{path}: "
    logger.error("not done: %s%s", place, message)


def check_all_read(failures: int) -> None:
    """Raise a UserError if some files could not be read."""
    if failures:
        raise UserError(f"{failures} of the files could not be read, as named above; all others are done")


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


def score_sources(
    predictor: Predictor, sources: Iterable[Source]
) -> Iterator[tuple[Tensor | LargeImage, Scores] | None]:
    """Each image (3, H, W) and its scores; None: it cannot be read, which is logged.

    Finding proposals takes most of the time: while the model runs on one image, threads find those of the
    next images. One that is read in parts is opened when its turn comes, since several may fill the memory.
    """

    def search(source: Source) -> tuple[Tensor | None, Tensor | None]:
        if isinstance(source.image, Exception):
            raise source.image
        if predictor.reads_in_parts(source.image):
            return None, None
        image = predictor.open(source.image)
        assert isinstance(image, Tensor)
        return image, predictor.find_proposals(image)

    # One per core, at most 8, as each may hold two images of a gigabyte.
    threads = min(max(1, usable_cores() // local_world_size()), 8)
    for source, searched in ahead(search, sources, threads):
        try:
            found, proposals = searched.result()
            assert not isinstance(source.image, Exception)  # which the search raises
            image = predictor.open(source.image) if found is None else found
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
