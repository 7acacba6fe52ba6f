"""Figures of a weak detector and its student that need image labels alone, printed as JSON.

    python benchmarks/label_free.py RUN WEAK_TEST STUDENT

benchmarks/recipes.py stores them with each student.
"""

import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from PIL import Image, ImageOps
from torch import Tensor

import detector
from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.voc import VOCDataset
from detector.evaluation.summary import load_detections
from detector.evaluation.voc import image_ap, voc_ap
from detector.structures import Annotation, Detections, box_area, box_iou

VIEWED = 60  # test images of which views are compared
SMALLER = 0.6

Best = Mapping[tuple[int, int], Tensor]  # (image, class that it shows) -> box and score, (5,)


def figures(run: Path, weak_test: Path, student: Path) -> dict[str, float]:
    """Label-free figures, by name; shares and IoUs in percent.

    Args:
        run: run folder of the weak detector.
        weak_test: the folder with its metrics.json and detections.npz.
        student: run folder of the student.
    """
    cfg = load_cfg(student / "config.yaml")
    test_set = build_dataset(cfg, cfg.datasets.test_split)
    labels = [test_set.labels(i) for i in range(len(test_set))]
    found: dict[str, float] = {}
    best: dict[str, Best] = {}
    detections = {}
    for name, folder in {"weak": weak_test, "student": student}.items():
        by_id = {each.image_id: each for each in load_detections(folder / "detections.npz")}
        detections[name] = ordered = [by_id[image_id] for image_id in test_set.image_ids]
        scores = [best_scores(each, len(labels[0])) for each in ordered]
        ap = image_ap(scores, labels)
        found[f"image AP, {name}"] = 100 * float(ap[ap == ap].mean())
        best[name] = best_boxes(ordered, labels)
        areas = [float(box_area(box[None, :4])) / area(test_set, i) for (i, _), box in best[name].items()]
        found |= describe_areas(areas, f"best boxes, {name}")
        found[f"best score, {name}"] = 100 * statistics.mean(float(box[4]) for box in best[name].values())
    found["image AP, student less weak"] = found["image AP, student"] - found["image AP, weak"]
    found |= agreement(best["weak"], best["student"], "weak and student")
    found["AP50 of the student on the weak detector's best boxes"] = 100 * consistency(
        test_set, best["weak"], detections["student"]
    )
    write_best_boxes(student / "best_boxes.json", best)
    made = next(folder for folder in (student / "pseudo", student / "round_1/pseudo") if folder.is_dir())
    found |= describe_pseudo_boxes(VOCDataset(made, cfg.datasets.train_split, test_set.class_names))
    found |= last_losses(run / "log.txt", "weak") | last_losses(student / "log.txt", "student")
    return found | views(student, test_set, labels)


def best_scores(found: Detections, num_classes: int) -> Tensor:
    """The best score of each class (C,), 0 without a detection."""
    return torch.zeros(num_classes).scatter_reduce(0, found.labels, found.scores, "amax")


def best_boxes(found: Sequence[Detections], labels: Sequence[Tensor]) -> Best:
    """The best box of each class that an image shows, where there is one."""
    best = {}
    for index, (image, shown) in enumerate(zip(found, labels, strict=True)):
        for label in shown.nonzero()[:, 0].tolist():
            rows = (image.labels == label).nonzero()[:, 0]
            if len(rows):
                row = rows[image.scores[rows].argmax()]
                best[index, label] = torch.cat([image.boxes[row], image.scores[row, None]])
    return best


def write_best_boxes(path: Path, best: Mapping[str, Best]) -> None:
    """Keep the best boxes of a run, for the agreement of seeds."""
    rows = {
        name: [[*key, *box.tolist()] for key, box in boxes.items()] for name, boxes in best.items()
    }  # image, class, box, score
    path.write_text(json.dumps(rows))


def area(dataset: AnnotatedImages, index: int) -> float:
    height, width = dataset.image_size(index)
    return height * width


def describe_areas(shares: Sequence[float], name: str) -> dict[str, float]:
    """What the shares of their images that boxes cover look like."""
    if not shares:
        return {}
    return {
        f"area, {name}": 100 * statistics.mean(shares),
        f"spread of the area, {name}": 100 * statistics.pstdev(shares),
        f"covers 2 % or less, {name}": 100 * statistics.mean(share <= 0.02 for share in shares),
        f"covers 80 % or more, {name}": 100 * statistics.mean(share >= 0.8 for share in shares),
    }


def agreement(one: Best, other: Best, name: str) -> dict[str, float]:
    """The mean IoU of two detectors' boxes for the same image and class; one that is missing counts 0."""
    keys = one.keys() | other.keys()
    ious = [
        float(box_iou(one[key][None, :4], other[key][None, :4])) if key in one and key in other else 0.0
        for key in keys
    ]
    if not ious:
        return {}
    return {
        f"IoU, {name}": 100 * statistics.mean(ious),
        f"IoU at least 0.5, {name}": 100 * statistics.mean(iou >= 0.5 for iou in ious),
    }


def consistency(dataset: AnnotatedImages, truth: Best, found: Sequence[Detections]) -> float:
    """The mean AP50 of detections if the boxes of `truth` were the objects."""
    annotations = []
    for index, image_id in enumerate(dataset.image_ids):
        rows = [(label, box[:4]) for (i, label), box in truth.items() if i == index]
        boxes = torch.stack([box for _, box in rows]) if rows else torch.zeros(0, 4)
        classes = torch.tensor([label for label, _ in rows], dtype=torch.int64)
        no = torch.zeros(len(rows), dtype=torch.bool)
        annotations.append(Annotation(image_id, boxes, classes, no, no))
    ap = voc_ap(found, annotations, len(dataset.class_names))
    return float(ap[ap == ap].mean())


def describe_pseudo_boxes(dataset: AnnotatedImages) -> dict[str, float]:
    """Number and size of the boxes that the student learned."""
    shares, pairs, at_edge = [], 0, []
    for index in range(len(dataset)):
        pseudo = dataset.annotation(index)
        assert pseudo is not None
        height, width = dataset.image_size(index)
        shares += (box_area(pseudo.boxes) / (height * width)).tolist()
        pairs += len(pseudo.labels.unique())
        inner = pseudo.boxes - torch.tensor([0, 0, width, height])
        at_edge += (inner.abs() <= 2).any(dim=1).tolist()
    return {
        "pseudo boxes of a class in an image": len(shares) / max(1, pairs),
        "pseudo boxes at an edge of the image": 100 * statistics.mean(at_edge or [0.0]),
        **describe_areas(shares, "pseudo boxes"),
    }


def last_losses(log: Path, name: str) -> dict[str, float]:
    """The losses of the last two lines of a log that have any, means of steps."""
    lines = [line for line in log.read_text().splitlines() if re.search(r"\bloss ", line)][-2:]
    rows = [dict(re.findall(r"([a-z_0-9]+) (\d+\.\d+)", line)) for line in lines]
    losses = {key for row in rows for key in row if key in ("loss", "mil", "image", "refine_1", "refine_3")}
    return {
        f"{key}, {name}": statistics.mean(float(row[key]) for row in rows if key in row) for key in losses
    }


def views(student: Path, test_set: AnnotatedImages, labels: Sequence[Tensor]) -> dict[str, float]:
    """How the student's best boxes of an image, its mirror image and a smaller copy agree."""
    predict = detector.load(student, score_threshold=None)
    shown = [i for i, each in enumerate(labels) if each.any()]
    shown = shown[:: max(1, len(shown) // VIEWED)][:VIEWED]
    rows = [labels[i] for i in shown]
    pictures = [Image.open(test_set.image_path(i)).convert("RGB") for i in shown]
    plain = best_boxes([predict(each) for each in pictures], rows)
    flipped = best_boxes([predict(ImageOps.mirror(each)) for each in pictures], rows)
    for (index, _), box in flipped.items():
        x1, x2 = float(box[0]), float(box[2])
        box[0], box[2] = pictures[index].width - x2, pictures[index].width - x1
    smaller = best_boxes([predict(ImageOps.scale(each, SMALLER)) for each in pictures], rows)
    for box in smaller.values():
        box[:4] /= SMALLER
    return agreement(plain, flipped, "mirror image") | agreement(plain, smaller, "smaller copy")


if __name__ == "__main__":
    print(json.dumps(figures(*map(Path, sys.argv[1:]))))
