"""Readers of the proposal files of other projects, and of JSON lines for the boxes of any other source.

All boxes are converted to half-open x1, y1, x2, y2 in pixels, in descending order of score if the file has
scores.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detector.data.datasets.image_table import json_lines
from detector.data.pictures import files_below
from detector.data.proposals.file import FIELDS, load_proposals
from detector.data.proposals.matlab import load_mat
from detector.data.proposals.restricted_pickle import load_pickle
from detector.utils.errors import DataError, ErrorList, describe_value, shortened
from detector.utils.files import reading
from detector.utils.npz import open_npz

_KIND = "proposals file"  # in messages
_XYXY, _XYWH = 0, 1  # detectron2's BoxMode.XYXY_ABS and XYWH_ABS


class ForeignProposals(NamedTuple):
    """The boxes (R, 4) float32 and the id of each image of a file."""

    boxes: list[np.ndarray]
    image_ids: list[str] | None  # None: the file has no ids


def read_selective_search(path: Path) -> ForeignProposals:
    """Selective search or EdgeBoxes as published with Fast R-CNN: a .mat file.

    Its cells `boxes` are (R, 4) ymin, xmin, ymax, xmax, 1-based and inclusive; most files have the cells
    `images`, names.
    """
    with reading(path, _KIND):
        content = load_mat(path, ("boxes", "images"))
        boxes = [_from_mat(cell) for cell in _cells(_field(content, "boxes"))]
        if "images" not in content:
            return ForeignProposals(boxes, None)
        image_ids = [_text(cell) for cell in _cells(content["images"])]
        if len(image_ids) != len(boxes):
            raise DataError(f"it has boxes of {len(boxes)} images and {len(image_ids)} names")
    return ForeignProposals(boxes, image_ids)


def read_mcg(path: Path) -> ForeignProposals:
    """MCG's downloads: a folder of ID.mat with `boxes` or `bboxes`, as in :func:`read_selective_search`."""
    files = files_below(path, (".mat",))
    if not files:
        raise DataError(f"{path} is not a folder of .mat files")
    boxes = []
    for file in files:
        with reading(file, _KIND):
            content = load_mat(file, ("boxes", "bboxes", "scores", "bboxes_scores"))
            scores = content.get("scores", content.get("bboxes_scores"))
            boxes.append(_best_first(_from_mat(_field(content, "boxes", "bboxes")), scores))
    return ForeignProposals(boxes, [file.stem for file in files])


def read_detectron(path: Path) -> ForeignProposals:
    """Detectron's .pkl, which PCL and wetectron share: lists `boxes`, `indexes` or `ids`, `scores`.

    Boxes are x1, y1, x2, y2, 0-based and inclusive.
    """
    return _from_pickle(path, lambda boxes, _: boxes + np.array([0, 0, 1, 1], np.float32))


def read_detectron2(path: Path) -> ForeignProposals:
    """detectron2's .pkl: lists `boxes`, `ids`, `objectness_logits`, and `bbox_mode`; boxes are half-open."""
    return _from_pickle(path, _from_box_mode)


def read_npz(path: Path) -> ForeignProposals:
    """An .npz file with an array (R, 4) of half-open boxes under each image id; or a file of this package."""
    with open_npz(path, _KIND) as file:
        if not set(FIELDS) <= set(file):
            boxes = []
            for name in file:
                with reading(path, f"array {name} of the {_KIND}"):
                    boxes.append(_shaped(file[name]))
            return ForeignProposals(boxes, list(file))
    proposals = load_proposals(path)
    return ForeignProposals([image_boxes.numpy() for image_boxes in proposals.values()], list(proposals))


def read_json_lines(path: Path) -> ForeignProposals:
    """One image per line: {"image": id or file, "boxes": [[x1, y1, x2, y2], ...], "scores": [...]}.

    Boxes are half-open; the scores may be left out.
    """
    boxes, image_ids = [], []
    mistakes = ErrorList(path)
    with reading(path, _KIND), open(path, encoding="utf-8-sig") as file:
        for line, content in json_lines(file, mistakes):
            try:
                image_ids.append(_image_id(_field(content, "image")))
                boxes.append(_best_first(_shaped(_field(content, "boxes")), content.get("scores")))
            except DataError as error:
                mistakes.add(line, error)
    mistakes.check()
    return ForeignProposals(boxes, image_ids)


READERS: dict[str, Callable[[Path], ForeignProposals]] = {
    "selective_search": read_selective_search,
    "mcg": read_mcg,
    "detectron": read_detectron,
    "detectron2": read_detectron2,
    "npz": read_npz,
    "jsonl": read_json_lines,
}


# The errors of what follows do not name the file.


def _cells(array: Any) -> np.ndarray:
    """The cells of a Matlab array as a vector of objects."""
    if not isinstance(array, np.ndarray) or array.dtype.kind != "O":
        raise DataError("it has no cells of boxes and names: is it of another format?")
    return array.ravel()


def _text(cell: Any) -> str:
    """The name in a cell, or in a cell within the cell."""
    while isinstance(cell, np.ndarray) and cell.dtype.kind == "O" and cell.size == 1:
        cell = cell.ravel()[0]
    if not isinstance(cell, str):
        raise DataError(f"it has the image name {describe_value(cell)}, expected text")
    return cell


def _from_mat(boxes: Any) -> np.ndarray:
    y1, x1, y2, x2 = _shaped(boxes).T
    return np.stack([x1 - 1, y1 - 1, x2, y2], axis=1)


def _from_pickle(path: Path, convert: Callable[[np.ndarray, Any], np.ndarray]) -> ForeignProposals:
    with reading(path, _KIND):
        content = load_pickle(path)
        if not isinstance(content, dict):
            raise DataError(f"it holds a {type(content).__name__}, expected a dict of boxes, ids and scores")
        image_ids = [_image_id(value) for value in _field(content, "indexes", "ids")]
        boxes = _field(content, "boxes")
        scores = content.get("scores", content.get("objectness_logits"))
        scores = [None] * len(boxes) if scores is None else scores
        if not len(image_ids) == len(boxes) == len(scores):
            found = f"{len(boxes)} boxes, {len(image_ids)} ids, {len(scores)} scores"
            raise DataError(f"its lists differ in the number of images: {found}")
        mode = content.get("bbox_mode")
        rows = [_best_first(convert(_shaped(b), mode), s) for b, s in zip(boxes, scores, strict=True)]
    return ForeignProposals(rows, image_ids)


def _from_box_mode(boxes: np.ndarray, mode: Any) -> np.ndarray:
    if mode in (None, _XYXY):
        return boxes
    if mode == _XYWH:
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    raise DataError(
        f"bbox_mode is {describe_value(mode)}, expected {_XYXY} (x1, y1, x2, y2) or {_XYWH} (x, y, w, h) in "
        "pixels"
    )


def _field(content: dict, *names: str) -> Any:
    for name in names:
        if name in content:
            return content[name]
    known = [str(name) for name in content if not str(name).startswith("__")]
    raise DataError(f"it has no {' or '.join(names)}; it has {shortened(known) or 'nothing'}")


def _image_id(image_id: Any) -> str:
    if not isinstance(image_id, (str, int, float, np.generic)):
        raise DataError(
            f"it has a {type(image_id).__name__} as the id of an image, expected text or a number"
        )
    return str(image_id)


def _numbers(values: Any, kind: type) -> np.ndarray:
    """An array of the numbers in an array, a list, or a list of lists."""
    rows = values if isinstance(values, (list, tuple)) else ()
    # numpy would copy a list that many lists share for each of them, which can exhaust the memory.
    deeper = any(
        isinstance(value, (list, tuple)) for row in rows if isinstance(row, (list, tuple)) for value in row
    )
    with suppress(ValueError, OverflowError), np.errstate(over="ignore"):  # lists of different lengths
        array = np.asarray(None if deeper else values)
        if array.dtype.kind in "biuf":
            return array.astype(kind)
    raise DataError("it has boxes or scores that are not numbers")


def _shaped(boxes: Any) -> np.ndarray:
    """Boxes (R, 4) float32."""
    array = _numbers(boxes, np.float32)
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise DataError(f"it has boxes of the shape {array.shape}, expected (R, 4)")
    return array


def _best_first(boxes: np.ndarray, scores: Any) -> np.ndarray:
    if scores is None:
        return boxes
    values = _numbers(scores, np.float64).ravel()
    if len(values) != len(boxes):
        raise DataError(f"it has {len(boxes)} boxes of an image and {len(values)} scores")
    return boxes[np.argsort(-values, kind="stable")]
