"""Outputs of the model: Scores of proposals -> Detections."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from detector.structures.tensor_fields import TensorFields
from detector.utils.errors import MissingPackage

if TYPE_CHECKING:
    import pandas
    import supervision


@dataclass(frozen=True, eq=False)
class Scores(TensorFields):
    """Class scores of the R proposals of one image, averaged over test-time augmentation.

    Without a regression branch, `boxes` is a view that repeats each proposal for every class.
    """

    image_id: str
    boxes: Tensor  # (R, C, 4) float32 xyxy in pixels of the original image, one box per class
    scores: Tensor  # (R, C) float32 probabilities of the foreground classes
    tiles: int = 1  # into which the image was cut, each of which may have as many detections as an image


class Detection(NamedTuple):
    """One box, as numbers of Python: `for name, score, box in found`."""

    name: str  # "" unless a Predictor named the classes
    score: float
    box: tuple[float, float, float, float]  # xyxy in pixels of the original image


@dataclass(frozen=True, eq=False)
class Detections(TensorFields):
    """The D boxes detected in one image, in descending order of score.

    A container: `len(detections)` is D, and an integer, a slice, or a tensor of indices or booleans selects
    boxes, as in `detections[detections.scores > 0.5]`. Iteration yields a :class:`Detection` for each box.
    """

    image_id: str
    boxes: Tensor  # (D, 4) float32 xyxy in pixels of the original image
    scores: Tensor  # (D,) float32, descending
    labels: Tensor  # (D,) int64, foreground class index in [0, C)
    names: tuple[str, ...] = ()  # D class names; empty unless a Predictor filled them in

    def __len__(self) -> int:
        return len(self.scores)

    def __getitem__(self, index: int | slice | Tensor) -> "Detections":
        """The selected detections; one box for an integer, of Python, NumPy or torch.

        Raises:
            IndexError: an integer or a tensor of indices is out of range, or a mask has another length.
        """
        rows = torch.arange(len(self), device=self.scores.device)[index].flatten()
        names = tuple(self.names[row] for row in rows.tolist()) if self.names else ()
        return Detections(self.image_id, self.boxes[rows], self.scores[rows], self.labels[rows], names)

    def __iter__(self) -> Iterator[Detection]:
        names = self.names or ("",) * len(self)
        rows = zip(names, self.scores.tolist(), self.boxes.tolist(), strict=True)
        return (Detection(name, score, (x1, y1, x2, y2)) for name, score, (x1, y1, x2, y2) in rows)

    def to_coco(self, image_id: int | str | None = None) -> list[dict[str, Any]]:
        """Rows of COCO's results format: image_id, category_id from 1, bbox (x, y, width, height) and score.

        Args:
            image_id: the id of the image in a COCO file; None: that of the detections.
        """
        rows = zip(self.boxes.tolist(), self.scores.tolist(), self.labels.tolist(), strict=True)
        return [
            {
                "image_id": self.image_id if image_id is None else image_id,
                "category_id": label + 1,
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "score": score,
            }
            for (x1, y1, x2, y2), score, label in rows
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with a row for each box: image_id, x1, y1, x2, y2, score, label and, if known, name.

        Raises:
            MissingPackage: pandas is not installed.
        """
        columns = {"image_id": [self.image_id] * len(self)}
        columns |= dict(zip(("x1", "y1", "x2", "y2"), self.boxes.T.tolist(), strict=True))
        columns |= {"score": self.scores.tolist(), "label": self.labels.tolist()}
        columns |= {"name": list(self.names)} if self.names else {}
        return _require("pandas").DataFrame(columns)

    def to_supervision(self) -> "supervision.Detections":
        """Detections of the package `supervision`, with class names where its annotators read them.

        Raises:
            MissingPackage: supervision is not installed.
        """
        import numpy as np  # here, because detector.layers needs torch alone

        arrays = [tensor.cpu().numpy() for tensor in (self.boxes, self.scores, self.labels)]
        fields = dict(zip(("xyxy", "confidence", "class_id"), arrays, strict=True))
        data = {"class_name": np.array(self.names)} if self.names else {}
        return _require("supervision").Detections(**fields, data=data)

    def __repr__(self) -> str:
        """For example `Detections('a.jpg', 3 boxes: 2 x cat (best 0.91), 1 x dog (best 0.40))`."""
        best: dict[str, float] = {}
        counts: dict[str, int] = {}
        names = self.names or tuple(f"class {label}" for label in self.labels.tolist())
        for name, score in zip(names, self.scores.tolist(), strict=True):
            counts[name] = counts.get(name, 0) + 1
            best[name] = max(best.get(name, score), score)
        shown = ", ".join(f"{counts[name]} x {name} (best {best[name]:.2f})" for name in counts)
        boxes = f"{len(self)} box{'' if len(self) == 1 else 'es'}"
        return f"Detections({self.image_id!r}, {boxes}{': ' if shown else ''}{shown})"


def _require(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(f"the package {package} is not installed: pip install {package}") from error
