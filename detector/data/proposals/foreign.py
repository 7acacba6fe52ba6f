"""Readers of the proposal files that circulate, and of a plain form for the boxes of any other source.

Whatever a file counts from and includes, its boxes leave as ours: half-open x1, y1, x2, y2 in pixels. Where
it has scores, the boxes leave best first.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detector.data.proposals.file import FIELDS, load_proposals
from detector.data.proposals.restricted_pickle import load_pickle
from detector.utils.errors import DataError, MissingPackage
from detector.utils.files import reading
from detector.utils.npz import NpzReader

_XYXY, _XYWH = 0, 1  # detectron2's BoxMode.XYXY_ABS and XYWH_ABS


class ForeignProposals(NamedTuple):
    """The boxes (R, 4) float32 of each image of a file, and the file's ids of the images."""

    boxes: list[np.ndarray]
    image_ids: list[str] | None  # None: it has none, only an order


def read_selective_search(path: Path) -> ForeignProposals:
    """Matlab's selective search as Fast R-CNN and its followers give it out, also their EdgeBoxes.

    One .mat file with the cells `boxes`, of (R, 4) ymin, xmin, ymax, xmax, 1-based and inclusive, and, in
    most, `images`, the names.
    """
    content = _load_mat(path)
    cells = _field(content, ("boxes",), path).ravel()
    names = content.get("images")
    image_ids = None if names is None else [str(np.ravel(cell)[0]) for cell in names.ravel()]
    return ForeignProposals([_from_mat(cell, path) for cell in cells], image_ids)


def read_mcg(path: Path) -> ForeignProposals:
    """MCG's downloads: a folder of ID.mat with `boxes` or `bboxes`, as in :func:`read_selective_search`."""
    files = sorted(path.rglob("*.mat"))
    if not files:
        raise DataError(f"{path} is not a folder of .mat files")
    boxes = []
    for file in files:
        content = _load_mat(file)
        found = _from_mat(_field(content, ("boxes", "bboxes"), file), file)
        scores = content.get("scores", content.get("bboxes_scores"))
        boxes.append(_best_first(found, scores, file))
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
    """An .npz file with an array (R, 4) of half-open boxes under each image id; or one of ours."""
    with reading(path, "proposals file"), NpzReader(path) as file:
        if not set(FIELDS) <= set(file.names):
            boxes = [_shaped(file.read(name), f"{path}: {name}") for name in file.names]
            return ForeignProposals(boxes, file.names)
    proposals = load_proposals(path)
    return ForeignProposals([boxes.numpy() for boxes in proposals.values()], list(proposals))


def read_json_lines(path: Path) -> ForeignProposals:
    """A line an image: {"image": id or file, "boxes": [[x1, y1, x2, y2], ...], "scores": [...]}; half-open.

    The scores may be left out.
    """
    boxes, image_ids = [], []
    for place, content in _json_lines(path):
        image_ids.append(str(_field(content, ("image",), place)))
        found = _shaped(_field(content, ("boxes",), place), place)
        boxes.append(_best_first(found, content.get("scores"), place))
    return ForeignProposals(boxes, image_ids)


READERS: dict[str, Callable[[Path], ForeignProposals]] = {
    "selective_search": read_selective_search,
    "mcg": read_mcg,
    "detectron": read_detectron,
    "detectron2": read_detectron2,
    "npz": read_npz,
    "jsonl": read_json_lines,
}


def _load_mat(path: Path) -> dict:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise MissingPackage(f"{path} is a .mat file, which scipy reads: pip install scipy") from None
    try:
        return loadmat(path)
    except NotImplementedError:
        raise DataError(f"{path} was saved by Matlab as version 7.3; save it with -v7") from None
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DataError(f"{path} is not a .mat file: {error}") from error


def _from_mat(boxes: Any, path: Path) -> np.ndarray:
    y1, x1, y2, x2 = _shaped(boxes, path).T
    return np.stack([x1 - 1, y1 - 1, x2, y2], axis=1)


def _from_pickle(path: Path, convert: Callable[[np.ndarray, Any], np.ndarray]) -> ForeignProposals:
    content = load_pickle(path)
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}, expected a dict of boxes, ids and scores")
    image_ids = [str(image_id) for image_id in _field(content, ("indexes", "ids"), path)]
    boxes = _field(content, ("boxes",), path)
    scores = content.get("scores", content.get("objectness_logits"))
    scores = [None] * len(boxes) if scores is None else scores
    if not len(image_ids) == len(boxes) == len(scores):
        found = f"{len(boxes)} boxes, {len(image_ids)} ids, {len(scores)} scores"
        raise DataError(f"{path} is not of one number of images: {found}")
    ours = [
        _best_first(convert(_shaped(each, path), content.get("bbox_mode")), score, path)
        for each, score in zip(boxes, scores, strict=True)
    ]
    return ForeignProposals(ours, image_ids)


def _from_box_mode(boxes: np.ndarray, mode: Any) -> np.ndarray:
    if mode in (None, _XYXY):
        return boxes
    if mode == _XYWH:
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    raise DataError(
        f"bbox_mode is {mode}, expected {_XYXY} (x1, y1, x2, y2) or {_XYWH} (x, y, w, h) in pixels"
    )


def _json_lines(path: Path) -> Iterator[tuple[str, dict]]:
    """The objects of a file with what errors call their place."""
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            try:
                content = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{place}: not JSON: {error.msg}") from None
            if not isinstance(content, dict):
                raise DataError(f"{place}: a {type(content).__name__}, expected an object")
            yield place, content


def _field(content: dict, names: tuple[str, ...], place: Path | str) -> Any:
    for name in names:
        if name in content:
            return content[name]
    known = ", ".join(str(name) for name in content if not str(name).startswith("__"))
    raise DataError(f"{place} has no {' or '.join(names)}; it has {known or 'nothing'}")


def _shaped(boxes: Any, place: Path | str) -> np.ndarray:
    """Boxes (R, 4) float32."""
    try:
        array = np.asarray(boxes, np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{place} has boxes that are not numbers: {str(boxes)[:60]}") from None
    if array.size == 0:
        return array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] != 4:
        raise DataError(f"{place} has boxes of the shape {array.shape}, expected (R, 4)")
    return array


def _best_first(boxes: np.ndarray, scores: Any, place: Path | str) -> np.ndarray:
    if scores is None:
        return boxes
    values = np.asarray(scores, np.float64).ravel()
    if len(values) != len(boxes):
        raise DataError(f"{place} has {len(boxes)} boxes of an image and {len(values)} scores")
    return boxes[np.argsort(-values, kind="stable")]
