"""The least score of the boxes that a person is shown, from what was reviewed so far."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from detector.data.formats.review_file import State
from detector.structures import box_iou

_LEAST_IMAGES = 10  # reviewed, from which a score is suggested
_RIGHT, _REPLACED = 0.75, 0.3  # IoU of a box that needs no correction; of one that a drawn box replaces
_STEPS = [round(0.05 * step, 2) for step in range(21)]


def suggest_least_score(images: Sequence[tuple[Mapping[str, Any], State]]) -> float | None:
    """The least score that would have needed the fewest actions in these images; None: too few to tell.

    Args:
        images: `start` and state of each, see `detector.data.formats.review_file`.
    """
    if len(images) < _LEAST_IMAGES:
        return None
    saved = [each for start, state in images for each in saved_actions(start, state)]
    return max(_STEPS, key=lambda least: (sum(value for score, value in saved if score >= least), least))


def saved_actions(start: Mapping[str, Any], state: State) -> list[tuple[float, int]]:
    """The score of each found box, and how many actions it saves the person to be shown it.

    A right box saves drawing one (1), one that is off costs no more than drawing (0), any other has to be
    rejected (-1). The best box of each class is left out, since it is shown at any score.
    """
    rows = []
    found = [box for box in start["boxes"] if box["score"] is not None]
    for label in {box["label"] for box in found}:
        boxes = sorted((box for box in found if box["label"] == label), key=lambda box: -box["score"])
        final = [box for box in state["boxes"] if box["label"] == label and box["status"] == "accepted"]
        overlaps = box_iou(_tensor(boxes), _tensor(final)) if final else torch.zeros(len(boxes), 1)
        for number, box in enumerate(boxes):
            best, at = overlaps[number].max(dim=0)
            value = 1 if best >= _RIGHT else 0 if best >= _REPLACED else -1
            if value == 1:
                overlaps[:, at] = 0.0  # a second box of the same object is one too many
            if number > 0:
                rows.append((box["score"], value))
    return rows


def _tensor(boxes: Sequence[Mapping[str, Any]]) -> torch.Tensor:
    return torch.tensor([box["box"] for box in boxes], dtype=torch.float32)
