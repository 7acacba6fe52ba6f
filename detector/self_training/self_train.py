"""Self-training: a Faster R-CNN learns from the boxes that a weak detector found in its training split."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from detector.config import Settings, check_resumable, load_cfg, with_values
from detector.data.build import build_training_set, draw_factors, name_classes
from detector.engine.build import wants_coco_metrics
from detector.engine.resuming import list_checkpoints
from detector.engine.run_folder import hint_at_resume, refuse_earlier_run, start_run
from detector.self_training.pseudo_boxes import check_origin, find_pseudo_boxes
from detector.self_training.student import StudentRun, train_detector, train_with_teacher
from detector.utils.config_files import how_to_make
from detector.utils.distributed import (
    find_device,
    gather,
    process_group,
    restarts,
    sync_errors,
    world_size,
)
from detector.utils.errors import ConfigError, UserError
from detector.utils.files import reading
from detector.utils.folder_lock import folder_lock


def self_train(config_file: str, overrides: Sequence[str], weights: Sequence[str], resume: bool) -> Path:
    """Train a Faster R-CNN on what weak detectors find. Under torchrun the processes share the images.

    Args:
        config_file: a config, or the run folder of the weak detector.
        overrides: keys of the config to change.
        weights: checkpoints of weak detectors, whose mean finds the boxes; none: that of OUTPUT_DIR.
        resume: go on with what OUTPUT_DIR/self_train holds.

    Returns:
        OUTPUT_DIR.

    Raises:
        UserError, OSError: invalid configuration or data.
    """
    cfg = student_cfg(load_cfg(config_file, overrides))
    folder = Path(cfg.output_dir) / "self_train"
    paths = [Path(path) for path in weights] or [Path(cfg.output_dir) / "model_final.pt"]
    # Other processes may have larger images and take longer to find pseudo boxes.
    with process_group(find_device(cfg.device), max(cfg.distributed.timeout, 3600.0)), ExitStack() as stack:
        with sync_errors():
            resume = resume or restarts() > 0
            refuse_begun(folder, resume)
            for path in paths:
                if not _found_boxes(folder) and not path.is_file():
                    raise FileNotFoundError(f"checkpoint {path} does not exist; {how_to_make(path)}")
            stack.enter_context(folder_lock(cfg.output_dir))
        _self_train(cfg, folder, paths)
    return folder.parent


def refuse_begun(folder: Path, resume: bool) -> None:
    """Raise UserError if a folder holds a self-training that is not to be resumed."""
    refuse_earlier_run(folder, resume)
    if _found_boxes(folder) and not resume:
        raise UserError(f"{folder} holds pseudo boxes: add --resume to continue it, or remove it")


def _found_boxes(folder: Path) -> list[Path]:
    return [*folder.glob("pseudo"), *folder.glob("round_*/pseudo")]


def _self_train(cfg: Settings, folder: Path, weights: Sequence[Path]) -> None:
    """Train the student, then train it with a teacher; stages that are complete are skipped."""
    # With SELF_TRAIN.TEACHER_STEPS the student that learns the pseudo boxes is kept in a folder of its own.
    student = folder / "round_1" if cfg.self_train.teacher_steps else folder
    learned = student / "model_final.pt"
    with sync_errors():
        device = start_run(cfg, folder)
        wants_coco_metrics(
            cfg.test.metrics, cfg.datasets.format
        )  # before hours of training, an error if the package is missing
        training_set = build_training_set(cfg)
        cfg = name_classes(cfg, training_set.dataset)
        student_only = with_values(cfg, {"SELF_TRAIN.TEACHER_STEPS": 0})
        with_teacher = with_values(cfg, {"SOLVER.MAX_ITER": cfg.self_train.teacher_steps})
        factors = draw_factors(cfg.solver, training_set)
        run = StudentRun(student_only, student, device, factors)
        if (student / "pseudo").exists():
            check_origin(student_only, weights, student, training_set.describe())
        check_config(student_only, student)
        if student != folder:
            check_config(with_teacher, folder)
    with hint_at_resume(*dict.fromkeys((student, folder))):
        if student == folder or not learned.exists():
            if not (student / "pseudo").exists():
                find_pseudo_boxes(run, training_set, weights)
            train_detector(run, weights[0])
            gather(None)  # the main process has written model_final.pt before another reads it
        if student != folder:
            train_with_teacher(StudentRun(with_teacher, folder, device, factors), training_set, learned)
            gather(None)


def check_config(cfg: Settings, folder: Path) -> None:
    """Refuse to continue a student that was begun with another config.

    Raises:
        UserError: names what differs.
    """
    config = folder / "config.yaml"
    if config.exists() and (list_checkpoints(folder) or (folder / "model_final.pt").exists()):
        with reading(config, "config"):
            check_resumable(config.read_text(), cfg, "student")


def student_cfg(cfg: Settings) -> Settings:
    """The config by which the student is trained: SELF_TRAIN replaces what SOLVER says.

    Raises:
        ConfigError: the processes cannot share the images of a step, or a small student cannot begin with the
            weak detector's backbone.
    """
    options = cfg.self_train
    if options.images_per_batch % world_size():
        raise ConfigError(
            f"SELF_TRAIN.IMAGES_PER_BATCH is {options.images_per_batch}, expected a multiple of "
            f"{world_size()}: so many processes share the images of a step"
        )
    weak = cfg.model.backbone.name
    if options.backbone == "small" and weak != "small":
        raise ConfigError(
            f"SELF_TRAIN.BACKBONE is 'small', but MODEL.BACKBONE.NAME is {weak!r}: the student begins with "
            "the backbone of the weak detector; expected 'timm', 'resnet50' or 'mobilenet_v3'"
        )
    solver = {
        "MAX_ITER": options.max_iter,
        "BASE_LR": options.base_lr,
        "SCHEDULE": "cosine",
        "IMAGES_PER_BATCH": options.images_per_batch // world_size(),
        "ACCUMULATE": 1,
        "IMAGES_PER_STEP": 0,
        "LR_SCALING": "none",
        "GRADIENT_REDUCTION": "mean",
        "SCALE_MOMENTUM": False,
        "REPEAT_THRESHOLD": 0.0,
        "BACKBONE_LR_FACTOR": 1.0,  # the pyramid, which is new, belongs to the backbone
    }
    return with_values(cfg, {f"SOLVER.{key}": value for key, value in solver.items()})
