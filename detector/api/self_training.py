"""Self-training: a Faster R-CNN learns from the boxes that a weak detector found in its training split."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm
from yacs.config import CfgNode

from detector.api.run_folder import (
    check_class_names,
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
from detector.utils.distributed import world_size
from detector.utils.errors import UserError
from detector.utils.files import file_digest, read_json
from detector.utils.folder_lock import folder_lock

logger = logging.getLogger(__name__)

_ORIGIN = "pseudo_origin.json"  # in the run folder: what the pseudo boxes were made from
_PSEUDO_KEYS = ("SELF_TRAIN.SCORE_THRESHOLD", "SELF_TRAIN.NMS")
_FIXED = (*_PSEUDO_KEYS, "SELF_TRAIN.BACKBONE", "SELF_TRAIN.SIZES", "SELF_TRAIN.MAX_SIZE")  # when resuming


def run(config_file: str, overrides: Sequence[str], weights: str | None, resume: bool) -> None:
    if world_size() > 1:
        raise UserError(f"self-training runs in one process, found {world_size()}: start it without torchrun")
    cfg = student_cfg(load_cfg(config_file, overrides))
    folder = Path(cfg.OUTPUT_DIR) / "self_train"
    refuse_earlier_run(folder, resume)
    if not resume and (folder / "pseudo").exists():
        raise UserError(f"{folder} holds pseudo boxes: add --resume to continue it, or remove it")
    path = Path(weights) if weights else Path(cfg.OUTPUT_DIR) / "model_final.pt"
    if not (folder / "pseudo").exists() and not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist; train first, or name another file")
    with folder_lock(cfg.OUTPUT_DIR):
        _self_train(cfg, folder, path)


def _self_train(cfg: CfgNode, folder: Path, weights: Path) -> None:
    """Find pseudo boxes, train on them and measure; what an earlier start has done is not done again.

    Args:
        cfg: of `student_cfg`.
        folder: the run folder of self-training.
        weights: the checkpoint of the weak detector.
    """
    device = start_run(cfg, folder)
    wants_coco_metrics(cfg)  # before hours of training, an error if the package is missing
    train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    cfg = name_classes(cfg, train_set)
    if (folder / "pseudo").exists():
        check_origin(cfg, weights, folder)
    else:
        write_json(folder / _ORIGIN, origin(cfg, weights))
        find_pseudo_boxes(cfg, train_set, weights, folder / "pseudo", device)
    pseudo_set = VOCDataset(folder / "pseudo", cfg.DATASETS.TRAIN_SPLIT, cfg.DATASETS.CLASSES)
    factors = draw_factors(cfg, train_set, build_reviewed(cfg, train_set))
    train_detector(cfg, pseudo_set, folder, device, factors)
    metrics = test(cfg, folder, folder / "model_final.pt", "student")
    print(
        "{count} pseudo boxes: precision {precision:.1f}, recall {recall:.1f}".format(
            **metrics["pseudo_boxes"]
        )
    )


def student_cfg(cfg: CfgNode) -> CfgNode:
    """The config by which the student is trained: SELF_TRAIN replaces what SOLVER says."""
    options, changed = cfg.SELF_TRAIN, cfg.clone()
    changed.defrost()
    for key in ("MAX_ITER", "IMAGES_PER_BATCH", "BASE_LR"):
        changed.SOLVER[key] = options[key]
    changed.SOLVER.ACCUMULATE, changed.SOLVER.SCHEDULE = 1, "cosine"
    changed.SOLVER.IMAGES_PER_STEP, changed.SOLVER.LR_SCALING = 0, "none"
    changed.SOLVER.GRADIENT_REDUCTION, changed.SOLVER.SCALE_MOMENTUM = "mean", False
    changed.SOLVER.REPEAT_THRESHOLD = 0.0
    changed.SOLVER.BACKBONE_LR_FACTOR = 1.0  # the pyramid, which is new, belongs to the backbone
    changed.freeze()
    return changed


def origin(cfg: CfgNode, weights: Path) -> dict[str, str | float]:
    """What the pseudo boxes depend on beside the data set: the weights and the keys that choose boxes."""
    data = {f"DATASETS.{key}": cfg.DATASETS[key] for key in ("BOXED", "BOXED_SHARE", "HINTS")}
    return {
        "weights": file_digest(weights),
        **{key: cfg.SELF_TRAIN[key.partition(".")[2]] for key in _PSEUDO_KEYS},
        **{key: value for key, value in data.items() if value},
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
    """Write the pseudo boxes of the training split as a data set."""
    checkpoint = load_checkpoint(weights)
    check_class_names(cfg, checkpoint, weights)
    model = build_model(cfg)
    restore_model(model, checkpoint, weights)
    loader, precision = build_test_loader(cfg, train_set), build_precision(cfg, device)
    results = predict(model.to(device), loader, device=device, precision=precision)
    options = {"score_threshold": cfg.SELF_TRAIN.SCORE_THRESHOLD, "nms_threshold": cfg.SELF_TRAIN.NMS}
    reviewed, hints = build_reviewed(cfg, train_set), build_hints(cfg, train_set)
    found = [
        pseudo_boxes(
            scores,
            train_set.labels(index),
            reviewed=reviewed.get(scores.image_id),
            hints=hints.get(scores.image_id),
            **options,
        )
        for index, scores in enumerate(
            tqdm(results, total=len(train_set), desc="pseudo boxes", unit="image", disable=None)
        )
    ]
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
    count = sum(len(image.boxes) for image in found)
    logger.info("%d pseudo boxes in %d images, found by %s, in %s", count, len(found), weights, folder)


def train_detector(
    cfg: CfgNode,
    dataset: AnnotatedImages,
    folder: Path,
    device: torch.device,
    factors: np.ndarray | None = None,
) -> None:
    """Train from the newest checkpoint of the folder, or from the start.

    Args:
        factors: (N,), how often to draw each image; None: all equally often.
    """
    model = build_faster_rcnn(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    precision = build_precision(cfg, device)
    progress = resume_run(cfg, folder, model, optimizer, precision, fixed=_FIXED)
    record_run(cfg, folder, device)
    with hint_at_resume(folder):
        train(
            model,
            lambda losses, batch: losses,  # in training the model returns its losses
            optimizer,
            build_box_loader(cfg, dataset, start=progress.iteration, factors=factors),
            build_train_options(cfg),
            folder=folder,
            device=device,
            precision=precision,
            config=cfg.dump(),
            start=progress.iteration,
            train_seconds=progress.train_seconds,
        )
