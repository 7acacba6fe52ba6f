"""Teachers of Hugging Face's `transformers`, run on the images of a data set."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from detector.data.datasets.coco_tools import STORED, UPRIGHT
from detector.data.teacher.entries import FoundBox
from detector.utils.errors import MissingPackage, UserError

_DETECT, _SEGMENT = "zero-shot-object-detection", "mask-generation"


class Teacher:
    """A model that finds boxes in images: of named classes, or masks of anything.

    Args:
        model: a folder that `save_pretrained` wrote, or a name on the Hugging Face Hub, which is downloaded
            without its code.
        prompts: names or descriptions of the classes (Grounding DINO, OWLv2, ...); none: the model segments
            everything (SAM).
        device: such as "cpu" or "cuda".
        threshold: least score of a box.

    Raises:
        MissingPackage: transformers is not installed.
        UserError: there is no such model, or it is for another task.
    """

    def __init__(self, model: str, prompts: Sequence[str], device: str, threshold: float):
        try:
            from transformers import pipeline
        except ModuleNotFoundError as error:
            raise MissingPackage(
                f"{error.name} is not installed: pip install 'detector-wsod[teacher]'"
            ) from error
        self.prompts, self.threshold = list(prompts), threshold
        task: Any = _DETECT if prompts else _SEGMENT
        try:
            self._pipeline: Any = pipeline(task, model=model, device=device)
        except (OSError, ValueError, KeyError, ImportError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise UserError(
                f"the model {model!r} cannot be used for {task}: {reason}. Expected a folder or a name on "
                "the Hugging Face Hub, of a model that finds classes by name, or one that segments (--masks)"
            ) from error

    def __call__(self, image: Tensor) -> list[FoundBox]:
        """The boxes in an image (3, H, W), uint8 RGB, in its pixels."""
        picture = Image.fromarray(image.permute(1, 2, 0).numpy())
        if not self.prompts:
            return [*_boxes_of_masks(self._pipeline(picture))]
        rows = self._pipeline(picture, candidate_labels=self.prompts, threshold=self.threshold)
        found = []
        for row in rows:
            x1, y1, x2, y2 = (float(row["box"][side]) for side in ("xmin", "ymin", "xmax", "ymax"))
            x1, y1, x2, y2 = max(0.0, x1), max(0.0, y1), min(x2, picture.width), min(y2, picture.height)
            if x1 < x2 and y1 < y2:
                found.append(FoundBox(str(row["label"]), (x1, y1, x2, y2), float(row["score"])))
        return found


def _boxes_of_masks(result: dict[str, Any]) -> Iterator[FoundBox]:
    """The box around each mask; the score of a mask is the estimate of its IoU, which may exceed 1."""
    for mask, score in zip(result["masks"], result["scores"], strict=True):
        rows, columns = np.nonzero(np.asarray(mask))
        if len(rows):
            box = float(columns.min()), float(rows.min()), float(columns.max() + 1), float(rows.max() + 1)
            yield FoundBox(None, box, min(1.0, max(0.0, float(score))))


def as_row(
    image_id: str, size: tuple[int, int], found: Sequence[FoundBox], *, upright: bool
) -> dict[str, Any]:
    """One line of a teacher's file: the boxes of an image of this (height, width).

    Args:
        upright: whether that is the picture as EXIF turns it, or as stored.
    """
    height, width = size
    image = {"file_name": image_id, "height": height, "width": width}
    image |= {"orientation": UPRIGHT if upright else STORED}
    boxes = [
        {"box": [round(side, 2) for side in box.box], "score": round(box.score, 5)}
        | ({} if box.label is None else {"label": box.label})
        for box in found
    ]
    return {"image": image, "boxes": boxes}
