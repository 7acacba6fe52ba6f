"""Proposals of many images: found in worker processes, resumed where that was interrupted."""

import json
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from detector.data.grid import grid_boxes
from detector.data.images import read_image
from detector.data.proposals import save_proposals

Finder = Callable[[np.ndarray], np.ndarray]  # image (H, W, 3) uint8 RGB -> boxes (R, 4) float32 in its pixels
Found = tuple[tuple[int, int], np.ndarray]  # size (height, width) of an image and its boxes (R, 4) float32
_BYTES_A_BOX = 16


def make_finder(mode: str, longest_side: int) -> tuple[Finder, Mapping[str, object]]:
    """The search of a mode, and all that decides what it finds.

    Args:
        mode: "quality" or "fast" selective search, or "grid".
        longest_side: of :func:`selective_search`; a grid has no use for it.

    Raises:
        ImportError: OpenCV without ximgproc, which selective search needs; says how to mend it.
    """
    if mode == "grid":
        return grid_boxes, {"mode": mode}
    import cv2  # here, as a grid needs no OpenCV

    from detector.data.selective_search import require_ximgproc, selective_search

    require_ximgproc()
    parameters = {"mode": mode, "longest_side": longest_side, "opencv": cv2.__version__}
    return partial(selective_search, mode=mode, longest_side=longest_side), parameters


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

    What is done is kept in a journal beside `output` until all is done, and a second call goes on from there.
    The file has the same bytes whatever the number of workers and of interruptions.

    Args:
        images: file of each image id.
        output: the .npz file to write.
        find: the search; a function that can be sent to another process.
        parameters: all that decides what `find` finds, as plain values; written to the journal.
        workers: processes.
        apply_orientation: of :func:`read_image`.

    Raises:
        ValueError: the journal was begun with other parameters; or some images could not be read, in which
            case all others have been done and are in the journal.
    """
    output = Path(output)
    failures: dict[str, str] = {}
    begun = {**parameters, "apply_orientation": apply_orientation}
    with Journal(output.with_name(f"{output.name}.partial"), begun) as journal:
        waiting = {image_id: path for image_id, path in images.items() if image_id not in journal.entries}
        with closing(search_all(waiting, find, apply_orientation, workers)) as results:
            done = len(images) - len(waiting)
            for image_id, result in tqdm(
                results, total=len(images), initial=done, unit="image", disable=None
            ):
                if isinstance(result, str):
                    failures[image_id] = result
                else:
                    journal.add(image_id, result)
        if failures:
            lines = "".join(f"\n  {failures[image_id]}" for image_id in images if image_id in failures)
            raise ValueError(
                f"{len(failures)} of {len(images)} images could not be read:{lines}\n"
                "The others are done: mend or remove these, then run the same command again."
            )
        entries = [journal.entries[image_id] for image_id in images]
        sizes = [(entry.height, entry.width) for entry in entries]
        save_proposals(output, list(images), JournalBoxes(journal, entries), sizes)
    journal.path.unlink()
    return [entry.count for entry in entries]


def search_all(
    images: Mapping[str, Path], find: Finder, apply_orientation: bool, workers: int
) -> Generator[tuple[str, Found | str], None, None]:
    """What was found in each image, or why it could not be read, as they get done."""
    if workers <= 1:
        for image_id, path in images.items():
            yield search(image_id, path, find, apply_orientation)
        return
    # Spawned, not forked: a fork of a process with threads (OpenCV's, torch's) may hang.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=use_one_thread, initargs=(find,))
    try:
        # Ctrl-C is for this process, which stops its workers: they start here, with the signal blocked.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            tasks = [
                pool.submit(search, name, path, find, apply_orientation) for name, path in images.items()
            ]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for task in as_completed(tasks):
            yield task.result()
    finally:
        pool.shutdown(cancel_futures=True)


def use_one_thread(find: Finder) -> None:
    """Keeps OpenCV, where receiving `find` has imported it, to one core: the processes use them all."""
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(1)


def search(image_id: str, path: Path, find: Finder, apply_orientation: bool) -> tuple[str, Found | str]:
    try:
        image = read_image(path, apply_orientation=apply_orientation).permute(1, 2, 0).numpy()  # (H, W, 3)
    except (FileNotFoundError, ValueError) as error:
        return image_id, str(error)
    return image_id, (image.shape[:2], find(image))


class Entry(NamedTuple):
    """Where the journal has the boxes of an image."""

    height: int
    width: int
    count: int  # boxes
    start: int  # byte in the file


class Journal:
    """The images done so far: a file, to which each is added as it gets done, and a list of its `entries`.

    The file is a line of parameters, then for every image a line of JSON and the bytes of its boxes. An image
    whose bytes break off, as when the machine stopped, is forgotten; all before it are kept.
    """

    def __init__(self, path: Path, parameters: Mapping[str, object]):
        self.path = path
        self.entries: dict[str, Entry] = {}
        self._file = open(path, "a+b")  # noqa: SIM115  closed by __exit__
        try:
            self._read(json.dumps(parameters))
        except BaseException:
            self._file.close()
            raise

    def _read(self, parameters: str) -> None:
        self._file.seek(0)
        header = self._file.readline()
        if header != f"{parameters}\n".encode():
            if self._file.read(1):
                raise ValueError(
                    f"{self.path} was begun with other parameters: {header!r} instead of {parameters}. "
                    "Run again with those, or delete it to begin anew."
                )
            # New, or broken off before the first image.
            self._file.truncate(0)
            self._write(f"{parameters}\n".encode())
            return
        end = self._file.tell()
        while (line := self._file.readline()).endswith(b"\n"):
            try:
                image_id, height, width, count = json.loads(line)
            except ValueError:
                break
            entry = Entry(height, width, count, self._file.tell())
            if len(self._file.read(_BYTES_A_BOX * count)) < _BYTES_A_BOX * count:
                break
            self.entries[image_id] = entry
            end = self._file.tell()
        self._file.truncate(end)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()

    def add(self, image_id: str, found: Found) -> None:
        (height, width), boxes = found
        line = f"{json.dumps([image_id, int(height), int(width), len(boxes)])}\n".encode()
        start = self._file.seek(0, os.SEEK_END) + len(line)
        self._write(line + boxes.astype("<f4").tobytes())
        self.entries[image_id] = Entry(height, width, len(boxes), start)

    def read(self, entry: Entry) -> np.ndarray:
        """The boxes (R, 4) of an image."""
        self._file.seek(entry.start)
        return np.frombuffer(self._file.read(_BYTES_A_BOX * entry.count), "<f4").reshape(-1, 4)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class JournalBoxes(Sequence[np.ndarray]):
    """The boxes of entries, read from the journal one at a time: all would fill the memory."""

    def __init__(self, journal: Journal, entries: Sequence[Entry]):
        self._journal, self._entries = journal, entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._journal.read(self._entries[index])
