"""Testing a detector on a data set, image by image; several processes share the images, and a test that was
killed resumes.

The results of each process are cached in a file of records (detector/utils/records.py). Its name has the key
of the test, so that a test with other weights or another config does not read it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from detector.structures import Detections, Scores
from detector.utils.distributed import gather, rank, world_size
from detector.utils.outputs import SameFolder
from detector.utils.records import append_record, read_records


@dataclass(frozen=True)
class ImageResult:
    """What was found in one image, on the CPU: all that the metrics are computed from."""

    image_id: str
    detections: Detections
    best_boxes: Tensor  # (C, 4) the box of each class that scores highest; (0, 4) without proposals
    best_scores: Tensor  # (C,) its score; (C,) zeros without proposals


def image_result(scores: Scores, postprocess: Callable[[Scores], Detections] | None) -> ImageResult:
    """Reduce the scores of an image's proposals to the stored result, without detections if there is no
    `postprocess`.
    """
    number, classes = scores.scores.shape
    boxes, best = scores.boxes.new_zeros(0, 4), scores.scores.new_zeros(classes)
    if number:
        best, rows = scores.scores.max(dim=0)  # (C,)
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
) -> list[ImageResult]:
    """The results of images, in their order; those that an earlier test, which was killed, has are reused.

    Of several processes each tests a part of the images; all return the results of all.

    Args:
        predict: the scores of the images of some indices, in their order.
        image_ids: of all images.
        path: results are written as they come to one file for each process, PATH-KEY.RANK.jsonl.
        key: identifies what the results depend on; its first 16 characters are in the names of the files.
    """
    path = path.with_name(f"{path.name}-{key[:16]}")
    found: dict[str, Any] = {}
    for file in sorted(path.parent.glob(f"{path.name}.*.jsonl")):
        found |= {record["image_id"]: record for record in read_records(file)}
    gather(None)  # all have read before one writes
    left = [index for index, image_id in enumerate(image_ids) if image_id not in found]
    own, added = left[rank() :: world_size()], []
    place = SameFolder(path.parent)
    for scores in predict(own) if own else ():
        added.append(_as_record(image_result(scores, postprocess)))
        place.check()
        append_record(path.with_name(f"{path.name}.{rank()}.jsonl"), added[-1])
    for records in gather(added):
        found |= {record["image_id"]: record for record in records}
    return [_from_record(found[image_id]) for image_id in image_ids]


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
        "boxes": found.boxes.tolist(),
        "scores": found.scores.tolist(),
        "labels": found.labels.tolist(),
        "best_boxes": result.best_boxes.tolist(),
        "best_scores": result.best_scores.tolist(),
    }


def _from_record(record: dict[str, Any]) -> ImageResult:
    boxes, scores = torch.tensor(record["boxes"]).reshape(-1, 4), torch.tensor(record["scores"])
    labels = torch.tensor(record["labels"], dtype=torch.int64)
    return ImageResult(
        record["image_id"],
        Detections(record["image_id"], boxes, scores, labels),
        torch.tensor(record["best_boxes"]).reshape(-1, 4),
        torch.tensor(record["best_scores"]),
    )
