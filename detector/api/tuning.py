"""Choose the search for proposals by trying several on images whose boxes are known."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from detector.data.formats import review_import
from detector.data.images import read_image
from detector.data.proposals.search import make_finder
from detector.structures import box_iou
from detector.utils.errors import DataError

_TIE = 0.01  # of two recalls that differ by less, that of fewer proposals wins


class Trial(NamedTuple):
    """What a search found in the images."""

    keys: Mapping[str, object]  # the config keys that select it
    recall: float  # share of the known boxes that a proposal covers with an IoU of at least 0.5
    num_boxes: float  # proposals of an image, on average
    milliseconds: float  # for an image, on average


def read_known_boxes(path: Path, image_ids: Sequence[str], limit: int) -> dict[str, Tensor]:
    """The boxes (M, 4) of up to `limit` images, evenly chosen among those that have some, by image id.

    Args:
        path: any file or folder of :func:`review_import`; all its boxes count as true.

    Raises:
        DataError: no image of `image_ids` has a box there.
    """
    wanted, known = set(image_ids), {}
    for image in review_import(path, reviewed="all"):
        name = Path(image.name).with_suffix("").as_posix()
        if name in wanted and image.boxes:
            known[name] = torch.tensor([box.box for box in image.boxes], dtype=torch.float32)
    if not known:
        raise DataError(f"{path} has no box of any of the {len(wanted)} images, such as {image_ids[0]!r}")
    chosen = sorted(known)[:: -(-len(known) // limit)]
    return {image_id: known[image_id] for image_id in chosen}


def try_searches(
    images: Mapping[str, Path], known: Mapping[str, Tensor], *, max_count: int, apply_orientation: bool
) -> list[Trial]:
    """The searches worth a try for objects of the known sizes; first the one to use.

    Args:
        images: file of each image id.
        known: boxes (M, 4) of some of the images, half-open xyxy in pixels.
        max_count: only so many proposals of an image count.
    """
    pixels = {image_id: _read(images[image_id], apply_orientation) for image_id in known}
    trials = []
    for keys in tqdm(_candidates(torch.cat(list(known.values()))), "searches", disable=None):
        options = {key.removeprefix("PROPOSALS.").lower(): value for key, value in keys.items()}
        find, _ = make_finder(**options)  # type: ignore[arg-type]
        started = time.perf_counter()
        found = {image_id: find(image)[:max_count] for image_id, image in pixels.items()}
        milliseconds = 1e3 * (time.perf_counter() - started) / len(known)
        overlaps = [box_iou(boxes, torch.from_numpy(found[i])).amax(1) for i, boxes in known.items()]
        recall = float((torch.cat(overlaps) >= 0.5).double().mean())
        num_boxes = sum(map(len, found.values())) / len(found)
        trials.append(Trial(keys, recall, num_boxes, milliseconds))
    best = max(trial.recall for trial in trials)
    winner = min((t for t in trials if t.recall > best - _TIE), key=lambda trial: trial.num_boxes)
    return [winner, *(trial for trial in trials if trial is not winner)]


def _candidates(boxes: Tensor) -> list[dict[str, object]]:
    """The keys of each search; the sides for corners are those of most boxes."""
    sides = torch.cat([boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]])
    shortest, longest = sides.quantile(torch.tensor([0.1, 0.95])).round().clamp(min=4).tolist()
    searches: list[dict[str, object]] = [
        {"PROPOSALS.MODE": mode, "PROPOSALS.LONGEST_SIDE": side, "PROPOSALS.MIN_REGION": region}
        for mode, side, region in (
            ("fast", 300, 100),
            ("quality", 300, 100),
            ("quality", 300, 20),
            ("quality", 600, 100),
            ("quality", 600, 20),
        )
    ]
    corners: dict[str, object] = {"PROPOSALS.MODE": "corners", "PROPOSALS.SIDES": (shortest, longest)}
    return [{"PROPOSALS.MODE": "grid"}, *searches, corners]


def _read(path: Path, apply_orientation: bool) -> np.ndarray:
    return read_image(path, apply_orientation=apply_orientation).permute(1, 2, 0).contiguous().numpy()
