"""From the settings to the optimizer, schedule, precision and training options of a run."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from detector.config import Settings, with_values
from detector.config.settings import SolverSettings
from detector.data.build import build_snapshot_views, build_test_loader
from detector.data.datasets.annotated import AnnotatedImages
from detector.data.loader import is_large
from detector.data.proposals import Proposals
from detector.data.training_set import TrainingSet
from detector.engine.loop import TrainOptions
from detector.engine.passes import predict
from detector.engine.precision import Precision
from detector.engine.running_ap import RunningAP
from detector.engine.schedule import lr_factor, parameter_groups
from detector.engine.snapshots import Snapshots
from detector.evaluation.coco import require_pycocotools
from detector.evaluation.pictures import choose_samples
from detector.modeling.build import build_postprocess, build_refinement
from detector.structures import Detections
from detector.utils.distributed import world_size
from detector.utils.errors import ConfigError, UserError

# Number of training images in a snapshot, and of the first images among which they are chosen.
_WATCHED, _CANDIDATES = 4, 1000


def wants_coco_metrics(metrics: str, form: str) -> bool:
    """Whether TEST.METRICS, with DATASETS.FORMAT, asks for COCO's metrics.

    Raises:
        MissingPackage: the package that computes them.
    """
    wanted = metrics == "coco" or (metrics == "auto" and form == "coco")
    if wanted:
        require_pycocotools()
    return wanted


def accumulated_batches(solver: SolverSettings) -> int:
    """Batches per step of each process.

    Raises:
        ConfigError: SOLVER.IMAGES_PER_STEP cannot be shared by the processes.
    """
    processes = world_size()
    if solver.images_per_step == 0:
        return solver.accumulate
    accumulate, rest = divmod(solver.images_per_step, solver.images_per_batch * processes)
    if rest:
        raise ConfigError(
            f"SOLVER.IMAGES_PER_STEP is {solver.images_per_step}, expected a multiple of "
            f"{solver.images_per_batch * processes}: {processes} processes share it, in batches of "
            f"SOLVER.IMAGES_PER_BATCH {solver.images_per_batch}"
        )
    return accumulate


def images_per_step(solver: SolverSettings) -> int:
    """Images per step of all processes together."""
    return solver.images_per_batch * accumulated_batches(solver) * world_size()


def base_lr(solver: SolverSettings) -> float:
    """BASE_LR, scaled with the images per step as LR_SCALING says."""
    scale = images_per_step(solver) / solver.lr_images if solver.lr_scaling == "linear" else 1
    return solver.base_lr * scale


def build_optimizer(solver: SolverSettings, model: nn.Module) -> Optimizer:
    """The optimizer over the model's trainable parameters."""
    drop_block = "box_features.drop_block"
    factors = {
        "backbone": solver.backbone_lr_factor,
        "head.refinements": solver.refinement_lr_factor,
        drop_block: solver.drop_block_lr_factor,
    }
    groups = parameter_groups(
        model,
        base_lr=base_lr(solver),
        weight_decay=solver.weight_decay,
        lr_factors={name: factor for name, factor in factors.items() if factor != 1},
        gammas={drop_block: solver.drop_block_gamma} if solver.drop_block_gamma else {},
        bias_lr_factor=solver.bias_lr_factor,
        bias_weight_decay=solver.bias_weight_decay,
    )
    # One kernel for all parameters, which skips steps where float16 overflows without a host synchronization.
    fused = next(model.parameters()).is_cuda
    if solver.optimizer == "sgd":
        return SGD(groups, momentum=solver.momentum, fused=fused)
    return AdamW(groups, fused=fused)


def build_lr_factor(solver: SolverSettings) -> Callable[..., float]:
    """The function :func:`lr_factor` with the schedule of SOLVER."""
    return partial(
        lr_factor,
        max_iter=solver.max_iter,
        schedule=solver.schedule,
        steps=solver.steps,
        gamma=solver.gamma,
        warmup_iters=solver.warmup_iters,
        warmup_factor=solver.warmup_factor,
    )


def build_train_options(solver: SolverSettings, seed: int) -> TrainOptions:
    """The options of the training loop."""
    return TrainOptions(
        seed=seed,
        max_iter=solver.max_iter,
        lr_factor=build_lr_factor(solver),
        accumulate=accumulated_batches(solver),
        gradient_factor=images_per_step(solver) if solver.gradient_reduction == "sum" else 1.0,
        scale_momentum=solver.scale_momentum,
        clip_norm=solver.clip_norm,
        log_period=solver.log_period,
        checkpoint_period=solver.checkpoint_period,
        keep_checkpoints=solver.keep_checkpoints,
    )


def build_snapshots(cfg: Settings, training_set: TrainingSet) -> Snapshots | None:
    """The snapshots that training takes every SOLVER.PICTURE_PERIOD steps; None: none."""
    if cfg.solver.picture_period == 0:
        return None
    dataset = training_set.dataset
    candidates = [i for i in range(min(len(dataset), _CANDIDATES)) if not is_large(dataset, i)]
    indices = [candidates[k] for k in choose_samples([dataset.labels(i) for i in candidates], _WATCHED)]
    views = build_snapshot_views(cfg, training_set, indices)
    usable = [k for k, image in enumerate(views) if len(image.proposals) and image.samples[0].labels.any()]
    return Snapshots(
        [views[k] for k in usable],
        [dataset.read_image(indices[k]) for k in usable],
        dataset.class_names,
        build_refinement(cfg.model.method, cfg.clusters),
        cfg.solver.picture_period,
    )


def build_running_ap(
    cfg: Settings, test_set: AnnotatedImages | None, proposals: Proposals | None, precision: Precision
) -> RunningAP | None:
    """The AP of a weak detector while it learns, of one test pass; None: it is not measured.

    Args:
        proposals: of the images of the test split, too.
    """
    if test_set is None or proposals is None or not cfg.solver.ap_share:
        return None
    try:
        proposals.check(test_set)
    except UserError:  # the test says so
        return None
    sizes = cfg.input.test_sizes
    one_pass = {
        "INPUT.TEST_SIZES": (sizes[len(sizes) // 2],),
        "INPUT.TEST_FLIP": False,
        "DATASETS.WORKERS": 0,
    }
    once, postprocess = with_values(cfg, one_pass), build_postprocess(cfg.test)

    def detect(model: nn.Module, indices: Sequence[int]) -> Iterator[Detections]:
        loader = build_test_loader(once, test_set, indices, proposals)
        return map(postprocess, predict(model, loader, device=precision.device, precision=precision))

    return RunningAP(detect, test_set, cfg.solver.ap_share)
