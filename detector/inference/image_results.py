"""Testing a detector on a data set, image by image; several processes share the images, and a test that was
killed resumes.

The results of each process are cached in a file of records (detector/utils/records.py). Its name has the key
of the test, so that a test with other weights or another config does not read it. The metrics are computed
from these files, image by image, so that a test may have more images than the memory holds results.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from detector.structures import Detections, Scores
from detector.utils.distributed import gather, rank, world_size
from detector.utils.lazy import Lazy
from detector.utils.outputs import SameFolder
from detector.utils.records import ImageRecords, append_record


@dataclass(frozen=True)
class ImageResult:
    """What was found in one image, on the CPU: all that the metrics are computed from."""

    image_id: str
    detections: Detections
    # (C, 4) the best box of each class, for CorLoc; (0, 4) with detections, or without proposals
    best_boxes: Tensor
    best_scores: Tensor  # (C,) its score; (C,) zeros without proposals


def image_result(scores: Scores, postprocess: Callable[[Scores], Detections] | None) -> ImageResult:
    """Reduce the scores of an image's proposals to the stored result: detections, or without `postprocess`
    the best box of each class.
    """
    number, classes = scores.scores.shape
    boxes, best = scores.boxes.new_zeros(0, 4), scores.scores.new_zeros(classes)
    if number:
        best, rows = scores.scores.max(dim=0)  # (C,)
        if postprocess is None:
            boxes = scores.boxes[rows, torch.arange(classes, device=rows.device)]  # (C, 4)
    if postprocess is None:
        found = Detections(scores.image_id, boxes[:0], best[:0], torch.zeros(0, dtype=torch.int64))
    else:
        found = postprocess(scores)
    return ImageResult(scores.image_id, found.to("cpu"), boxes.cpu(), best.cpu())


def test_images(
    predict: Callable[[Sequence[int]], Iterable[Scores]],
    image_ids: Sequence[str],
    postprocess: Callable[[Scores], Detections] | None,
    *,
    path: Path,
    key: str,
) -> Lazy[ImageResult]:
    """The results of images, in their order; those that an earlier test, which was killed, has are reused.

    Of several processes each tests a part of the images; all return the results of all. A result is read when
    it is asked for, so :func:`remove_results` comes last.

    Args:
        predict: the scores of the images of some indices, in their order.
        image_ids: of all images.
        path: results are written as they come to one file for each process, PATH-KEY.RANK.jsonl.
        key: identifies what the results depend on; its first 16 characters are in the names of the files.
    """
    path = path.with_name(f"{path.name}-{key[:16]}")

    def read_all() -> ImageRecords:
        return ImageRecords(sorted(path.parent.glob(f"{path.name}.*.jsonl")))

    found = read_all()
    gather(None)  # all have read before one writes
    left = [index for index, image_id in enumerate(image_ids) if image_id not in found]
    own = left[rank() :: world_size()]
    place = SameFolder(path.parent)
    for scores in predict(own) if own else ():
        place.check()
        record = _as_record(image_result(scores, postprocess))
        append_record(path.with_name(f"{path.name}.{rank()}.jsonl"), record)
    gather(None)  # all have written
    records = read_all() if left else found
    return Lazy(lambda index: _from_record(records[image_ids[index]]), len(image_ids))


test_images.__test__ = False  # type: ignore[attr-defined]  # not a test case, whatever pytest thinks


def remove_results(folder: Path, key: str) -> None:
    """Delete the files of a test from a folder, and the folder if nothing is left in it."""
    for path in folder.glob(f"*-{key[:16]}.*.jsonl"):
        path.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _as_record(result: ImageResult) -> dict[str, Any]:
    found = result.detections
    return {
        "image_id": result.image_id,
        "boxes": _encode(found.boxes.float()),
        "scores": _encode(found.scores.float()),
        "labels": _encode(found.labels.int()),
        "best_boxes": _encode(result.best_boxes.float()),
        "best_scores": _encode(result.best_scores.float()),
    }


def _from_record(record: dict[str, Any]) -> ImageResult:
    boxes, scores, best_boxes, best_scores = (
        _decode(record[name], "<f4") for name in ("boxes", "scores", "best_boxes", "best_scores")
    )
    labels = _decode(record["labels"], "<i4").long()
    found = Detections(record["image_id"], boxes.reshape(-1, 4), scores, labels)
    return ImageResult(record["image_id"], found, best_boxes.reshape(-1, 4), best_scores)


def _encode(tensor: Tensor) -> str:
    return base64.b64encode(tensor.contiguous().numpy().tobytes()).decode()


def _decode(content: str | list, dtype: str) -> Tensor:
    if isinstance(content, list):  # of a test that version 0.1 began
        return torch.from_numpy(np.array(content, dtype))
    return torch.from_numpy(np.frombuffer(base64.b64decode(content), dtype).copy())
