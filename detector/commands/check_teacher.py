"""How far each class of a teacher is worth using: a part of `detector check`."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from detector.config import Settings
from detector.data.build import build_training_set, name_classes
from detector.data.training_set import TrainingSet
from detector.engine.build import build_precision
from detector.engine.checkpoint import load_checkpoint
from detector.engine.run_folder import check_class_names
from detector.evaluation.summary import align
from detector.self_training.fuse import Support, support
from detector.self_training.networks import predict_all, restore_network
from detector.self_training.pseudo_boxes import trust_of
from detector.utils.distributed import find_device
from detector.utils.errors import UserError
from detector.utils.outputs import OutputFolder

_MOST = 300  # images whose boxes are compared with those of the weak detector
_MEANING = {
    "alone": "the teacher's boxes are as good as tags can tell",
    "with tags": "train with --teacher: the tags filter and complete its boxes",
    "not": "its boxes of these classes are no better than chance, or elsewhere than ours: train from tags",
}


def check_teacher(cfg: Settings, outputs: OutputFolder, problems: list[str]) -> None:
    """Print a table and the advice for each class of the teacher, if the config has one.

    Args:
        outputs: the folder to write teacher.json to.
        problems: gets what is wrong with the file of the teacher or the weak detector.
    """
    if cfg.datasets.teacher:
        try:
            _check_teacher(cfg, outputs)
        except (UserError, OSError) as error:
            problems.append(str(error))


def _check_teacher(cfg: Settings, outputs: OutputFolder) -> None:
    training_set = build_training_set(cfg)
    dataset = training_set.dataset
    cfg, weights = name_classes(cfg, dataset), Path(cfg.output_dir) / "model_final.pt"
    supports = None
    if weights.is_file() and training_set.proposals is not None:
        training_set, supports = _compare(cfg, training_set, weights)
    values = trust_of(training_set, supports).describe(dataset.class_names)
    masks = sum(int((found.labels < 0).sum()) for found in training_set.teacher.values())
    if supports is None:
        for of_class in values.values():
            of_class["agreement"] = None
    print(f"teacher    {cfg.datasets.teacher}: {len(training_set.teacher)} images")
    if masks:
        print(f"           {masks} boxes and masks without a class: they are proposals beside ours")
    print(f"\n{teacher_table(values)}\n")
    for word, meaning in _MEANING.items():
        if names := [name for name, of_class in values.items() if of_class["advice"] == word]:
            print(f"{word:<11}{', '.join(names)}: {meaning}")
    if supports is None:
        print(
            f"           how its boxes agree with ours is not known before there is {weights}: train from "
            "tags first (detector train CONFIG), and check again"
        )
    outputs.write("teacher.json", json.dumps(values, ensure_ascii=False, indent=2).encode())


def teacher_table(values: Mapping[str, Mapping[str, Any]]) -> str:
    """A line for each class of what :meth:`Trust.describe` says, in percent."""
    keys = {
        "found where tagged": "recall",
        "found where denied": "denied",
        "boxes beyond chance": "precision",
        "agree with ours": "agreement",
    }
    rows = [["class", *keys, "from score", "advice"]]
    for name, of_class in values.items():
        shown = ["-" if of_class[key] is None else f"{100 * of_class[key]:.0f} %" for key in keys.values()]
        score = of_class["thresholds"]
        rows.append([name, *shown, "-" if score is None else f"{score:.2f}", of_class["advice"]])
    return "\n".join(align(rows))


def _compare(
    cfg: Settings, training_set: TrainingSet, weights: Path
) -> tuple[TrainingSet, list[Support | None]]:
    """The images, evenly spread, that a weak detector has scored, and its support for each box there."""
    device = find_device(cfg.device)
    checkpoint = load_checkpoint(weights)
    check_class_names(cfg, checkpoint, weights)
    model = restore_network(cfg, checkpoint, weights, "weak").to(device)
    dataset = training_set.dataset
    indices = range(0, len(dataset), -(-len(dataset) // _MOST))
    scores = predict_all(cfg, model, dataset, indices, build_precision(cfg, device), training_set.proposals)
    supports = list[Support | None]([None] * len(dataset))
    seen = {}
    for index, each in zip(indices, scores, strict=True):
        image_id = dataset.image_ids[index]
        if (found := training_set.teacher.get(image_id)) is not None:
            seen[image_id], supports[index] = found, support(found, each)
    return replace(training_set, teacher=seen), supports
