"""From a config to the optimizer, schedule and training options of a run.

Data sets are in build_data.py, networks in build_model.py and build_backbone.py. Only these files, api/ and
tools/ read configs; all other code takes plain arguments.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from yacs.config import CfgNode

from detector.build_data import build_hints, build_reviewed, build_watched
from detector.build_model import build_refinement
from detector.data.annotated import AnnotatedImages
from detector.engine.precision import Precision
from detector.engine.schedule import lr_factor, parameter_groups
from detector.engine.self_training import pseudo_boxes
from detector.engine.snapshots import Snapshots
from detector.engine.train import TrainOptions
from detector.evaluation.coco import require_pycocotools
from detector.evaluation.pictures import choose_samples
from detector.structures import Detections, Scores
from detector.utils.distributed import world_size
from detector.utils.errors import ConfigError

# Number of training images in a snapshot, and of the first images among which they are chosen.
_WATCHED, _CANDIDATES = 4, 1000


def wants_coco_metrics(cfg: CfgNode) -> bool:
    """Whether TEST.METRICS asks for COCO's metrics; an error if the package that computes them is missing."""
    wanted = cfg.TEST.METRICS == "coco" or (cfg.TEST.METRICS == "auto" and cfg.DATASETS.FORMAT == "coco")
    if wanted:
        require_pycocotools()
    return wanted


def build_precision(cfg: CfgNode, device: torch.device) -> Precision:
    """PRECISION on a device."""
    return Precision(cfg.PRECISION, device)


def accumulated_batches(cfg: CfgNode) -> int:
    """Batches per step of each process.

    Raises:
        ConfigError: SOLVER.IMAGES_PER_STEP cannot be shared by the processes.
    """
    solver, processes = cfg.SOLVER, world_size()
    if solver.IMAGES_PER_STEP == 0:
        return solver.ACCUMULATE
    accumulate, rest = divmod(solver.IMAGES_PER_STEP, solver.IMAGES_PER_BATCH * processes)
    if rest:
        raise ConfigError(
            f"SOLVER.IMAGES_PER_STEP is {solver.IMAGES_PER_STEP}, expected a multiple of "
            f"{solver.IMAGES_PER_BATCH * processes}: {processes} processes share it, in batches of "
            f"SOLVER.IMAGES_PER_BATCH {solver.IMAGES_PER_BATCH}"
        )
    return accumulate


def images_per_step(cfg: CfgNode) -> int:
    """Images per step of all processes together."""
    return cfg.SOLVER.IMAGES_PER_BATCH * accumulated_batches(cfg) * world_size()


def base_lr(cfg: CfgNode) -> float:
    """SOLVER.BASE_LR, scaled with the images per step as LR_SCALING says."""
    scale = images_per_step(cfg) / cfg.SOLVER.LR_IMAGES if cfg.SOLVER.LR_SCALING == "linear" else 1
    return cfg.SOLVER.BASE_LR * scale


def build_optimizer(cfg: CfgNode, model: nn.Module) -> Optimizer:
    """The optimizer over the model's trainable parameters."""
    solver, drop_block = cfg.SOLVER, "box_features.drop_block"
    factors = {
        "backbone": solver.BACKBONE_LR_FACTOR,
        "head.refinements": solver.REFINEMENT_LR_FACTOR,
        drop_block: solver.DROP_BLOCK_LR_FACTOR,
    }
    groups = parameter_groups(
        model,
        base_lr=base_lr(cfg),
        weight_decay=solver.WEIGHT_DECAY,
        lr_factors={name: factor for name, factor in factors.items() if factor != 1},
        gammas={drop_block: solver.DROP_BLOCK_GAMMA} if solver.DROP_BLOCK_GAMMA else {},
        bias_lr_factor=solver.BIAS_LR_FACTOR,
        bias_weight_decay=solver.BIAS_WEIGHT_DECAY,
    )
    # One kernel for all parameters, which skips steps where float16 overflows without a host synchronization.
    fused = next(model.parameters()).is_cuda
    if solver.OPTIMIZER == "sgd":
        return SGD(groups, momentum=solver.MOMENTUM, fused=fused)
    return AdamW(groups, fused=fused)


def build_lr_factor(cfg: CfgNode) -> Callable[..., float]:
    """The function :func:`lr_factor` with the schedule of SOLVER."""
    solver = cfg.SOLVER
    return partial(
        lr_factor,
        max_iter=solver.MAX_ITER,
        schedule=solver.SCHEDULE,
        steps=solver.STEPS,
        gamma=solver.GAMMA,
        warmup_iters=solver.WARMUP_ITERS,
        warmup_factor=solver.WARMUP_FACTOR,
    )


def build_train_options(cfg: CfgNode) -> TrainOptions:
    """SEED and SOLVER as the options of the training loop."""
    solver = cfg.SOLVER
    return TrainOptions(
        seed=cfg.SEED,
        max_iter=solver.MAX_ITER,
        lr_factor=build_lr_factor(cfg),
        accumulate=accumulated_batches(cfg),
        gradient_factor=images_per_step(cfg) if solver.GRADIENT_REDUCTION == "sum" else 1.0,
        scale_momentum=solver.SCALE_MOMENTUM,
        clip_norm=solver.CLIP_NORM,
        log_period=solver.LOG_PERIOD,
        checkpoint_period=solver.CHECKPOINT_PERIOD,
        keep_checkpoints=solver.KEEP_CHECKPOINTS,
    )


def build_pseudo_boxes(
    cfg: CfgNode, dataset: AnnotatedImages, *, of_student: bool
) -> Callable[[int, Scores], Detections]:
    """A function from the index of a training image and its scores to the boxes to learn from.

    Args:
        of_student: a student regressed the boxes, so they stay where they are, and groups stay.
    """
    keys, reviewed, hints = cfg.SELF_TRAIN, build_reviewed(cfg, dataset), build_hints(cfg, dataset)

    def choose(index: int, scores: Scores) -> Detections:
        return pseudo_boxes(
            scores,
            dataset.labels(index),
            score_threshold=keys.SCORE_THRESHOLD,
            relative=keys.RELATIVE_SCORES,
            nms_threshold=keys.NMS,
            drop_inside=keys.DROP_INSIDE,
            drop_groups=0.0 if of_student else keys.DROP_GROUPS,
            voting_iou=0.0 if of_student else keys.VOTING_IOU,
            reviewed=reviewed.get(dataset.image_ids[index]),
            hints=hints.get(dataset.image_ids[index]),
        )

    return choose


def build_snapshots(cfg: CfgNode, dataset: AnnotatedImages) -> Snapshots | None:
    """The snapshots that training takes every SOLVER.PICTURE_PERIOD steps; None: none."""
    if cfg.SOLVER.PICTURE_PERIOD == 0:
        return None
    candidates = range(min(len(dataset), _CANDIDATES))
    indices = choose_samples([dataset.labels(i) for i in candidates], _WATCHED)
    views = build_watched(cfg, dataset, indices)
    usable = [k for k, each in enumerate(views) if len(each.proposals) and each.samples[0].labels.any()]
    return Snapshots(
        [views[k] for k in usable],
        [dataset.read_image(indices[k]) for k in usable],
        dataset.class_names,
        build_refinement(cfg),
        cfg.SOLVER.PICTURE_PERIOD,
    )
