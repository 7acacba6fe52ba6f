"""From a config to what a run is made of, but for data (build_data.py) and networks (build_model.py).

The three are the only readers of configs beside api/ and the tools: all else takes plain arguments.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from yacs.config import CfgNode

from detector.build_data import build_watched
from detector.build_model import build_refinement
from detector.config import parse_cfg
from detector.data.annotated import AnnotatedImages
from detector.engine.precision import Precision, set_tf32
from detector.engine.schedule import lr_factor, parameter_groups
from detector.engine.snapshots import Snapshots
from detector.engine.train import train
from detector.evaluation.coco import find_engine
from detector.evaluation.samples import choose_samples
from detector.utils.distributed import local_rank, local_world_size, world_size
from detector.utils.errors import ConfigError
from detector.utils.files import archive_digest, file_digest, reading
from detector.utils.logging import setup_logging
from detector.utils.reproducibility import seed_everything

# Training images that snapshots are taken of, and how many are looked at to choose them: COCO has 80,000.
_WATCHED, _CANDIDATES = 4, 1000


def build_device(cfg: CfgNode) -> torch.device:
    """The device that DEVICE names; "auto" is the GPU where there is one. Each process has its own GPU."""
    available = torch.cuda.is_available()
    if cfg.DEVICE == "cuda" and not available:
        raise ConfigError("DEVICE is 'cuda', but torch finds no CUDA device; use DEVICE auto or DEVICE cpu")
    if not available or cfg.DEVICE == "cpu":
        return torch.device("cpu")
    if world_size() == 1:
        return torch.device("cuda")
    if local_world_size() > torch.cuda.device_count():
        raise ConfigError(
            f"{local_world_size()} processes were started where there are {torch.cuda.device_count()} GPUs; "
            "give torchrun --nproc_per_node of at most that, or use DEVICE cpu"
        )
    return torch.device("cuda", local_rank())


def build_coco_engine(cfg: CfgNode) -> str | None:
    """The package that computes COCO's figures, None where TEST.METRICS asks for none."""
    asked = cfg.TEST.METRICS == "coco" or (cfg.TEST.METRICS == "auto" and cfg.DATASETS.FORMAT == "coco")
    return find_engine() if asked else None


def start_run(cfg: CfgNode, folder: Path) -> torch.device:
    """The device to run on, once threads, seeds, the run folder and its log are set up."""
    device = build_device(cfg)
    if cfg.THREADS:
        torch.set_num_threads(cfg.THREADS)
    seed_everything(cfg.SEED, cfg.DETERMINISTIC)
    set_tf32(cfg.PRECISION == "tf32")
    torch.backends.cudnn.benchmark = cfg.CUDNN_BENCHMARK
    folder.mkdir(parents=True, exist_ok=True)
    setup_logging(folder / "log.txt")
    return device


def build_precision(cfg: CfgNode, device: torch.device) -> Precision:
    """What the model computes in, with the state (of float16's scaler) that a checkpoint keeps."""
    return Precision(cfg.PRECISION, device)


def accumulated_batches(cfg: CfgNode) -> int:
    """Batches that each process makes of a step.

    Raises:
        ValueError: SOLVER.IMAGES_PER_STEP cannot be shared by the processes.
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
    """Images that all processes together make a step of."""
    return cfg.SOLVER.IMAGES_PER_BATCH * accumulated_batches(cfg) * world_size()


def base_lr(cfg: CfgNode) -> float:
    """The learning rate that BASE_LR and LR_SCALING give for the images a step."""
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
    # One kernel for all, and it takes float16's overflows without the host. On the CPU, bits as they were.
    fused = next(model.parameters()).is_cuda
    if solver.OPTIMIZER == "sgd":
        return SGD(groups, momentum=solver.MOMENTUM, fused=fused)
    return AdamW(groups, fused=fused)


def build_lr_factor(cfg: CfgNode) -> Callable[..., float]:
    """Number of finished steps, and a gamma other than SOLVER.GAMMA, to the factor of the learning rate."""
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


def build_training(cfg: CfgNode) -> Callable[..., float]:
    """:func:`train` with what SEED and SOLVER say of it."""
    solver = cfg.SOLVER
    return partial(
        train,
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
        config=cfg.dump(),
    )


def build_snapshots(cfg: CfgNode, dataset: AnnotatedImages) -> Snapshots | None:
    """What looks every SOLVER.PICTURE_PERIOD steps at what the streams see; None: nothing does."""
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


def self_training_cfg(cfg: CfgNode) -> CfgNode:
    """The config of self-training's detector: SELF_TRAIN in the place of what SOLVER says."""
    options, changed = cfg.SELF_TRAIN, cfg.clone()
    changed.defrost()
    for key in ("MAX_ITER", "IMAGES_PER_BATCH", "BASE_LR"):
        changed.SOLVER[key] = options[key]
    changed.SOLVER.ACCUMULATE, changed.SOLVER.SCHEDULE = 1, "cosine"
    changed.SOLVER.IMAGES_PER_STEP, changed.SOLVER.LR_SCALING = 0, "none"
    changed.SOLVER.GRADIENT_REDUCTION, changed.SOLVER.SCALE_MOMENTUM = "mean", False
    changed.SOLVER.BACKBONE_LR_FACTOR = 1.0  # the pyramid, which is new, belongs to the backbone
    changed.freeze()
    return changed


def check_class_names(cfg: CfgNode, checkpoint: Mapping[str, Any], path: Path) -> None:
    """Compare DATASETS.CLASSES with the classes that a checkpoint was trained with, as its config says.

    The shapes of the weights do not tell: the same names in another order would give every box a wrong label.

    Raises:
        UserError: they differ; names the file and the first differences.
    """
    text = checkpoint.get("config", "")
    if not text:  # the checkpoint was saved without a config
        return
    with reading(path, "checkpoint"):
        saved = parse_cfg(text, "its config").DATASETS.CLASSES
    pairs = enumerate(zip_longest(saved, cfg.DATASETS.CLASSES), start=1)
    differing = [f"class {i} is {old!r} there and {new!r} here" for i, (old, new) in pairs if old != new]
    if saved and differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise ConfigError(
            f"checkpoint {path} was trained with other classes than DATASETS.CLASSES: "
            f"{'; '.join(differing[:3])}{more}. Use the config that it was trained with: config.yaml in its "
            "run folder"
        )


def results_key(cfg: CfgNode, weights: Path) -> str:
    """What the results of a test depend on, as 64 characters: weights, proposals, and the keys that matter.

    Weights and proposals count by what they hold, not by their paths.
    """
    return hashlib.sha256((_relevant_to_results(cfg) + file_digest(weights)).encode()).hexdigest()


def same_results(cfg: CfgNode, other: CfgNode) -> bool:
    """Whether tests of the same weights with two configs give the same results."""
    return _relevant_to_results(cfg) == _relevant_to_results(other)


def _relevant_to_results(cfg: CfgNode) -> str:
    """All of a config but the keys of training, speed and pictures; of the proposals, what the file holds."""
    relevant = cfg.clone()
    relevant.defrost()
    for key in ("SOLVER", "SELF_TRAIN", "DISTRIBUTED", "OUTPUT_DIR", "THREADS"):
        del relevant[key]
    for key in ("PICTURES", "PICTURE_SCORE"):
        del relevant.TEST[key]
    del relevant.DATASETS["WORKERS"]
    if Path(cfg.DATASETS.PROPOSALS).is_file():
        relevant.DATASETS.PROPOSALS = archive_digest(cfg.DATASETS.PROPOSALS)
    return relevant.dump()
