"""The pseudo boxes of self-training: detections in the training split, written as a data set."""

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from detector.config import KEYS, Settings
from detector.data.reviewed import reviewed_counts
from detector.data.training_set import TrainingSet, changed_data
from detector.engine.checkpoint import load_checkpoint
from detector.engine.precision import Precision
from detector.engine.run_folder import check_class_names
from detector.evaluation.summary import write_json
from detector.modeling.build import build_tag_noise
from detector.modeling.weak_rcnn import WeakRCNN
from detector.self_training.build import Student, build_pseudo_boxes
from detector.self_training.choose import mean_scores
from detector.self_training.fuse import ADVICE, SOURCES, Source, Support, Trust, estimate_trust, fuse, support
from detector.self_training.networks import Model, predict_all, restore_network
from detector.self_training.pseudo_set import write_pseudo_set
from detector.self_training.trials import HALVES, best_sources, try_sources
from detector.structures import Detections
from detector.utils.distributed import gather, is_main, rank, sync_errors, world_size
from detector.utils.errors import UserError
from detector.utils.files import file_digest, read_json

logger = logging.getLogger(__name__)

_ORIGIN = "pseudo_origin.json"  # in the run folder: what the pseudo boxes were made from


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
    if not (folder / _ORIGIN).exists():
        return
    before, now = read_json(folder / _ORIGIN, "origin of the pseudo boxes"), origin(cfg, weights)
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


def learned_from_others(student: Path, weights: Path) -> bool:
    """Whether the first pseudo boxes of a student's folder were found by other weights than these."""
    first = student / "round_1" / _ORIGIN
    path = first if first.is_file() else student / _ORIGIN
    return path.is_file() and read_json(path).get("weights") not in ("", file_digest(weights))


def find_pseudo_boxes(
    cfg: Settings,
    training_set: TrainingSet,
    weights: Sequence[Path],
    folder: Path,
    device: torch.device,
    factors: np.ndarray | None = None,
) -> None:
    """Write the pseudo boxes of the training split as a data set, FOLDER/pseudo, and their origin.

    Args:
        weights: checkpoints of one detector, or of several weak detectors whose scores are averaged.
        factors: (N,), how often trial students draw each image; None: all equally often.

    Raises:
        UserError: one of several is a Faster R-CNN, which scores boxes of its own.
    """
    with sync_errors():
        kind: Model = "weak" if len(weights) > 1 else "auto"
        models = [_load_model(cfg, path, kind, device) for path in weights]
        if is_main():
            folder.mkdir(exist_ok=True)
            data = training_set.describe()
            if isinstance(models[0], Student):
                data.pop("proposals", None)  # it finds boxes without them
            write_json(folder / _ORIGIN, origin(cfg, weights) | {"data": data})
        dataset = training_set.dataset
        own = range(rank(), len(dataset), world_size())
        choose = build_pseudo_boxes(
            cfg.self_train,
            training_set,
            of_student=isinstance(models[0], Student),
            noise=build_tag_noise(cfg.datasets),
        )
        precision = Precision(cfg.precision, device)
    found = (predict_all(cfg, model, dataset, own, precision, training_set.proposals) for model in models)
    boxes, supports = dict[int, Detections](), dict[int, Support]()
    shown = torch.from_numpy(training_set.labels())  # (N, C)
    for index, *image_scores in zip(own, *found, strict=True):
        scores = mean_scores(image_scores)
        boxes[index] = choose(index, scores, None)
        if (of_teacher := training_set.teacher.get(dataset.image_ids[index])) is not None:
            supports[index] = support(of_teacher, scores, shown[index])
    for others, others_supports in gather((boxes, supports)):
        boxes |= others
        supports |= others_supports
    if training_set.teacher:
        boxes = _fuse(cfg, training_set, boxes, supports, folder, device, weights, factors)
    with sync_errors():
        _write(cfg, training_set, boxes, folder / "pseudo")
    count = sum(len(image.boxes) for image in boxes.values())
    found_by = ", ".join(map(str, weights))
    logger.info("%d pseudo boxes in %d images, found by %s", count, len(boxes), found_by)


def _write(cfg: Settings, training_set: TrainingSet, boxes: Mapping[int, Detections], root: Path) -> None:
    """The boxes of all images, by index, as the new data set `root`; the main process writes it."""
    dataset = training_set.dataset
    if is_main():
        write_pseudo_set(
            root,
            cfg.datasets.train_split,
            dataset,
            [boxes[i] for i in range(len(dataset))],
            reviewed=reviewed_counts(training_set.reviewed, dataset.image_ids),
        )


def _fuse(
    cfg: Settings,
    training_set: TrainingSet,
    boxes: Mapping[int, Detections],
    supports: Mapping[int, Support],
    folder: Path,
    device: torch.device,
    weights: Sequence[Path],
    factors: np.ndarray | None,
) -> dict[int, Detections]:
    """The boxes joined with those of the teacher; writes FOLDER/teacher.json, the trust in its classes.

    With SELF_TRAIN.TRIAL_SHARE, each class learns from the source that is best for trial students.
    """
    names, trials = training_set.dataset.class_names, folder / "trials"
    trust = trust_of(training_set, [supports.get(i) for i in range(len(training_set.dataset))])
    values = trust.describe(names)
    drawn = len(training_set.dataset) if factors is None else np.count_nonzero(factors)
    if cfg.self_train.trial_share and drawn >= HALVES:
        pseudo: dict[Source, Path] = {}
        with sync_errors():
            if is_main():
                _remove_others(
                    trials, {"config": cfg.dump(), "data": training_set.describe(), **origin(cfg, weights)}
                )
            for source in SOURCES:
                pseudo[source] = trials / source
                if not pseudo[source].exists():
                    of_source = _join(training_set, boxes, trust.learn_from([source] * len(names)))
                    _write(cfg, training_set, of_source, pseudo[source])
        tags = tags_of(training_set)
        image_aps = try_sources(cfg, training_set.dataset, tags, pseudo, trials, device, weights[0], factors)
        sources = best_sources(image_aps)
        trust = trust.learn_from(sources)
        for c, name in enumerate(names):
            percent = {source: _percent(found[c]) for source, found in image_aps.items()}
            values[name] |= {"image_AP": percent, "advice": ADVICE[sources[c]]}
    if is_main():
        write_json(folder / "teacher.json", values)
        for name, of_class in values.items():
            logger.info("teacher     %s: %s", name, _reason(of_class))
        shutil.rmtree(trials, ignore_errors=True)
    return _join(training_set, boxes, trust)


def _remove_others(trials: Path, made_from: dict[str, Any]) -> None:
    """Remove the trials of a run that was stopped if they were made from something else."""
    path = trials / "made_from.json"
    if trials.exists() and (not path.is_file() or read_json(path) != made_from):
        shutil.rmtree(trials)
    trials.mkdir(exist_ok=True)
    write_json(path, made_from)


def _percent(image_ap: float) -> float | None:
    """None: no image shows the class."""
    return None if np.isnan(image_ap) else round(100 * float(image_ap), 2)


def _reason(of_class: Mapping[str, Any]) -> str:
    """The advice for a class and its reasons, from its values in teacher.json."""
    known = {source: value for source, value in of_class.get("image_AP", {}).items() if value is not None}
    tried = "".join(f", image AP from {source} {value:.1f}" for source, value in known.items())
    return f"{of_class['advice']}: trust {of_class['of_boxes']:.2f}{tried}"


def find_trials(folder: Path, training_set: TrainingSet) -> dict[str, dict[str, Any]]:
    """The image AP of each source and the advice, of each class, where a student in `folder` has tried them.

    {}: none has, or with another teacher.
    """
    for run in (folder / "round_1", folder):
        if not (run / "teacher.json").is_file() or not (run / _ORIGIN).is_file():
            continue
        data, part = read_json(run / _ORIGIN).get("data", {}), "boxes of the teacher"
        if data.get(part) == training_set.describe().get(part):
            values = read_json(run / "teacher.json")
            keys = "image_AP", "advice"
            return {
                name: {key: each[key] for key in keys} for name, each in values.items() if keys[0] in each
            }
    return {}


def _join(training_set: TrainingSet, boxes: Mapping[int, Detections], trust: Trust) -> dict[int, Detections]:
    """The boxes of each image joined with those of the teacher."""
    dataset, labels = training_set.dataset, torch.from_numpy(training_set.labels())  # (N, C)
    counts = reviewed_counts(training_set.reviewed, dataset.image_ids)
    return {
        i: fuse(
            *(boxes[i], training_set.teacher.get(dataset.image_ids[i]), labels[i], trust),
            fixed=counts[i][0],
            complete=counts[i][1],
        )
        for i in range(len(dataset))
    }


def trust_of(training_set: TrainingSet, supports: Sequence[Support | None] | None) -> Trust:
    """The trust in the teacher of a training set; `supports` as of :func:`estimate_trust`."""
    found = [training_set.teacher.get(image_id) for image_id in training_set.dataset.image_ids]
    return estimate_trust(found, *tags_of(training_set), supports)


def tags_of(training_set: TrainingSet) -> tuple[Tensor, Tensor]:
    """(N, C) bool each: the classes that each image shows, and those of which it is known."""
    dataset, reviewed = training_set.dataset, training_set.reviewed
    shown = torch.from_numpy(training_set.labels())
    known = torch.ones_like(shown)
    for row, image_id in enumerate(dataset.image_ids):
        complete = image_id in reviewed and reviewed[image_id].complete
        if (unknown := dataset.unknown(row)) is not None and not complete:
            known[row] = ~unknown | shown[row]
    return shown, known


def _load_model(cfg: Settings, weights: Path, model: Model, device: torch.device) -> WeakRCNN | Student:
    checkpoint = load_checkpoint(weights)
    check_class_names(cfg.datasets.classes, checkpoint, weights)
    return restore_network(cfg, checkpoint, weights, model).to(device)
