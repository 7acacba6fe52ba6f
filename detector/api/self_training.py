"""Self-training: a Faster R-CNN learns from the boxes that a weak detector found in its training split."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from yacs.config import CfgNode

from detector.api.run_folder import (
    check_class_names,
    check_same_start,
    hint_at_resume,
    record_run,
    refuse_earlier_run,
    resume_run,
    start_run,
)
from detector.api.testing import test
from detector.build import build_optimizer, build_precision, build_train_options, wants_coco_metrics
from detector.build_data import (
    build_box_loader,
    build_dataset,
    build_hints,
    build_reviewed,
    build_test_loader,
    draw_factors,
    name_classes,
)
from detector.build_model import build_faster_rcnn, build_model
from detector.config import load_cfg
from detector.data.annotated import AnnotatedImages
from detector.data.pseudo_set import write_pseudo_set
from detector.data.voc import VOCDataset
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.engine.inference import predict
from detector.engine.self_training import pseudo_boxes
from detector.engine.train import train
from detector.evaluation.report import write_json
from detector.structures import Detections
from detector.utils.distributed import (
    find_device,
    gather,
    is_main,
    process_group,
    rank,
    restarts,
    together,
    world_size,
)
from detector.utils.errors import ConfigError, UserError
from detector.utils.files import file_digest, read_json
from detector.utils.folder_lock import folder_lock
from detector.utils.reproducibility import seed_everything

logger = logging.getLogger(__name__)

_ORIGIN = "pseudo_origin.json"  # in the run folder: what the pseudo boxes were made from
_PSEUDO_KEYS = ("SELF_TRAIN.SCORE_THRESHOLD", "SELF_TRAIN.NMS")
_FIXED = (*_PSEUDO_KEYS, *(f"SELF_TRAIN.{key}" for key in ("BACKBONE", "CHANNELS", "SIZES", "MAX_SIZE")))


def run(config_file: str, overrides: Sequence[str], weights: str | None, resume: bool) -> None:
    """What tools/self_train.py does; under torchrun the processes share the images of each part of it."""
    cfg = student_cfg(load_cfg(config_file, overrides))
    folder = Path(cfg.OUTPUT_DIR) / "self_train"
    path = Path(weights) if weights else Path(cfg.OUTPUT_DIR) / "model_final.pt"
    # Others may have larger images to find pseudo boxes in.
    with process_group(find_device(cfg.DEVICE), max(cfg.DISTRIBUTED.TIMEOUT, 3600.0)), ExitStack() as stack:
        with together():
            resume = resume or restarts() > 0
            refuse_earlier_run(folder, resume)
            if not resume and (folder / "pseudo").exists():
                raise UserError(f"{folder} holds pseudo boxes: add --resume to continue it, or remove it")
            if not (folder / "pseudo").exists() and not path.is_file():
                raise FileNotFoundError(
                    f"checkpoint {path} does not exist; train first, or name another file"
                )
            stack.enter_context(folder_lock(cfg.OUTPUT_DIR))
        _self_train(cfg, folder, path)


def _self_train(cfg: CfgNode, folder: Path, weights: Path) -> None:
    """Find pseudo boxes, train on them and measure; what an earlier start has done is not done again."""
    with together():
        device = start_run(cfg, folder)
        wants_coco_metrics(cfg)  # before hours of training, an error if the package is missing
        train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
        cfg = name_classes(cfg, train_set)
        factors = draw_factors(cfg, train_set, build_reviewed(cfg, train_set))
        found = (folder / "pseudo").exists()
        if found:
            check_origin(cfg, weights, folder)
    if not found:
        find_pseudo_boxes(cfg, train_set, weights, folder, device)
    train_detector(cfg, folder, device, factors)
    gather(None)  # the main process has written model_final.pt before another reads it
    metrics = test(cfg, folder, folder / "model_final.pt", "student")
    if is_main() and "pseudo_boxes" in metrics:
        line = "{count} pseudo boxes: precision {precision:.1f}, recall {recall:.1f}"
        print(line.format(**metrics["pseudo_boxes"]))


def student_cfg(cfg: CfgNode) -> CfgNode:
    """The config by which the student is trained: SELF_TRAIN replaces what SOLVER says.

    Raises:
        ConfigError: the processes cannot share the images of a step.
    """
    options, changed = cfg.SELF_TRAIN, cfg.clone()
    if options.IMAGES_PER_BATCH % world_size():
        raise ConfigError(
            f"SELF_TRAIN.IMAGES_PER_BATCH is {options.IMAGES_PER_BATCH}, expected a multiple of "
            f"{world_size()}: so many processes share the images of a step"
        )
    changed.defrost()
    for key in ("MAX_ITER", "BASE_LR"):
        changed.SOLVER[key] = options[key]
    changed.SOLVER.IMAGES_PER_BATCH = options.IMAGES_PER_BATCH // world_size()
    changed.SOLVER.ACCUMULATE, changed.SOLVER.SCHEDULE = 1, "cosine"
    changed.SOLVER.IMAGES_PER_STEP, changed.SOLVER.LR_SCALING = 0, "none"
    changed.SOLVER.GRADIENT_REDUCTION, changed.SOLVER.SCALE_MOMENTUM = "mean", False
    changed.SOLVER.REPEAT_THRESHOLD = 0.0
    changed.SOLVER.BACKBONE_LR_FACTOR = 1.0  # the pyramid, which is new, belongs to the backbone
    changed.freeze()
    return changed


def origin(cfg: CfgNode, weights: Path) -> dict[str, str | float]:
    """What the pseudo boxes depend on beside the data set: the weights and the keys that choose boxes."""
    more = {f"DATASETS.{key}": cfg.DATASETS[key] for key in ("BOXED", "BOXED_SHARE", "HINTS")}
    more |= {f"SELF_TRAIN.{key}": cfg.SELF_TRAIN[key] for key in ("RELATIVE_SCORES", "DROP_INSIDE")}
    return {
        "weights": file_digest(weights),
        **{key: cfg.SELF_TRAIN[key.partition(".")[2]] for key in _PSEUDO_KEYS},
        **{key: value for key, value in more.items() if value},
    }


def check_origin(cfg: CfgNode, weights: Path, folder: Path) -> None:
    """Refuse to continue with pseudo boxes that were made with other weights or keys.

    Raises:
        UserError: names what differs.
    """
    if not weights.exists() or not (folder / _ORIGIN).exists():  # the boxes are there; weights may be gone
        return
    before, now = read_json(folder / _ORIGIN, "origin of the pseudo boxes"), origin(cfg, weights)
    before = before if isinstance(before, dict) else {}
    differing = [key for key in {**now, **before} if before.get(key) != now.get(key)]
    if differing:
        raise UserError(
            f"{folder / 'pseudo'} was made with other values of {', '.join(differing)} than are given now "
            f"(weights: {weights}): give those again, or remove {folder} to start over"
        )


def find_pseudo_boxes(
    cfg: CfgNode, train_set: AnnotatedImages, weights: Path, folder: Path, device: torch.device
) -> None:
    """Write the pseudo boxes of the training split as a data set, FOLDER/pseudo, and their origin."""
    with together():
        if is_main():
            write_json(folder / _ORIGIN, origin(cfg, weights))
        checkpoint = load_checkpoint(weights)
        check_class_names(cfg, checkpoint, weights)
        model = build_model(cfg)
        restore_model(model, checkpoint, weights)
        own = range(rank(), len(train_set), world_size())
        loader, precision = build_test_loader(cfg, train_set, own), build_precision(cfg, device)
        reviewed, hints = build_reviewed(cfg, train_set), build_hints(cfg, train_set)
    results = predict(model.to(device), loader, device=device, precision=precision)
    keys = cfg.SELF_TRAIN
    options = {"score_threshold": keys.SCORE_THRESHOLD, "relative": keys.RELATIVE_SCORES}
    options |= {"nms_threshold": keys.NMS, "drop_inside": keys.DROP_INSIDE}
    bar = tqdm(results, total=len(own), desc="pseudo boxes", unit="image", disable=not is_main() or None)
    boxes = {
        index: pseudo_boxes(
            scores,
            train_set.labels(index),
            reviewed=reviewed.get(scores.image_id),
            hints=hints.get(scores.image_id),
            **options,
        )
        for index, scores in zip(own, bar, strict=True)
    }
    for others in gather(boxes):
        boxes |= others
    with together():
        if is_main():
            write_pseudo_boxes(cfg, train_set, [boxes[i] for i in range(len(train_set))], folder / "pseudo")
    count = sum(len(image.boxes) for image in boxes.values())
    logger.info("%d pseudo boxes in %d images, found by %s", count, len(boxes), weights)


def write_pseudo_boxes(
    cfg: CfgNode, train_set: AnnotatedImages, found: Sequence[Detections], folder: Path
) -> None:
    """Write the boxes of each image of the training split as a data set."""
    images = [(train_set.image_path(i), train_set.image_size(i)) for i in range(len(train_set))]
    write_pseudo_set(
        folder,
        cfg.DATASETS.TRAIN_SPLIT,
        train_set.class_names,
        images,
        found,
        train_set.read_image,
        apply_orientation=cfg.DATASETS.FORMAT == "image_labels",  # the other formats box the stored pixels
    )


def train_detector(
    cfg: CfgNode, folder: Path, device: torch.device, factors: np.ndarray | None = None
) -> None:
    """Train on the pseudo boxes of the folder, from its newest checkpoint or from the start.

    Args:
        factors: (N,), how often to draw each image; None: all equally often.
    """
    with together():
        seed_everything(
            cfg.SEED, cfg.DETERMINISTIC
        )  # the same weights, whether boxes were found before or not
        dataset = VOCDataset(folder / "pseudo", cfg.DATASETS.TRAIN_SPLIT, cfg.DATASETS.CLASSES)
        model = build_faster_rcnn(cfg).to(device)
        optimizer = build_optimizer(cfg, model)
        precision = build_precision(cfg, device)
        progress = resume_run(cfg, folder, model, optimizer, precision, fixed=_FIXED)
        position = progress.iteration * world_size()  # batches that all processes have made
        batches = build_box_loader(cfg, dataset, start=position, factors=factors)
        record_run(cfg, folder, device)
    check_same_start(progress.iteration)
    with hint_at_resume(folder):
        train(
            model,
            lambda losses, batch: losses,  # in training the model returns its losses
            optimizer,
            batches,
            build_train_options(cfg),
            folder=folder,
            device=device,
            precision=precision,
            config=cfg.dump(),
            start=progress.iteration,
            train_seconds=progress.train_seconds,
        )
