"""How well the estimated trust in a teacher, and the advice, fit the truth: many simulated teachers.

    python benchmarks/teacher_trust.py toybox runs/toybox_pcl [--seeds 3] [--images N] [KEY VALUE ...]
    python benchmarks/teacher_trust.py photos parts [--seeds 3] [--images N] [KEY VALUE ...]

The first argument is a data set of few_boxes.py, the second the folder of a weak detector that was trained on
it, or one of DETECTORS, which are simulated from the ground truth and see random proposals. The teachers are
those of simulated_teachers.py, and others whose boxes tags cannot judge, PLACES. For each teacher and class
that it finds:

* "trust" and "true": the estimated and the true precision of its boxes in images with the tag, of those that
  are learned. "tags" and "weak" are the two estimates of which the trust is the lesser.
* "alone", "with tags", "not": F1 in percent at IoU 0.5, with the training images' ground truth, of the boxes
  that a student would learn: all of the teacher's; both, each with its weight; those of the weak detector.
  The advice is right if the F1 that it names is less than 1 below the best of the three.

Nothing is trained. Writes benchmarks/results/teacher_trust_SET.json, or ..._SET_DETECTOR.json.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from few_boxes import DATA, take_data_set
from measure import commit, machine_name
from simulated_teachers import PLACES, QUALITIES, simulate
from torch import Tensor
from tqdm import tqdm

from detector.config import load_cfg
from detector.data.build import build_training_set, name_classes
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.proposals.file import JoinedProposals
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.self_training.build import build_pseudo_boxes
from detector.self_training.fuse import Support, estimate_trust, fuse, select, support
from detector.self_training.networks import predict_all, restore_network
from detector.structures import Annotation, Scores, TeacherBoxes, box_iou

ROOT = Path(__file__).resolve().parent.parent
SIMILAR = 1.0  # F1 in percent: advice that costs less is right


class Detector(NamedTuple):
    """A simulated weak detector: where its best boxes are, of the classes of an image, and their score."""

    right: float  # share of the tags of which it finds the objects
    parts: float  # of which it finds a part of each object; the others are anywhere
    score: float  # mean of its best scores


DETECTORS = {
    "right": Detector(right=0.75, parts=0.15, score=0.75),
    "mixed": Detector(right=0.5, parts=0.3, score=0.7),
    "parts": Detector(right=0.2, parts=0.7, score=0.8),
}


def all_teachers(dataset: AnnotatedImages, seeds: int) -> dict[str, list[TeacherBoxes]]:
    """The boxes of each simulated teacher in each image, by QUALITY_SEED."""
    columns = {name: column for column, name in enumerate(dataset.class_names)}
    found = {}
    for quality, values in {**QUALITIES, **PLACES}.items():
        for seed in range(seeds):
            images = []
            for found_there in simulate(dataset, values, seed).values():
                rows = sorted(found_there, key=lambda row: -row["score"])
                images.append(
                    TeacherBoxes(
                        torch.tensor([row["box"] for row in rows]).reshape(-1, 4),
                        torch.tensor([row["score"] for row in rows]),
                        torch.tensor([columns[row["label"]] for row in rows], dtype=torch.int64),
                    )
                )
            found[f"{quality}_{seed}"] = images
    return found


def f1(found: Sequence[tuple[Tensor, Tensor]], truth: Sequence[Tensor]) -> float:
    """Of boxes (D, 4) with weights (D,) and ground-truth boxes (G, 4) of each image, in percent."""
    weight = right = objects = recalled = 0.0
    for (boxes, weights), of_image in zip(found, truth, strict=True):
        if not len(boxes) + len(of_image):
            continue
        match = box_iou(boxes, of_image) >= 0.5  # (D, G)
        weight += float(weights.sum())
        right += float(weights[match.any(dim=1)].sum())
        objects += len(of_image)
        if match.numel():
            recalled += float((weights[:, None] * match).amax(dim=0).sum())
    precision, recall = right / max(weight, 1e-9), recalled / max(objects, 1)
    return 200 * precision * recall / max(precision + recall, 1e-9)


def measure(data_set: str, run: str, seeds: int, images: int, overrides: Sequence[str]) -> dict[str, Any]:
    cfg = load_cfg(ROOT / DATA[data_set], [*overrides, "PROPOSALS.MAX_COUNT", "100000"])
    training_set = build_training_set(cfg)
    dataset = training_set.dataset
    cfg = name_classes(cfg, dataset)
    indices = range(0, len(dataset), -(-len(dataset) // (images or len(dataset))))
    teachers = all_teachers(dataset, seeds)
    joined = [torch.cat([found[index].boxes for found in teachers.values()]) for index in range(len(dataset))]
    choose = build_pseudo_boxes(cfg.self_train, training_set, of_student=False)
    if run in DETECTORS:
        scored = _simulated(DETECTORS[run], dataset, indices, joined)
    else:
        assert training_set.proposals is not None
        weights = Path(run, "model_final.pt")
        model = restore_network(cfg, load_checkpoint(weights), weights, "weak")
        boxes = dict(zip(dataset.image_ids, joined, strict=True))
        proposals, precision = JoinedProposals(training_set.proposals, boxes), torch.device("cpu")
        scored = predict_all(cfg, model, dataset, indices, Precision(cfg.precision, precision), proposals)
    ours, shown = [], torch.from_numpy(training_set.labels())
    supports: dict[str, list[Support]] = {name: [] for name in teachers}
    for index, scores in zip(indices, scored, strict=True):
        counts = [len(found[index]) for found in teachers.values()]
        first = sum(counts)  # of our own proposals
        parts = zip(scores.boxes[:first].split(counts), scores.scores[:first].split(counts), strict=True)
        own = scores.boxes[first:], scores.scores[first:]
        ours.append(choose(index, Scores(scores.image_id, *own)))
        for (name, found), each in zip(teachers.items(), parts, strict=True):
            joint = (torch.cat(pair) for pair in zip(each, own, strict=True))
            supports[name].append(support(found[index], Scores(scores.image_id, *joint), shown[index]))
    shown = shown[list(indices)]
    truth = [dataset.annotation(index) for index in indices]
    return {
        "detector": _quality_of_ours(ours, truth, dataset.class_names),
        "teachers": {
            name: _compare(
                [found[i] for i in indices], supports[name], ours, shown, truth, dataset.class_names
            )
            for name, found in tqdm(teachers.items())
        },
    }


def _simulated(
    detector: Detector, dataset: AnnotatedImages, indices: Sequence[int], teachers: Sequence[Tensor]
) -> Iterator[Scores]:
    """The scores of a simulated detector for the boxes of the teachers, then for proposals of its own."""
    rng = np.random.default_rng(60)
    for index in indices:
        truth, (height, width) = dataset.annotation(index), dataset.image_size(index)
        assert truth is not None
        objects = truth.boxes.double().numpy()
        sides = np.tile(objects[:, 2:] - objects[:, :2], 2)
        near = [objects + rng.normal(0, 0.08, objects.shape) * sides for _ in range(6)]
        parts = [_part_of(box, rng) for box in objects for _ in range(4)]
        random = [_anywhere((height, width), rng) for _ in range(80)]
        own = np.concatenate([objects, *near, np.array([*parts, *random])]).clip(0, [width, height] * 2)
        own = own[(own[:, 2:] - own[:, :2] >= 2).all(axis=1)]
        boxes = torch.cat([teachers[index], torch.from_numpy(own).float()])
        scores = torch.zeros(len(boxes), len(dataset.class_names))
        for c in range(scores.shape[1]):
            places, best, kind = objects[truth.labels.numpy() == c], 0.05, rng.random()
            if len(places):
                best = float(np.clip(rng.normal(detector.score, 0.15), 0.05, 1))
            if kind >= detector.right:
                of_part = kind < detector.right + detector.parts
                places = [
                    _part_of(box, rng) if of_part else _anywhere((height, width), rng) for box in places
                ]
            if not len(places):
                places = [_anywhere((height, width), rng)]
            overlap = box_iou(boxes, torch.tensor(np.array(places)).float())  # (R, objects)
            strength = torch.from_numpy(np.r_[1.0, rng.uniform(0.2, 1, len(places) - 1)])
            noise = torch.from_numpy(rng.normal(0, 1, (len(boxes), 1)))
            scores[:, c] = (best * strength * torch.sigmoid(12 * (overlap - 0.5) + noise)).amax(dim=1).float()
        yield Scores(dataset.image_ids[index], boxes[:, None].expand(-1, scores.shape[1], 4), scores)


def _part_of(box: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A corner of a box, 55 % of its width and height."""
    sides = 0.55 * (box[2:] - box[:2])
    corner = np.where(rng.random(2) < 0.5, box[:2], box[2:] - sides)
    return np.r_[corner, corner + sides]


def _anywhere(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    sides = rng.uniform(0.08, 0.7, 2) * size[::-1]
    corner = rng.uniform(0, 1, 2) * (size[::-1] - sides)
    return np.r_[corner, corner + sides]


def _truth_of(truth: Sequence[Annotation | None], label: int) -> list[Tensor]:
    return [each.boxes[(each.labels == label) & ~each.crowd] for each in truth if each is not None]


def _quality_of_ours(ours: Any, truth: Any, names: Sequence[str]) -> dict[str, Any]:
    """Precision of the weak detector's boxes of each class, and its mean score."""
    found = {}
    for c, name in enumerate(names):
        rows = [each[each.labels == c] for each in ours]
        right = [
            (box_iou(each.boxes, boxes) >= 0.5).any(dim=1)
            for each, boxes in zip(rows, _truth_of(truth, c), strict=True)
        ]
        found[name] = {
            "precision": round(float(torch.cat(right).float().mean()), 4),
            "score": round(float(torch.cat([each.scores for each in rows]).mean()), 4),
        }
    return found


def _compare(
    teacher: list[TeacherBoxes], supports: Any, ours: Any, shown: Tensor, truth: Any, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    trust = estimate_trust(teacher, shown, torch.ones_like(shown), supports)
    values = trust.describe(names)
    rows = zip(ours, teacher, shown.float(), strict=True)
    fused = [fuse(own, found, labels, trust) for own, found, labels in rows]
    selected = [select(found, labels, trust) for found, labels in zip(teacher, shown.float(), strict=True)]
    result = {}
    for c, name in enumerate(names):
        boxes = _truth_of(truth, c)
        chosen = [each.boxes[each.labels == c] for each in selected]
        if not sum(map(len, chosen)):
            continue
        right = torch.cat([(box_iou(a, b) >= 0.5).any(dim=1) for a, b in zip(chosen, boxes, strict=True)])
        alone = [
            (each.boxes[each.labels == c], torch.ones(int((each.labels == c).sum()))) for each in teacher
        ]
        both = [(each.boxes[each.labels == c], each.scores[each.labels == c]) for each in fused]
        tags = [(each.boxes[each.labels == c], torch.ones(int((each.labels == c).sum()))) for each in ours]
        result[name] = values[name] | {
            "true": round(float(right.float().mean()), 4),
            "boxes": len(right),
            "f1": {
                "alone": round(f1(alone, boxes), 2),
                "with tags": round(f1(both, boxes), 2),
                "not": round(f1(tags, boxes), 2),
            },
        }
    return result


def summarize(teachers: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """The figures of all classes of the teachers of each quality, and of all."""
    groups: dict[str, list[dict[str, Any]]] = {"all": []}
    for name, classes in teachers.items():
        groups.setdefault(name.rpartition("_")[0], []).extend(classes.values())
        groups["all"] += classes.values()
    return {name: _summary(rows) for name, rows in groups.items() if rows}


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    trust, true = (np.array([row[key] for row in rows]) for key in ("of_boxes", "true"))
    cost = [max(row["f1"].values()) - row["f1"][row["advice"]] for row in rows]
    words = [row["advice"] for row in rows]
    means = {key: round(float(np.mean([row["f1"][key] for row in rows])), 1) for key in rows[0]["f1"]}
    return {
        "classes": len(rows),
        "trust": round(float(trust.mean()), 3),
        "true": round(float(true.mean()), 3),
        "error": round(float(np.abs(trust - true).mean()), 3),
        "correlation": round(float(np.corrcoef(trust, true)[0, 1]), 3)
        if trust.std() and true.std()
        else None,
        "f1": means,
        "advice": {word: words.count(word) for word in ("alone", "with tags", "not")},
        "advice_right": round(float(np.mean([each < SIMILAR for each in cost])), 3),
        "advice_cost": round(float(np.mean(cost)), 2),
    }


if __name__ == "__main__":
    data_set = take_data_set()
    parser = argparse.ArgumentParser(description="How well the trust in a teacher fits the truth")
    parser.add_argument("run", help=f"a folder, or one of {', '.join(DETECTORS)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=0, help="at most so many, evenly spread (default: all)")
    parser.add_argument("overrides", nargs="*", metavar="KEY VALUE")
    options = parser.parse_intermixed_args()
    found = measure(data_set, options.run, options.seeds, options.images, options.overrides)
    summary = summarize(found["teachers"])
    for name, each in summary.items():
        print(f"{name:<9}", json.dumps(each))
    suffix = f"_{options.run}" if options.run in DETECTORS else ""
    path = ROOT / f"benchmarks/results/teacher_trust_{data_set}{suffix}.json"
    date = datetime.now(timezone.utc).date().isoformat()
    head = {"date": date, "machine": machine_name(torch.device("cpu")), "torch": torch.__version__}
    head |= {"commit": commit(), "run": options.run, "seeds": options.seeds, "images": options.images}
    head |= {"overrides": options.overrides}
    path.write_text(json.dumps(head | {"summary": summary} | found, indent=1) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")
