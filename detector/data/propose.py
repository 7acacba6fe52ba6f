"""Proposals of many images: selective search in worker processes, resumed where it was interrupted."""

import json
import signal
from collections.abc import Generator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from detector.data.images import read_image
from detector.data.proposals import save_proposals
from detector.data.selective_search import Mode, require_ximgproc, selective_search

Found = tuple[tuple[int, int], np.ndarray]  # size (height, width) of an image and its boxes (R, 4) float32


def propose(
    images: Mapping[str, Path], output: str | Path, *, mode: Mode, longest_side: int, workers: int
) -> list[int]:
    """Searches images, writes their proposals to a file and returns the number of boxes of each.

    What is done is kept in a journal beside `output` until all is done, and a second call goes on from there.
    The file has the same bytes whatever the number of workers and of interruptions.

    Args:
        images: file of each image id.
        output: the .npz file to write.
        mode, longest_side: of :func:`selective_search`.
        workers: processes.

    Raises:
        ValueError: the journal was begun with other parameters or another OpenCV; or some images could not
            be read, in which case all others have been done and are in the journal.
    """
    require_ximgproc()
    output = Path(output)
    parameters = {"mode": mode, "longest_side": longest_side, "opencv": cv2.__version__}
    failures: dict[str, str] = {}
    with Journal(output.with_name(f"{output.name}.partial"), parameters) as journal:
        waiting = {image_id: path for image_id, path in images.items() if image_id not in journal.found}
        with closing(search_all(waiting, mode, longest_side, workers)) as results:
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
    boxes = [journal.found[image_id][1] for image_id in images]
    save_proposals(output, list(images), boxes, [journal.found[image_id][0] for image_id in images])
    journal.path.unlink()
    return [len(rows) for rows in boxes]


def search_all(
    images: Mapping[str, Path], mode: Mode, longest_side: int, workers: int
) -> Generator[tuple[str, Found | str], None, None]:
    """What was found in each image, or why it could not be read, as they get done."""
    if workers <= 1:
        for image_id, path in images.items():
            yield search(image_id, path, mode, longest_side)
        return
    # Spawned, not forked: a fork of a process with threads (OpenCV's, torch's) may hang.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=cv2.setNumThreads, initargs=(1,))
    try:
        # Ctrl-C is for this process, which stops its workers: they start here, with the signal blocked.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            tasks = [pool.submit(search, name, path, mode, longest_side) for name, path in images.items()]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        for task in as_completed(tasks):
            yield task.result()
    finally:
        pool.shutdown(cancel_futures=True)


def search(image_id: str, path: Path, mode: Mode, longest_side: int) -> tuple[str, Found | str]:
    try:
        image = read_image(path).permute(1, 2, 0).numpy()  # (H, W, 3)
    except (FileNotFoundError, ValueError) as error:
        return image_id, str(error)
    return image_id, (image.shape[:2], selective_search(image, mode=mode, longest_side=longest_side))


class Journal:
    """The images done so far, in memory (`found`) and in a file, to which each is added as it gets done.

    The file is a line of parameters, then for every image a line of JSON and the bytes of its boxes. An image
    whose bytes break off, as when the machine stopped, is forgotten; all before it are kept.
    """

    def __init__(self, path: Path, parameters: Mapping[str, object]):
        self.path = path
        self.found: dict[str, Found] = {}
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
                boxes = np.frombuffer(self._file.read(16 * count), "<f4").reshape(count, 4)
            except ValueError:
                break
            self.found[image_id] = (height, width), boxes
            end = self._file.tell()
        self._file.truncate(end)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()

    def add(self, image_id: str, found: Found) -> None:
        (height, width), boxes = found
        line = json.dumps([image_id, int(height), int(width), len(boxes)])
        self._write(f"{line}\n".encode() + boxes.astype("<f4").tobytes())
        self.found[image_id] = found

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
