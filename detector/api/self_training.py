"""Self-training: a Faster R-CNN learns from the boxes that a weak detector found in its training split."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from yacs.config import CfgNode

from detector.api.pseudo_boxes import check_origin, find_pseudo_boxes
from detector.api.run_folder import find_proposals, hint_at_resume, refuse_earlier_run, start_run
from detector.api.student_training import FIXED, train_detector, train_with_teacher
from detector.api.testing import test
from detector.build import wants_coco_metrics
from detector.build_data import build_dataset, build_hints, build_reviewed, draw_factors, name_classes
from detector.config import check_resumable, load_cfg, with_values
from detector.data.training_data import describe_data
from detector.engine.checkpoint import how_to_make
from detector.engine.resuming import list_checkpoints
from detector.utils.distributed import (
    find_device,
    gather,
    is_main,
    process_group,
    restarts,
    together,
    world_size,
)
from detector.utils.errors import ConfigError, UserError
from detector.utils.files import reading
from detector.utils.folder_lock import folder_lock


def run(config_file: str, overrides: Sequence[str], weights: Sequence[str], resume: bool) -> Path:
    """What detector self-train does; returns OUTPUT_DIR. Under torchrun the processes share the images."""
    cfg = student_cfg(load_cfg(config_file, overrides))
    folder = Path(cfg.OUTPUT_DIR) / "self_train"
    paths = [Path(path) for path in weights] or [Path(cfg.OUTPUT_DIR) / "model_final.pt"]
    # Others may have larger images to find pseudo boxes in.
    with process_group(find_device(cfg.DEVICE), max(cfg.DISTRIBUTED.TIMEOUT, 3600.0)), ExitStack() as stack:
        with together():
            resume = resume or restarts() > 0
            refuse_earlier_run(folder, resume)
            found = [*folder.glob("pseudo"), *folder.glob("round_*/pseudo")]
            if found and not resume:
                raise UserError(f"{folder} holds pseudo boxes: add --resume to continue it, or remove it")
            for path in paths:
                if not found and not path.is_file():
                    raise FileNotFoundError(f"checkpoint {path} does not exist; {how_to_make(path)}")
            stack.enter_context(folder_lock(cfg.OUTPUT_DIR))
        _self_train(cfg, folder, paths)
    return folder.parent


def _self_train(cfg: CfgNode, folder: Path, weights: Sequence[Path]) -> None:
    """Make all rounds and measure the last student; what an earlier start has done is not done again."""
    with together():
        device = start_run(cfg, folder)
        wants_coco_metrics(cfg)  # before hours of training, an error if the package is missing
        train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
        cfg = name_classes(cfg, train_set)
        reviewed, hints = build_reviewed(cfg, train_set), build_hints(cfg, train_set)
        factors = draw_factors(cfg, train_set, reviewed, hints)
        data = describe_data(train_set, reviewed, hints, find_proposals(cfg))
        rounds = list(each_round(cfg, folder, weights))
        for each in rounds:
            check_round(each, data)
    with hint_at_resume(*(path for each in rounds for path in each.students)):
        for each in rounds:
            made = [path for path in each.students if path != folder and (path / "model_final.pt").exists()]
            if len(made) == len(each.students):
                continue
            if each.cfg.SELF_TRAIN.TEACHER_STEPS:
                train_with_teacher(each.cfg, folder, device, train_set, each.weights[0], factors)
            else:
                pseudo = each.folder / "pseudo"
                if not pseudo.exists():
                    find_pseudo_boxes(
                        each.cfg, train_set, each.weights, each.folder, device, held_out=each.weights_held_out
                    )
                for fold, path in enumerate(each.students):
                    drawn = held_out_factors(factors, len(train_set), fold, len(each.students))
                    if path not in made:
                        train_detector(each.cfg, path, pseudo, device, weights[0], drawn)
            gather(None)  # the main process has written model_final.pt before another reads it
        _, metrics = test(cfg, folder, folder / "model_final.pt", "student", ())
    if is_main():
        for number, figures in enumerate(metrics.get("pseudo_boxes_by_round", []), start=1):
            line = "round {}: {count} pseudo boxes: precision {precision:.1f}, recall {recall:.1f}"
            print(line.format(number, **figures))


def held_out_factors(factors: np.ndarray | None, count: int, fold: int, folds: int) -> np.ndarray | None:
    """How often to draw each of `count` images: as `factors` say, those of the fold never."""
    if folds == 1:
        return factors
    return np.where(np.arange(count) % folds == fold, 0.0, 1.0 if factors is None else factors)


class Round(NamedTuple):
    """A round of self-training: students that learn from the same pseudo boxes."""

    cfg: CfgNode  # of a self-training that ends with this round
    folder: Path  # of the pseudo boxes
    students: Sequence[Path]  # their folders: that of the round, or one in it for each fold
    weights: Sequence[Path]  # of the detectors that find the boxes
    weights_held_out: bool  # each finds the boxes of its fold, not the mean of all of them


def each_round(cfg: CfgNode, folder: Path, weights: Sequence[Path]) -> Iterator[Round]:
    """The rounds that the config asks for, and one more for SELF_TRAIN.TEACHER_STEPS.

    The last one writes to `folder`, the ones before it to round_1, round_2, ... in it. The steps of the
    teacher go on from the weights of the last student.
    """
    count, steps, folds = cfg.SELF_TRAIN.ROUNDS, cfg.SELF_TRAIN.TEACHER_STEPS, 1
    for number in range(1, count + 1):
        round_cfg = with_values(cfg, {"SELF_TRAIN.ROUNDS": number, "SELF_TRAIN.TEACHER_STEPS": 0})
        round_folder = folder if number == count and not steps else folder / f"round_{number}"
        held_out, folds = folds > 1, cfg.SELF_TRAIN.FOLDS if number < count else 1
        students = [round_folder / f"fold_{fold}" for fold in range(folds)] if folds > 1 else [round_folder]
        yield Round(round_cfg, round_folder, students, weights, held_out)
        weights = [path / "model_final.pt" for path in students]
    if steps:
        yield Round(with_values(cfg, {"SOLVER.MAX_ITER": steps}), folder, [folder], weights, False)


def check_round(each: Round, data: Mapping[str, str]) -> None:
    """Refuse to continue a round that was begun with another config, other weights or data; see each_round.

    Raises:
        UserError: names what differs.
    """
    if (each.folder / "pseudo").exists():
        check_origin(each.cfg, each.weights, each.folder, data)
    for folder in each.students:
        config = folder / "config.yaml"
        if config.exists() and (list_checkpoints(folder) or (folder / "model_final.pt").exists()):
            with reading(config, "config"):
                check_resumable(config.read_text(), each.cfg, FIXED)


def student_cfg(cfg: CfgNode) -> CfgNode:
    """The config by which the student is trained: SELF_TRAIN replaces what SOLVER says.

    Raises:
        ConfigError: the processes cannot share the images of a step, there is no round with folds, or a small
            student cannot begin with the weak detector's backbone.
    """
    options = cfg.SELF_TRAIN
    if options.IMAGES_PER_BATCH % world_size():
        raise ConfigError(
            f"SELF_TRAIN.IMAGES_PER_BATCH is {options.IMAGES_PER_BATCH}, expected a multiple of "
            f"{world_size()}: so many processes share the images of a step"
        )
    weak = cfg.MODEL.BACKBONE.NAME
    if options.BACKBONE == "small" and weak != "small":
        raise ConfigError(
            f"SELF_TRAIN.BACKBONE is 'small', but MODEL.BACKBONE.NAME is {weak!r}: the student begins with "
            "the backbone of the weak detector; expected 'timm', 'resnet50' or 'mobilenet_v3'"
        )
    if options.FOLDS > 1 and options.ROUNDS == 1:
        raise ConfigError(
            f"SELF_TRAIN.FOLDS is {options.FOLDS}, expected 1, or SELF_TRAIN.ROUNDS of at least 2: the last "
            "round has one student"
        )
    solver = {
        "MAX_ITER": options.MAX_ITER,
        "BASE_LR": options.BASE_LR,
        "SCHEDULE": "cosine",
        "IMAGES_PER_BATCH": options.IMAGES_PER_BATCH // world_size(),
        "ACCUMULATE": 1,
        "IMAGES_PER_STEP": 0,
        "LR_SCALING": "none",
        "GRADIENT_REDUCTION": "mean",
        "SCALE_MOMENTUM": False,
        "REPEAT_THRESHOLD": 0.0,
        "BACKBONE_LR_FACTOR": 1.0,  # the pyramid, which is new, belongs to the backbone
    }
    return with_values(cfg, {f"SOLVER.{key}": value for key, value in solver.items()})
