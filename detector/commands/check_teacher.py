"""How far each class of a teacher is worth using: a part of `detector check`."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from detector.config import Settings
from detector.data.build import build_training_set, name_classes
from detector.data.training_set import TrainingSet
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.engine.run_folder import check_class_names
from detector.evaluation.pictures import contact_sheet, draw_detections
from detector.evaluation.summary import align
from detector.modeling.build import build_tag_noise
from detector.self_training.build import build_pseudo_boxes
from detector.self_training.fuse import SOURCES, Support, Trust, disagreement, support
from detector.self_training.networks import predict_all, restore_network
from detector.self_training.pseudo_boxes import find_trials, tags_of, trust_of
from detector.structures import Annotation, Detections
from detector.utils.distributed import find_device
from detector.utils.errors import UserError
from detector.utils.files import encode_image
from detector.utils.outputs import OutputFolder

_MOST = 300  # images whose boxes are compared with those of the weak detector
_PICTURES = 12
_LEGEND = "solid: the teacher's, with class and score      dashed: ours"
_MEANING = {
    "alone": "its boxes are good where the tags show the class: ours add little",
    "with tags": "train with --teacher: the tags filter and complete its boxes",
    "not": "its boxes are few, no better than chance, or in the wrong places: train from tags",
}


def check_teacher(cfg: Settings, outputs: OutputFolder, problems: list[str]) -> None:
    """Print a table and the advice for each class of the teacher, if the config has one.

    Args:
        outputs: the folder to write teacher.json and teacher.png to.
        problems: gets what is wrong with the file of the teacher or the weak detector.
    """
    if cfg.datasets.teacher:
        try:
            _check_teacher(cfg, outputs)
        except (UserError, OSError) as error:
            problems.append(str(error))


def _check_teacher(cfg: Settings, outputs: OutputFolder) -> None:
    training_set = build_training_set(cfg)
    cfg, weights = name_classes(cfg, training_set.dataset), Path(cfg.output_dir) / "model_final.pt"
    tried = find_trials(Path(cfg.output_dir) / "self_train", training_set)
    compared = None
    if weights.is_file() and training_set.proposals is not None:
        compared = _compare(cfg, training_set, weights)
        seen = {image_id: training_set.teacher[image_id] for image_id in compared}
        training_set = replace(training_set, teacher=seen)
    dataset, supports = training_set.dataset, None
    if compared is not None:
        supports = [compared[name].said if name in compared else None for name in dataset.image_ids]
    trust = trust_of(training_set, supports)
    values = {
        name: of_class | tried.get(name, {}) for name, of_class in trust.describe(dataset.class_names).items()
    }
    masks = sum(int((found.labels < 0).sum()) for found in training_set.teacher.values())
    print(f"teacher    {cfg.datasets.teacher}: {len(training_set.teacher)} images")
    if masks:
        print(f"           {masks} boxes and masks without a class: they are proposals beside ours")
    print(f"\n{teacher_table(values)}\n")
    for word, meaning in _MEANING.items():
        if names := [name for name, of_class in values.items() if of_class["advice"] == word]:
            print(f"{word:<11}{', '.join(names)}: {meaning}")
    if compared is None:
        print(
            f"           how its boxes agree with ours is not known before there is {weights}: train from "
            "tags first (detector train CONFIG), and check again"
        )
    outputs.write("teacher.json", json.dumps(values, ensure_ascii=False, indent=2).encode())
    if (sheet := _draw(training_set, trust, compared)) is not None:
        path = outputs.write("teacher.png", sheet)
        print(f"           where it differs most from the tags and from ours: {path}")


class _Compared(NamedTuple):
    """What a weak detector says of an image."""

    said: Support
    ours: Detections


def _compare(cfg: Settings, training_set: TrainingSet, weights: Path) -> dict[str, _Compared]:
    """What a weak detector says of images that the teacher has seen, evenly spread, by their ids."""
    device = find_device(cfg.device)
    checkpoint = load_checkpoint(weights)
    check_class_names(cfg.datasets.classes, checkpoint, weights)
    model = restore_network(cfg, checkpoint, weights, "weak").to(device)
    dataset, teacher = training_set.dataset, training_set.teacher
    indices = [index for index, image_id in enumerate(dataset.image_ids) if image_id in teacher]
    indices = indices[:: -(-len(indices) // _MOST) or 1]
    scores = predict_all(
        cfg, model, dataset, indices, Precision(cfg.precision, device), training_set.proposals
    )
    choose = build_pseudo_boxes(
        cfg.self_train, training_set, of_student=False, noise=build_tag_noise(cfg.datasets)
    )
    found, (shown, _) = {}, tags_of(training_set)
    for index, each in zip(indices, scores, strict=True):
        image_id = dataset.image_ids[index]
        boxes = choose(index, each, None)
        found[image_id] = _Compared(support(teacher[image_id], each, shown[index]), boxes)
    return found


def _draw(training_set: TrainingSet, trust: Trust, compared: Mapping[str, _Compared] | None) -> bytes | None:
    """A PNG sheet of the images in which a teacher differs most; None: it has seen none."""
    dataset, (shown, known) = training_set.dataset, tags_of(training_set)
    values = {}
    for index, image_id in enumerate(dataset.image_ids):
        if (found := training_set.teacher.get(image_id)) is not None:
            said = compared[image_id].said if compared is not None else None
            values[index] = disagreement(found, shown[index], known[index], trust, said)
    pictures = []
    for index in sorted(values, key=lambda index: -values[index])[:_PICTURES]:
        image_id, ours = dataset.image_ids[index], None
        found = training_set.teacher[image_id]
        found = found[trust.keeps(found)]
        if compared is not None:
            boxes, labels = compared[image_id].ours.boxes, compared[image_id].ours.labels
            ours = Annotation(image_id, boxes, labels, torch.zeros(len(boxes), dtype=torch.bool))
        detections = Detections(image_id, found.boxes, found.scores, found.labels)
        image, names = dataset.read_image(index), dataset.class_names
        pictures.append(draw_detections(image, detections, ours, names, score_threshold=0.0))
    return encode_image(contact_sheet(pictures, _LEGEND), "png") if pictures else None


def teacher_table(values: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each class of what :meth:`Trust.describe` and trial students say, in percent."""
    keys = {
        "found where tagged": "recall",
        "found where denied": "denied",
        "boxes beyond chance": "precision",
        "agree with ours": "agreement",
    }
    sources = list(SOURCES) if any("image_AP" in of_class for of_class in values.values()) else []
    heads = [f"image AP from {source}" for source in sources]
    rows = [["class", *keys, "from score", *heads, "advice"]]
    for name, of_class in values.items():
        shown = ["-" if of_class[key] is None else f"{100 * of_class[key]:.0f} %" for key in keys.values()]
        score = of_class["thresholds"]
        shown.append("-" if score is None else f"{score:.2f}")
        image_aps = [of_class["image_AP"][source] for source in sources]
        shown += ["-" if value is None else f"{value:.1f}" for value in image_aps]
        rows.append([name, *shown, of_class["advice"]])
    return "\n".join(align(rows))
