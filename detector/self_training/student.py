"""How a student is trained: on the pseudo boxes of a folder, or on what the average of its weights finds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from detector.config import Settings
from detector.config.settings import SelfTrainSettings
from detector.data.build import build_tiling, find_test_set
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.voc import VOCDataset
from detector.data.reviewed import reviewed_counts
from detector.data.training_set import TrainingSet
from detector.engine.build import build_optimizer, build_train_options
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.engine.loop import make_steps
from detector.engine.precision import Precision
from detector.engine.resuming import list_checkpoints
from detector.engine.run_folder import check_same_start, record_run, resume_run
from detector.engine.running_ap import RunningAP
from detector.modeling.build import build_tag_noise
from detector.self_training.box_loader import BoxDataset, IndexedImages
from detector.self_training.build import (
    Student,
    build_box_loader,
    build_pseudo_boxes,
    build_student,
    build_student_postprocess,
)
from detector.self_training.pseudo_set import read_reviewed_counts, read_weights
from detector.self_training.scoring import score_images
from detector.self_training.teacher import TeacherStudent, distort_images, teacher_decay
from detector.structures import Detections
from detector.utils.distributed import is_main, sync_errors, world_size
from detector.utils.reproducibility import seed_everything


@dataclass(frozen=True)
class StudentRun:
    """What a student is trained with, and where."""

    cfg: Settings  # of the student
    folder: Path  # of its checkpoints
    device: torch.device
    factors: np.ndarray | None = None  # (N,), how often to draw each image; None: all equally often


def train_detector(run: StudentRun, found_by: Path, pseudo: Path | None = None) -> None:
    """Train on a data set of pseudo boxes, from the newest checkpoint of the folder or from the start.

    Args:
        found_by: checkpoint of the detector that found the boxes; a small backbone begins with its weights.
        pseudo: the data set; None: FOLDER/pseudo.
    """
    cfg, folder = run.cfg, run.folder
    with sync_errors():
        # The same weights, whether boxes were found before or not.
        seed_everything(cfg.seed, cfg.deterministic)
        pseudo = pseudo or folder / "pseudo"
        source = VOCDataset(pseudo, cfg.datasets.train_split, cfg.datasets.classes)
        split, fused = cfg.datasets.train_split, bool(cfg.datasets.teacher)
        reviewed = read_reviewed_counts(pseudo, split) if fused or _weighs_boxes(cfg.self_train) else ()
        model = build_student(cfg).to(run.device)
        if cfg.self_train.backbone == "small" and not list_checkpoints(folder):
            model.backbone.body.load_state_dict(backbone_of(load_checkpoint(found_by)["model"]))
        if cfg.self_train.strong_views:
            model.register_forward_pre_hook(distort_images)
    images = BoxDataset(
        source,
        flip=cfg.input.flip,
        reviewed=reviewed,
        copy_paste=cfg.self_train.copy_paste,
        mosaic=cfg.self_train.mosaic,
        pool=None
        if run.factors is None
        else np.flatnonzero(run.factors),  # with BOXED_SHARE 1 some are never drawn
        weights=read_weights(pseudo, split) if fused else (),
        tiling=build_tiling(cfg.input),
    )
    _train(run, model, images, source)


def backbone_of(saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the weights of a weak detector those of its backbone, of a student's those below its pyramid."""
    prefix = "backbone.body." if any(key.startswith("backbone.body.") for key in saved) else "backbone."
    return {key.removeprefix(prefix): saved[key] for key in saved if key.startswith(prefix)}


def train_with_teacher(run: StudentRun, training_set: TrainingSet, weights: Path) -> None:
    """Train on from the weights of a student, on what the average of its weights finds in each image.

    Args:
        training_set: of its boxes those that a person has reviewed are used alone.
    """
    cfg = run.cfg
    with sync_errors():
        seed_everything(cfg.seed, cfg.deterministic)
        student = build_student(cfg, pretrained=False)
        restore_model(student, load_checkpoint(weights), weights)
        model = TeacherStudent(
            student.to(run.device),
            decay=teacher_decay(cfg.solver.max_iter),
            choose=build_pseudo_boxes(
                cfg.self_train, training_set, of_student=True, noise=build_tag_noise(cfg.datasets)
            ),
            flip=cfg.input.flip,
        )
        dataset = training_set.dataset
        reviewed = (
            reviewed_counts(training_set.reviewed, dataset.image_ids) if _weighs_boxes(cfg.self_train) else ()
        )
    images = IndexedImages(dataset, reviewed=reviewed, tiling=build_tiling(cfg.input))
    _train(run, model, images, dataset)


def build_running_ap(
    cfg: Settings, test_set: AnnotatedImages | None, precision: Precision
) -> RunningAP | None:
    """The AP of a student while it learns; None: it is not measured."""
    if test_set is None or not cfg.solver.ap_share:
        return None
    postprocess = build_student_postprocess(cfg.test)

    def detect(model: nn.Module, indices: Sequence[int]) -> Iterator[Detections]:
        assert isinstance(model, Student)
        scores = score_images(
            *(model, test_set, indices),
            device=precision.device,
            precision=precision,
            images_per_batch=cfg.solver.images_per_batch,
            tiling=build_tiling(cfg.input),
        )
        return map(postprocess, scores)

    return RunningAP(detect, test_set, cfg.solver.ap_share)


def _weighs_boxes(options: SelfTrainSettings) -> bool:
    """Whether the losses of the student ask which boxes are reviewed."""
    return options.pseudo_weight != 1


def _train(
    run: StudentRun,
    model: Student | TeacherStudent,
    images: BoxDataset | IndexedImages,
    source: AnnotatedImages,
) -> None:
    cfg, folder, final = run.cfg, run.folder, None
    with sync_errors():
        if isinstance(model, TeacherStudent):
            optimizer, final = build_optimizer(cfg.solver, model.student), model.teacher
            optimizer.register_step_post_hook(model.update)
        else:
            optimizer = build_optimizer(cfg.solver, model)
        precision = Precision(cfg.precision, run.device)
        progress = resume_run(cfg, folder, model, optimizer, precision, "student")
        position = progress.iteration * world_size()  # batches that all processes have made
        batches = build_box_loader(cfg, images, start=position, factors=run.factors)
        running_ap = build_running_ap(cfg, find_test_set(cfg, source) if is_main() else None, precision)
        record_run(cfg, folder, run.device)
    check_same_start(progress.iteration)
    make_steps(
        model,
        lambda losses, batch: losses,  # in training the model returns its losses
        optimizer,
        batches,
        build_train_options(cfg.solver, cfg.seed),
        folder=folder,
        precision=precision,
        running_ap=running_ap,
        config=cfg.dump(),
        start=progress.iteration,
        train_seconds=progress.train_seconds,
        final=final,
    )
