"""Joins what a weak detector found in all images with what a teacher did, each class as trials say."""

import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from detector.data.reviewed import reviewed_counts
from detector.data.training_set import TrainingSet
from detector.evaluation.summary import write_json
from detector.self_training.fuse import ADVICE, SOURCES, Opinion, Trust, estimate_trust, fuse
from detector.self_training.pseudo_set import write_training_boxes
from detector.self_training.student import StudentRun
from detector.self_training.trials import HALVES, Trials, best_sources, try_sources
from detector.structures import Detections, TeacherBoxes
from detector.utils.distributed import is_main, sync_errors
from detector.utils.files import read_json

logger = logging.getLogger(__name__)


def join(
    run: StudentRun,
    training_set: TrainingSet,
    opinions: Mapping[int, Opinion],
    found_by: Path,
    made_from: Mapping[str, Any],
) -> dict[int, Detections]:
    """The boxes to learn in each image, by index; writes FOLDER/teacher.json, the trust in each class.

    With SELF_TRAIN.TRIAL_SHARE, each class learns from the source that is best for trial students.

    Args:
        run: of the student.
        opinions: of all images, by index.
        found_by: the checkpoint whose opinions they are.
        made_from: what they depend on: of a run that was stopped, trials that depend on the same go on.
    """
    dataset, folder = training_set.dataset, run.folder / "trials"
    names = dataset.class_names
    trust = trust_of(training_set, opinions)
    values = trust.describe(names)
    drawn = len(dataset) if run.factors is None else np.count_nonzero(run.factors)
    if run.cfg.self_train.trial_share and drawn >= HALVES and names_objects(training_set.teacher):
        with sync_errors():
            if is_main():
                _remove_others(folder, {"config": run.cfg.dump(), **made_from})
            for source in SOURCES:
                if not (folder / source).exists():
                    boxes = _fuse(training_set, opinions, trust.learn_from([source] * len(names)))
                    write_training_boxes(folder / source, run.cfg.datasets.train_split, training_set, boxes)
        trials = Trials(replace(run, folder=folder), dataset, *tags_of(training_set), found_by)
        image_aps = try_sources(trials)
        sources = best_sources(image_aps, (trust.recall > 0).numpy())
        trust = trust.learn_from(sources)
        for c, name in enumerate(names):
            percent = {source: _percent(found[c]) for source, found in image_aps.items()}
            values[name] |= {"image_AP": percent, "advice": ADVICE[sources[c]]}
    if is_main():
        write_json(run.folder / "teacher.json", values)
        for name, of_class in values.items():
            logger.info("teacher     %s: %s", name, _reason(of_class))
        shutil.rmtree(folder, ignore_errors=True)
    return _fuse(training_set, opinions, trust)


def names_objects(teacher: Mapping[str, TeacherBoxes]) -> bool:
    """Whether any box of a teacher has a class; others are proposals alone, and there is nothing to try."""
    return any(bool((found.labels >= 0).any()) for found in teacher.values())


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


def _fuse(training_set: TrainingSet, opinions: Mapping[int, Opinion], trust: Trust) -> dict[int, Detections]:
    """The boxes of each image joined with those of the teacher."""
    dataset, labels = training_set.dataset, torch.from_numpy(training_set.labels())  # (N, C)
    counts = reviewed_counts(training_set.reviewed, dataset.image_ids)
    joined = {}
    for index, image_id in enumerate(dataset.image_ids):
        found, (fixed, complete) = training_set.teacher.get(image_id), counts[index]
        ours = opinions[index].boxes
        joined[index] = fuse(ours, found, labels[index], trust, fixed=fixed, complete=complete)
    return joined


def trust_of(training_set: TrainingSet, opinions: Mapping[int, Opinion] | None) -> Trust:
    """The trust in the teacher of a training set.

    Args:
        opinions: of images that the teacher has seen, by index: others do not count. None: there is no weak
            detector, and all count.
    """
    found = [training_set.teacher.get(image_id) for image_id in training_set.dataset.image_ids]
    if opinions is None:
        return estimate_trust(found, *tags_of(training_set), None)
    said = [opinions[row].said if row in opinions else None for row in range(len(found))]
    seen = [boxes if row in opinions else None for row, boxes in enumerate(found)]
    return estimate_trust(seen, *tags_of(training_set), said)


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
