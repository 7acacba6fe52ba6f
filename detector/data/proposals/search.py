"""Finds the proposals of many images in worker processes; an interrupted search is resumed."""

import base64
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from detector.data.images import read_image
from detector.data.large_images import open_image_file
from detector.data.proposals import selective_search
from detector.data.proposals.corners import corner_boxes
from detector.data.proposals.file import save_proposals
from detector.data.proposals.grid import grid_boxes
from detector.data.proposals.tiled import TiledSearch, find_in
from detector.utils.distributed import gather, is_main, rank, sync_errors, world_size
from detector.utils.errors import DataError, UserError, is_out_of_memory
from detector.utils.files import name_beside
from detector.utils.folder_lock import file_lock
from detector.utils.lazy import Lazy
from detector.utils.progress import progress_bar
from detector.utils.records import ImageRecords, append_record, read_records
from detector.utils.workers import WorkerLost, map_in_processes

Finder = Callable[[np.ndarray], np.ndarray]  # image (H, W, 3) uint8 RGB -> boxes (R, 4) float32 in its pixels
Found = tuple[tuple[int, int], np.ndarray]  # (height, width) of an image and its boxes (R, 4) float32
Mode = Literal["quality", "fast", "opencv_quality", "opencv_fast", "corners", "grid"]


def make_finder(
    mode: Mode = "quality",
    longest_side: int = 300,
    min_region: int = 100,
    sides: Sequence[float] = (16.0, 64.0),
) -> tuple[Finder, Mapping[str, object]]:
    """The search function of a mode, and all parameters that affect its result.

    Args:
        mode: "quality" or "fast" selective search, with "opencv_" OpenCV's, "corners", or "grid".
        longest_side: larger images are scaled down to it for selective search; the last two do not use it.
        min_region: size of the smallest region of our selective search in pixels of the copy.
        sides: of :func:`corner_boxes`.

    Raises:
        ImportError: OpenCV's search without its contrib modules; says how to install them.
    """
    parameters = {"mode": mode, "longest_side": longest_side}
    if mode == "grid":
        return grid_boxes, {"mode": mode}
    if mode == "corners":
        return partial(corner_boxes, sides=tuple(sides)), {"mode": mode, "sides": list(sides)}
    if mode == "quality" or mode == "fast":
        options = {**parameters, "min_region": min_region}
        return partial(selective_search.search_image, **options), options  # type: ignore[arg-type]
    import cv2  # optional

    from detector.data.proposals import opencv

    opencv.require_ximgproc()
    thoroughness: opencv.Mode = "quality" if mode == "opencv_quality" else "fast"
    find = partial(opencv.search_image, mode=thoroughness, longest_side=longest_side)
    return find, {**parameters, "opencv": cv2.__version__}


def propose(
    images: Mapping[str, Path],
    output: str | Path,
    find: Finder,
    parameters: Mapping[str, object],
    *,
    workers: int,
    apply_orientation: bool = False,
) -> list[int]:
    """Searches images, writes their proposals to a file and returns the number of boxes of each.

    Results are kept in a journal beside `output` until the search is complete; another call resumes there.
    The bytes of the file do not depend on the number of workers or on interruptions. Under torchrun the
    processes share the images, and the main process writes the file; the others return no numbers.

    Args:
        images: file of each image id.
        output: the .npz file to write; its folder must exist, and the file must not.
        find: the search; a function that can be sent to another process.
        parameters: everything that affects the result of `find`, as plain values; written to the journal.
        workers: processes.
        apply_orientation: of :func:`read_image`.

    Raises:
        FileExistsError: `output` exists.
        DataError: the journal was begun with other parameters; or some images could not be read, in which
            case all others are in the journal.
        UserError: another process is making the same file, or a worker process was killed.
    """
    output, done = Path(output), set[str]()
    begun = {**parameters, "apply_orientation": apply_orientation}
    with ExitStack() as stack:
        with sync_errors():
            stack.enter_context(file_lock(output))
            if output.exists():
                raise FileExistsError(f"{output} exists: delete it to make it again")
            if is_main():  # only the main process reads journals, before any is written
                done = set(_read_journals(output, begun))
        done = gather(done)[0]
        waiting = ((image_id, path) for image_id, path in images.items() if image_id not in done)
        share = dict(islice(waiting, rank(), None, world_size()))
        failures: dict[str, str] = {}
        # The main process writes the same journal as a process without torchrun.
        journal = name_beside(output, suffix=".partial")
        journal = journal.with_name(f"{journal.name}.{rank()}") if rank() else journal
        with sync_errors(), closing(search_all(share, find, apply_orientation, workers)) as results:
            if not journal.exists():
                append_record(journal, {"parameters": begun})
            initial = 0 if world_size() > 1 else len(images) - len(share)
            total = initial + len(share)
            bar = progress_bar(results, total=total, initial=initial, desc="proposals", shown=is_main())
            for image_id, result in bar:
                if isinstance(result, str):
                    failures[image_id] = result
                else:
                    append_record(journal, as_record(image_id, result))
        failures = {image_id: text for part in gather(failures) for image_id, text in part.items()}
        with sync_errors():
            if failures:
                lines = "".join(f"\n  {failures[image_id]}" for image_id in images if image_id in failures)
                raise DataError(
                    f"{len(failures)} of {len(images)} images could not be read:{lines}\n"
                    "The others are done: repair these, or remove them and their labels, then run the same "
                    "command again."
                )
            if not is_main():
                return []
            records, image_ids = _read_journals(output, begun), list(images)
            found = Lazy(lambda index: _from_record(records[image_ids[index]]), len(image_ids))
            sizes, counts = [], list[int]()
            for size, boxes in found:
                sizes.append(size)
                counts.append(len(boxes))
            save_proposals(output, image_ids, found.map(lambda each: each[1]), sizes)
            for path in _list_journals(output):
                path.unlink()
        return counts


def _list_journals(output: Path) -> list[Path]:
    """The journals of all processes, including those of an earlier run with more processes."""
    first = name_beside(output, suffix=".partial")
    beside = first.parent.glob(f"{escape(first.name)}*")
    return sorted(path for path in beside if re.fullmatch(r"(\.\d+)?", path.name[len(first.name) :]))


def _read_journals(output: Path, parameters: Mapping[str, object]) -> ImageRecords:
    for path in _list_journals(output):
        begun = next(read_records(path), {}).get("parameters")
        if begun is None:
            raise DataError(f"{path} is damaged or not a journal of this version: delete it to start over")
        if begun != parameters:
            raise DataError(
                f"{path} was begun with other parameters: {begun}, expected {parameters}. Delete it to start "
                "over, or run again with its parameters"
            )
    return ImageRecords(_list_journals(output))


def as_record(image_id: str, found: Found) -> dict[str, Any]:
    """The result of one image as a record of the journal."""
    size, boxes = found
    content = base64.b64encode(boxes.astype("<f4").tobytes()).decode()
    return {"image_id": image_id, "size": list(size), "boxes": content}


def _from_record(record: Mapping[str, Any]) -> Found:
    height, width = record["size"]
    return (height, width), np.frombuffer(base64.b64decode(record["boxes"]), "<f4").reshape(-1, 4)


def search_all(
    images: Mapping[str, Path], find: Finder, apply_orientation: bool, workers: int
) -> Generator[tuple[str, Found | str], None, None]:
    """The result of each image, or why it could not be read, in the order of completion.

    At most two images per worker are searched or wait for the caller, to limit the memory.

    Raises:
        UserError: a worker process was killed, or had too little memory.
    """
    if workers <= 1:
        for image in images.items():
            yield search(image, find, apply_orientation)
        return
    begin = partial(begin_worker, find, apply_orientation)
    try:
        with closing(map_in_processes(begin, images.items(), workers)) as results:
            yield from results
    except WorkerLost as error:
        raise UserError(
            "a worker process was killed, perhaps because the memory was full: run the same command with "
            f"fewer --workers than {workers}, and it resumes there"
        ) from error
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"a worker process had too little memory ({str(error).strip() or type(error).__name__}): run the "
            f"same command with fewer --workers than {workers}, and it resumes there"
        ) from error


def begin_worker(
    find: Finder, apply_orientation: bool
) -> Callable[[tuple[str, Path]], tuple[str, Found | str]]:
    """Set up a worker process and return its function, which searches one image.

    Torch, and OpenCV if `find` imports it, use one core, as there is one worker per core.
    """
    torch.set_num_threads(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)
    return partial(search, find=find, apply_orientation=apply_orientation)


def search(image: tuple[str, Path], find: Finder, apply_orientation: bool) -> tuple[str, Found | str]:
    """The id of an image, and its result or why its file could not be read."""
    image_id, path = image
    read = open_image_file if isinstance(find, TiledSearch) else read_image
    try:
        pixels = read(path, apply_orientation=apply_orientation)
        boxes = find_in(find, pixels)
    except (OSError, UserError) as error:  # the pixels of a large image are read in the search
        return image_id, str(error)
    height, width = pixels.shape[1:]
    return image_id, ((height, width), boxes)
