"""How far each class of a teacher is worth using: a part of `detector check`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from detector.config import Settings
from detector.data.build import build_training_set, name_classes
from detector.data.training_set import TrainingSet
from detector.evaluation.pictures import contact_sheet, draw_detections
from detector.evaluation.summary import align
from detector.self_training.fuse import SOURCES, Opinion, Trust, disagreement
from detector.self_training.join import tags_of, trust_of
from detector.self_training.pseudo_boxes import find_trials, load_model, look
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
    opinions = None
    if weights.is_file() and training_set.proposals is not None:
        opinions = _look(cfg, training_set, weights)
    trust, names = trust_of(training_set, opinions), training_set.dataset.class_names
    values = {name: of_class | tried.get(name, {}) for name, of_class in trust.describe(names).items()}
    masks = sum(int((found.labels < 0).sum()) for found in training_set.teacher.values())
    print(f"teacher    {cfg.datasets.teacher}: {len(training_set.teacher)} images")
    if masks:
        print(f"           {masks} boxes and masks without a class: they are proposals beside ours")
    print(f"\n{teacher_table(values)}\n")
    for word, meaning in _MEANING.items():
        if advised := [name for name, of_class in values.items() if of_class["advice"] == word]:
            print(f"{word:<11}{', '.join(advised)}: {meaning}")
    if opinions is None:
        print(
            f"           how its boxes agree with ours is not known before there is {weights}: train from "
            "tags first (detector train CONFIG), and check again"
        )
    outputs.write("teacher.json", json.dumps(values, ensure_ascii=False, indent=2).encode())
    if (sheet := _draw(training_set, trust, opinions)) is not None:
        path = outputs.write("teacher.png", sheet)
        print(f"           where it differs most from the tags and from ours: {path}")


def _look(cfg: Settings, training_set: TrainingSet, weights: Path) -> dict[int, Opinion]:
    """What a weak detector makes of images that the teacher has seen, evenly spread, by their index."""
    device = find_device(cfg.device)
    model = load_model(cfg, weights, "weak", device)
    seen = [
        i for i, image_id in enumerate(training_set.dataset.image_ids) if image_id in training_set.teacher
    ]
    return look(cfg, [model], training_set, seen[:: -(-len(seen) // _MOST) or 1], device)


def _draw(training_set: TrainingSet, trust: Trust, opinions: Mapping[int, Opinion] | None) -> bytes | None:
    """A PNG sheet of the images in which a teacher differs most; None: it has seen none."""
    dataset, (shown, known) = training_set.dataset, tags_of(training_set)
    values = {}
    for index, image_id in enumerate(dataset.image_ids):
        found = training_set.teacher.get(image_id)
        if found is not None and (opinions is None or index in opinions):
            said = None if opinions is None else opinions[index].said
            values[index] = disagreement(found, shown[index], known[index], trust, said)
    pictures = []
    for index in sorted(values, key=lambda index: -values[index])[:_PICTURES]:
        image_id, ours = dataset.image_ids[index], None
        found = training_set.teacher[image_id]
        found = found[trust.keeps(found)]
        if opinions is not None:
            boxes = opinions[index].boxes
            ours = Annotation(image_id, boxes.boxes, boxes.labels, torch.zeros(len(boxes), dtype=torch.bool))
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
