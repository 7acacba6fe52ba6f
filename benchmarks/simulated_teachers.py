"""Simulated teachers: ground-truth boxes that are spoiled, so that the quality of the teacher is known."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages
from detector.structures import Annotation


class Quality(NamedTuple):
    """How a teacher is worse than the ground truth; shares are of objects or images."""

    missed: float = 0.0  # objects without a box
    merged: float = 0.0  # pairs of objects of a class in an image that get one box
    parts: float = 0.0  # objects of which the box has one half
    jitter: float = 0.0  # standard deviation of each side, as a share of the width or height
    wrong: float = 0.0  # objects whose box is of another class
    extra: float = 0.0  # boxes per image, on average, at random places and of random classes
    unknown: float = 0.0  # classes of which the teacher finds nothing
    place: str = ""  # where all boxes are: "anywhere", the "whole" image, or 1.5 times as "large"


QUALITIES = {
    "blind": Quality(missed=0.95, extra=2.0),
    "poor": Quality(missed=0.5, merged=0.2, parts=0.3, jitter=0.1, wrong=0.2, extra=1.0, unknown=0.3),
    "middle": Quality(missed=0.3, merged=0.1, parts=0.15, jitter=0.06, wrong=0.1, extra=0.5, unknown=0.2),
    "good": Quality(missed=0.1, merged=0.05, parts=0.05, jitter=0.03, wrong=0.03, extra=0.2),
    "perfect": Quality(),
}
# The classes are right, the places are not, which tags do not see: half of each object, anywhere, the whole
# image, too large, moved sides.
PLACES = {
    "halves": Quality(parts=1.0, jitter=0.03),
    "moved": Quality(missed=0.1, extra=0.2, place="anywhere"),
    "whole": Quality(missed=0.1, place="whole"),
    "large": Quality(missed=0.1, place="large"),
    "shaky": Quality(missed=0.2, jitter=0.2, extra=0.3),
}


def simulate(dataset: AnnotatedImages, quality: Quality, seed: int) -> dict[str, list[dict[str, Any]]]:
    """The boxes of a simulated teacher in each image, by id: label, box and score."""
    rng, places = (np.random.default_rng([seed, number]) for number in (58, 59))
    count = len(dataset.class_names)
    unknown = set(rng.permutation(count)[: round(quality.unknown * count)].tolist())
    found = {}
    for index, image_id in enumerate(dataset.image_ids):
        truth, size = dataset.annotation(index), dataset.image_size(index)
        assert truth is not None
        boxes = _spoiled(truth, quality, count, rng)
        for _ in range(rng.poisson(quality.extra)):
            boxes.append((int(rng.integers(count)), _anywhere(size, rng), rng.beta(2, 4)))
        known = [(label, clipped(box, size), score) for label, box, score in boxes if label not in unknown]
        found[image_id] = [
            {"label": dataset.class_names[label], "box": placed, "score": round(float(score), 4)}
            for label, box, score in known
            if box and (placed := _placed(quality.place, np.array(box), size, places))
        ]
    return found


Found = tuple[int, np.ndarray, float]  # class, box, score


def _spoiled(truth: Annotation, quality: Quality, count: int, rng: np.random.Generator) -> list[Found]:
    clear = ~(truth.crowd | truth.difficult)
    objects = list(zip(truth.labels[clear].tolist(), truth.boxes[clear].double().numpy(), strict=True))
    merged: list[tuple[int, np.ndarray]] = []
    for label, box in objects:
        last = merged[-1] if merged else None
        if last and last[0] == label and rng.random() < quality.merged:
            around = np.r_[np.minimum(last[1][:2], box[:2]), np.maximum(last[1][2:], box[2:])]
            merged[-1] = label, around
        else:
            merged.append((label, box))
    boxes = []
    for label, box in merged:
        if rng.random() < quality.missed:
            continue
        if count > 1 and rng.random() < quality.wrong:
            label = (label + int(rng.integers(1, count))) % count
        sides = np.tile(box[2:] - box[:2], 2)  # (4,)
        if rng.random() < quality.parts:
            side = int(rng.integers(4))  # which half goes
            box = box.copy()
            box[side] += sides[side] / 2 * (1 if side < 2 else -1)
        boxes.append((label, box + rng.normal(0, quality.jitter, 4) * sides, rng.beta(5, 2)))
    return boxes


def _placed(place: str, box: np.ndarray, size: tuple[int, int], rng: np.random.Generator) -> list[float]:
    height, width = size
    if place == "whole":
        return [0.0, 0.0, float(width), float(height)]
    if place == "large":
        center, half = (box[:2] + box[2:]) / 2, 1.5 * (box[2:] - box[:2]) / 2
        return clipped(np.r_[center - half, center + half], size)
    if place == "anywhere":
        sides = box[2:] - box[:2]
        corner = np.array([rng.uniform(0, width - sides[0]), rng.uniform(0, height - sides[1])])
        return clipped(np.r_[corner, corner + sides], size)
    return box.tolist()


def _anywhere(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    height, width = size
    w, h = rng.uniform(0.1, 0.5, 2) * [width, height]
    x, y = rng.uniform(0, width - w), rng.uniform(0, height - h)
    return np.array([x, y, x + w, y + h])


def clipped(box: np.ndarray, size: tuple[int, int]) -> list[float]:
    """The box within its image; [] where it has less than 2 pixels there."""
    inside = box.clip(0, [size[1], size[0]] * 2).round(2)
    return inside.tolist() if (inside[2:] - inside[:2] >= 2).all() else []


def as_reviewed(dataset: AnnotatedImages, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The same boxes as a COCO file that says that a person has reviewed all of each image."""
    images, annotations = [], []
    for index, image_id in enumerate(dataset.image_ids):
        height, width = dataset.image_size(index)
        name = f"{image_id}{dataset.image_path(index).suffix}"
        row = {"id": index + 1, "file_name": name, "height": height, "width": width}
        images.append(row | {"reviewed": True})
        for box in found[image_id]:
            x1, y1, x2, y2 = box["box"]
            annotation = {"id": len(annotations) + 1, "image_id": index + 1, "reviewed": True, "iscrowd": 0}
            annotation |= {"category_id": dataset.class_names.index(box["label"]) + 1}
            annotations.append(
                annotation | {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
            )
    categories = [{"id": number, "name": name} for number, name in enumerate(dataset.class_names, start=1)]
    return {"images": images, "annotations": annotations, "categories": categories}


def write_teacher(path: Path, dataset: AnnotatedImages, found: dict[str, list[dict[str, Any]]]) -> None:
    """Write boxes as the file of a teacher, and as PATH_reviewed.json, those of a person."""
    path.with_suffix(".json").write_text(json.dumps(found))
    path.with_name(f"{path.name}_reviewed.json").write_text(json.dumps(as_reviewed(dataset, found)))
