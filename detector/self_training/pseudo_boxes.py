"""The pseudo boxes of self-training: detections in the training split, written as a data set."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from detector.config import KEYS, Settings
from detector.data.training_set import TrainingSet, changed_data
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.engine.run_folder import check_class_names
from detector.evaluation.summary import write_json
from detector.modeling.build import build_tag_noise
from detector.modeling.weak_rcnn import WeakRCNN
from detector.self_training.build import Student, build_pseudo_boxes
from detector.self_training.choose import mean_scores
from detector.self_training.fuse import Opinion, support
from detector.self_training.join import join
from detector.self_training.networks import Model, predict_all, restore_network
from detector.self_training.pseudo_set import write_training_boxes
from detector.self_training.student import StudentRun
from detector.structures import Scores
from detector.utils.distributed import gather, is_main, rank, sync_errors, world_size
from detector.utils.errors import UserError
from detector.utils.files import file_digest, read_json

logger = logging.getLogger(__name__)

ORIGIN = "pseudo_origin.json"  # in the run folder: what the pseudo boxes were made from


def origin(cfg: Settings, weights: Sequence[Path]) -> dict[str, Any]:
    """What the pseudo boxes depend on in addition to the data: the weights and the keys that choose boxes."""
    return {
        "weights": " ".join(file_digest(path) if path.exists() else "" for path in weights).strip(),
        **{key: value for key, value in cfg.values().items() if "pseudo_boxes" in KEYS[key].affects},
    }


def check_origin(cfg: Settings, weights: Sequence[Path], folder: Path, data: Mapping[str, str]) -> None:
    """Refuse to continue with pseudo boxes that were made with other weights, keys or data.

    Args:
        data: the result of :meth:`TrainingSet.describe`.

    Raises:
        UserError: names what differs.
    """
    if not (folder / ORIGIN).exists():
        return
    before, now = read_json(folder / ORIGIN, "origin of the pseudo boxes"), origin(cfg, weights)
    made_from = before.pop("data", None)
    # A key that an older version did not have counts as off.
    differing = [key for key in {**now, **before} if (before.get(key) or 0) != (now.get(key) or 0)]
    if not any(path.exists() for path in weights) and "weights" in differing:
        differing.remove("weights")  # the weights are not needed once their boxes exist
    if differing:
        raise UserError(
            f"{folder / 'pseudo'} was made with other values of {', '.join(differing)} than are given now "
            f"(weights: {', '.join(map(str, weights))}): give those again, or remove {folder} to start over"
        )
    if changed := changed_data(made_from, data):
        raise UserError(
            f"{folder / 'pseudo'} was made from other data: {changed}. Undo the change to go on with it, or "
            f"remove {folder} to start over"
        )


def found_by(student: Path) -> list[str]:
    """SHA-256 of the weights that found the first pseudo boxes of a student's folder; []: it is not known."""
    first = student / "round_1" / ORIGIN
    path = first if first.is_file() else student / ORIGIN
    return str(read_json(path).get("weights", "")).split() if path.is_file() else []


def find_trials(folder: Path, training_set: TrainingSet) -> dict[str, dict[str, Any]]:
    """The image AP of each source and the advice, of each class, where a student in `folder` has tried them.

    {}: none has, or with another teacher.
    """
    for run in (folder / "round_1", folder):
        if not (run / "teacher.json").is_file() or not (run / ORIGIN).is_file():
            continue
        data, part = read_json(run / ORIGIN).get("data", {}), "boxes of the teacher"
        if data.get(part) == training_set.describe().get(part):
            values = read_json(run / "teacher.json")
            keys = "image_AP", "advice"
            return {
                name: {key: of_class[key] for key in keys}
                for name, of_class in values.items()
                if keys[0] in of_class
            }
    return {}


def find_pseudo_boxes(run: StudentRun, training_set: TrainingSet, weights: Sequence[Path]) -> None:
    """Write the pseudo boxes of the training split as a data set, FOLDER/pseudo, and their origin.

    Args:
        run: of the student that is to learn them.
        weights: checkpoints of one detector, or of several weak detectors whose scores are averaged.

    Raises:
        UserError: one of several is a Faster R-CNN, which scores boxes of its own.
    """
    cfg, folder, device = run.cfg, run.folder, run.device
    with sync_errors():
        kind: Model = "weak" if len(weights) > 1 else "auto"
        models = [load_model(cfg, path, kind, device) for path in weights]
        data = training_set.describe()
        if isinstance(models[0], Student):
            data.pop("proposals", None)  # it finds boxes without them
        made_from = origin(cfg, weights) | {"data": data}
        if is_main():
            folder.mkdir(exist_ok=True)
            write_json(folder / ORIGIN, made_from)
    own = range(rank(), len(training_set.dataset), world_size())
    opinions = look(cfg, models, training_set, own, device)
    for others in gather(opinions):
        opinions |= others
    boxes = {index: opinion.boxes for index, opinion in opinions.items()}
    if training_set.teacher:
        boxes = join(run, training_set, opinions, weights[0], made_from)
    with sync_errors():
        write_training_boxes(folder / "pseudo", cfg.datasets.train_split, training_set, boxes)
    count = sum(len(image.boxes) for image in boxes.values())
    names = ", ".join(map(str, weights))
    logger.info("%d pseudo boxes in %d images, found by %s", count, len(boxes), names)


def look(
    cfg: Settings,
    models: Sequence[WeakRCNN | Student],
    training_set: TrainingSet,
    indices: Sequence[int],
    device: torch.device,
) -> dict[int, Opinion]:
    """What detectors make of some training images, by index: of several, their mean scores do.

    An image that no box of theirs is taken from, as it shows no class or a person has reviewed all of its
    objects, is not scored.
    """
    dataset, shown = training_set.dataset, torch.from_numpy(training_set.labels())  # (N, C)
    noise = build_tag_noise(cfg.datasets)
    choose = build_pseudo_boxes(
        cfg.self_train, training_set, of_student=isinstance(models[0], Student), noise=noise
    )

    def is_asked_for(index: int) -> bool:
        image_id = dataset.image_ids[index]
        reviewed = training_set.reviewed.get(image_id)
        known = reviewed is not None and reviewed.complete and image_id not in training_set.teacher
        return noise is not None or (bool(shown[index].any()) and not known)

    def opinion(index: int, scores: Scores) -> Opinion:
        of_teacher = training_set.teacher.get(scores.image_id)
        said = None if of_teacher is None else support(of_teacher, scores, shown[index])
        return Opinion(choose(index, scores, None), said)

    scored = [index for index in indices if is_asked_for(index)]
    precision, classes = Precision(cfg.precision, device), shown.shape[1]
    found = (predict_all(cfg, model, dataset, scored, precision, training_set.proposals) for model in models)
    opinions = {}
    for index in set(indices).difference(scored):
        nothing = Scores(dataset.image_ids[index], torch.zeros(0, classes, 4), torch.zeros(0, classes))
        opinions[index] = opinion(index, nothing)
    for index, *image_scores in zip(scored, *found, strict=True):
        opinions[index] = opinion(index, mean_scores(image_scores))
    return opinions


def load_model(cfg: Settings, weights: Path, model: Model, device: torch.device) -> WeakRCNN | Student:
    """The detector of a checkpoint, which has the classes of the config.

    Raises:
        UserError: it has others, or is of another kind.
    """
    checkpoint = load_checkpoint(weights)
    check_class_names(cfg.datasets.classes, checkpoint, weights)
    return restore_network(cfg, checkpoint, weights, model).to(device)
