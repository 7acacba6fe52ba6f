"""thresholds.json of a run folder: the scores above which boxes of each class are shown and written.

`detector test` chooses them (detector/evaluation/thresholds.py). AP does not depend on them.
"""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages
from detector.evaluation.summary import encode_json
from detector.evaluation.thresholds import FALLBACK, Threshold, choose_thresholds
from detector.inference.zoo import released
from detector.structures import Detections
from detector.utils.errors import DataError, shortened
from detector.utils.files import file_digest, read_json, reading

logger = logging.getLogger(__name__)

FILE = "thresholds.json"
ScoreThreshold = float | Literal["auto"]  # "auto": those of the run, or FALLBACK where there are none

_AGAIN = "run `detector test` again, or remove the file"


def choose(test_set: AnnotatedImages, detections: Sequence[Detections]) -> list[Threshold]:
    """Thresholds from the detections in all images of the test split; see :func:`choose_thresholds`."""
    labels, indices = torch.from_numpy(test_set.all_labels()), range(len(test_set))  # (N, C) bool
    known = torch.ones(1, dtype=torch.bool).expand(labels.shape)  # in no memory
    if len(labels) and test_set.unknown(0) is not None:  # then there are some of every image
        known = torch.stack([~row for index in indices if (row := test_set.unknown(index)) is not None])
    truth = [test_set.annotation(index) for index in indices]
    return choose_thresholds(detections, truth, labels, known)


def encode(chosen: Sequence[Threshold], class_names: Sequence[str], weights_sha256: str) -> bytes:
    """The content of the file."""
    classes = {name: threshold._asdict() for name, threshold in zip(class_names, chosen, strict=True)}
    return encode_json({"weights_sha256": weights_sha256, "classes": classes})


def read(folder: Path, class_names: Sequence[str], weights_sha256: str) -> list[Threshold] | None:
    """The thresholds in a folder; None if there are none, or they are of other weights.

    Raises:
        DataError: the file is damaged, or of other classes.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    content = read_json(path, "thresholds")
    with reading(path, "thresholds"):
        classes = content.get("classes")
        if not isinstance(classes, dict) or list(classes) != list(class_names):
            found = (
                f"the classes {shortened(list(classes), 5)}" if isinstance(classes, dict) else "no classes"
            )
            raise DataError(f"it has {found}, expected {shortened(class_names, 5)}; {_AGAIN}")
        chosen = [_threshold(name, row) for name, row in classes.items()]
    return chosen if content.get("weights_sha256") == weights_sha256 else None


def of_checkpoint(weights: Path, class_names: Sequence[str]) -> list[Threshold] | None:
    """The thresholds that were chosen for a checkpoint: of its folder, as :func:`read`, or of its release."""
    if (weights.parent / FILE).is_file():
        return read(weights.parent, class_names, file_digest(weights))
    if (known := released(weights)) is None:
        return None
    return [Threshold(known.thresholds[name], "boxes", math.nan) for name in class_names]


def _threshold(name: str, row: Any) -> Threshold:
    fields = row if isinstance(row, dict) else {}
    value, f1 = fields.get("value", -1), fields.get("f1", -1)
    if not (_is_share(value) and _is_share(f1)):
        raise DataError(f"the entry of {name} is {row!r}, expected a value and an f1 from 0 to 1; {_AGAIN}")
    return Threshold(float(value), str(fields.get("rule")), float(f1))


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def find_thresholds(
    weights: Path,
    class_names: Sequence[str],
    score_threshold: ScoreThreshold = "auto",
    fallback: float = FALLBACK,
) -> Tensor:
    """(C,) float32: a number for every class, or what was chosen for the weights, else `fallback`."""
    if score_threshold == "auto":
        chosen = of_checkpoint(weights, class_names)
        values = (
            [fallback] * len(class_names) if chosen is None else [threshold.value for threshold in chosen]
        )
        return torch.tensor(values, dtype=torch.float32)
    return torch.full((len(class_names),), float(score_threshold))


def describe(weights: Path, class_names: Sequence[str]) -> str:
    """One line on the thresholds that "auto" stands for."""
    chosen = of_checkpoint(weights, class_names)
    if chosen is None:
        folder = weights.parent.parent if weights.parent.name == "self_train" else weights.parent
        return f"a box scores more than {FALLBACK:g}; detector test {folder} chooses this for each class"
    path = weights.parent / FILE
    return f"{in_words(chosen, class_names)} ({path if path.is_file() else 'docs/model_zoo.md'})"


def in_words(chosen: Sequence[Threshold], class_names: Sequence[str]) -> str:
    """For example `a box scores more than cat 0.41, dog 0.62`."""
    each = [f"{name} {row.value:.2f}" for name, row in zip(class_names, chosen, strict=True)]
    return f"a box scores more than {shortened(each, 8)}"
