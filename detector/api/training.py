"""`detector.train`, and what tools/train_net.py does."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from yacs.config import CfgNode

from detector.build import (
    accumulated_batches,
    base_lr,
    build_device,
    build_optimizer,
    build_precision,
    build_snapshots,
    build_training,
    check_class_names,
    images_per_step,
    start_run,
)
from detector.build_data import build_dataset, build_train_loader, name_classes
from detector.build_model import build_criterion, build_model, load_pretrained
from detector.config import check_resumable, dump_cfg, load_cfg, schedule_warnings
from detector.data.annotated import AnnotatedImages
from detector.engine.precision import Precision
from detector.engine.resuming import (
    Progress,
    check_batches,
    list_checkpoints,
    load_newest,
    progress_of,
    restore,
)
from detector.evaluation.report import write_json
from detector.utils.distributed import (
    gather,
    is_main,
    process_group,
    raise_once,
    restarts,
    together,
    world_size,
)
from detector.utils.errors import ConfigError, UserError
from detector.utils.files import atomic_write, reading
from detector.utils.folder_lock import folder_lock
from detector.utils.run_info import run_info

logger = logging.getLogger(__name__)


def train(config: str | Path, overrides: Mapping[str, object] | None = None, *, resume: bool = False) -> Path:
    """Train a detector from image labels: `detector.train("configs/toybox_pcl.yaml", {"SEED": 1})`.

    It logs to the console and to the run folder's log.txt, and seeds torch, numpy and Python for the whole
    process. Ctrl-C saves a checkpoint of the last complete step first.

    Args:
        config: a file of configs/, or your own.
        overrides: keys of the config to change, as in {"SOLVER.MAX_ITER": 500}; see detector/config.py.
        resume: go on from the run folder's newest checkpoint.

    Returns:
        the run folder, OUTPUT_DIR, which `detector.load` and `detector.evaluate` take.

    Raises:
        UserError, OSError: whatever the user can correct, such as a mistake in the config or the data set, or
            a run folder that holds an earlier run or is in use by another process.
    """
    words = [word for pair in (overrides or {}).items() for word in pair]
    run(str(config), words, resume)
    return Path(load_cfg(config, words).OUTPUT_DIR)


def run(config_file: str, overrides: Sequence[str], resume: bool) -> None:
    cfg = load_cfg(config_file, overrides)
    folder = Path(cfg.OUTPUT_DIR)
    with (
        warnings.catch_warnings(),  # the log takes them until the run has ended
        process_group(build_device(cfg), cfg.DISTRIBUTED.TIMEOUT),
        ExitStack() as stack,
    ):
        with together():
            stack.enter_context(folder_lock(folder))
            training = prepare(cfg, folder, resume or restarts() > 0)
        check_same_start(training.keywords["start"])
        with saying_how_to_resume(folder):
            seconds = training()
    logger.info("trained in %s; weights in %s", timedelta(seconds=round(seconds)), folder / "model_final.pt")
    logger.info("to test them: python tools/test_net.py --config-file %s", folder / "config.yaml")


def prepare(cfg: CfgNode, folder: Path, resume: bool) -> partial[float]:
    """Do all that comes before the first step; what is returned trains, and returns the seconds it took."""
    check_backbone(cfg)
    refuse_earlier_run(folder, resume)
    device = start_run(cfg, folder)
    dataset = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    cfg = name_classes(cfg, dataset)
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    precision = build_precision(cfg, device)
    progress = resume_run(cfg, folder, model, optimizer, precision)
    if not progress.iteration:
        load_pretrained(cfg, model)
    # Batches that all processes have made.
    position = progress.iteration * accumulated_batches(cfg) * world_size()
    loader = build_train_loader(cfg, dataset, stride=model.backbone.stride, start=position)
    record_run(cfg, folder, device)
    describe(cfg, dataset, model, device)
    return partial(
        build_training(cfg),
        model,
        build_criterion(cfg),
        optimizer,
        loader,
        folder=folder,
        device=device,
        start=progress.iteration,
        train_seconds=progress.train_seconds,
        snapshots=build_snapshots(cfg, dataset),
        precision=precision,
    )


def check_backbone(cfg: CfgNode) -> None:
    """Refuse frozen stages that the backbone would ignore; training alone cares.

    Raises:
        ConfigError: the backbone has no pretrained weights to keep.
    """
    backbone = cfg.MODEL.BACKBONE
    if backbone.NAME == "small" and backbone.FROZEN_STAGES:
        raise ConfigError(
            f"MODEL.BACKBONE.FROZEN_STAGES is {backbone.FROZEN_STAGES}, expected 0: the backbone 'small' has "
            "no pretrained weights, so all its stages are trained"
        )


def refuse_earlier_run(folder: Path, resume: bool) -> None:
    """Raise UserError if a folder holds the checkpoints of an earlier run that is not to be resumed."""
    if not resume and (list_checkpoints(folder) or (folder / "model_final.pt").exists()):
        raise UserError(
            f"{folder} holds an earlier run: add --resume to go on with it, "
            "name another folder (OUTPUT_DIR NAME), or remove this one"
        )


def resume_run(
    cfg: CfgNode,
    folder: Path,
    model: nn.Module,
    optimizer: Optimizer,
    precision: Precision,
    fixed: Sequence[str] = (),
) -> Progress:
    """Restore the newest usable checkpoint of a run folder, once it is known to be of the same run.

    Args:
        cfg: with the names of the classes.
        fixed: keys that may not change either, beside those that :func:`check_resumable` refuses.

    Raises:
        UserError: it was trained with other classes, another config, or other batches; or it is damaged.
    """
    newest = load_newest(folder)
    if newest is None:
        return Progress()
    path, checkpoint = newest
    progress = progress_of(checkpoint)
    check_batches(progress, accumulated_batches(cfg))
    check_class_names(cfg, checkpoint, path)
    if progress.config:
        with reading(path, "checkpoint"):
            changes = check_resumable(progress.config, cfg)
            refused = [line for line in changes if line.partition(":")[0] in fixed]
            if refused:
                raise ConfigError(
                    f"this run began with another config: {'; '.join(refused)}. Go on with what it began "
                    "with, config.yaml in its run folder, or begin a run in another OUTPUT_DIR"
                )
        for line in changes:
            logger.warning("warning: this run began with another config: %s", line)
    return restore(checkpoint, path, model, optimizer, precision.scaler)


def record_run(cfg: CfgNode, folder: Path, device: torch.device) -> None:
    """Write config.yaml and run.json, from which the run can be repeated; only the main process does."""
    if is_main():
        with atomic_write(folder / "config.yaml", "w") as file:
            file.write(dump_cfg(cfg))
        write_json(folder / "run.json", run_info(device, cfg.SEED))


@contextmanager
def saying_how_to_resume(folder: Path) -> Iterator[None]:
    """On Ctrl-C, say where the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if is_main():
            logger.error("give the same command with --resume: it %s", where_it_goes_on(folder))
        raise


def check_same_start(start: int) -> None:
    """Refuse to train where processes of several machines do not see the same checkpoints."""
    starts = gather(start)
    if len(set(starts)) > 1:
        raise_once(
            UserError(
                f"the processes would go on from different steps, by rank: {starts}; "
                "OUTPUT_DIR must be one folder that all machines see"
            )
        )


def where_it_goes_on(folder: Path) -> str:
    saved = list_checkpoints(folder)
    return f"goes on from {saved[-1]}" if saved else "starts over, as there is no checkpoint yet"


def describe(cfg: CfgNode, dataset: AnnotatedImages, model: torch.nn.Module, device: torch.device) -> None:
    """Log what will run, so that nobody has to guess what a config amounts to."""
    solver, method = cfg.SOLVER, cfg.MODEL.METHOD
    parts = [] if method == "wsddn" else [f"{cfg.MODEL.STREAMS} refinement streams"]
    where = "boxes of each stream" if cfg.MODEL.REGRESSION.PER_STREAM else "regression branch"
    parts += [where] if cfg.MODEL.REGRESSION.ENABLED else []
    parts += ["concrete drop block"] if cfg.MODEL.DROP_BLOCK.ENABLED else []
    images = images_per_step(cfg)
    epochs = solver.MAX_ITER * images / len(dataset)
    parameters = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    origin = cfg.MODEL.WEIGHTS or "random weights"
    logger.info("method      %s", ", ".join([method, *parts]))
    logger.info("data        %s: %d images, %d classes", dataset.name, len(dataset), len(dataset.class_names))
    logger.info("proposals   %s", cfg.DATASETS.PROPOSALS)
    logger.info("model       %s from %s", cfg.MODEL.BACKBONE.TIMM_NAME or cfg.MODEL.BACKBONE.NAME, origin)
    logger.info("parameters  %.2f million, %.2f million trained", parameters / 1e6, trained / 1e6)
    logger.info(
        "batch       %d images a step (%d at a time, %d times%s), gradients %s",
        *(images, solver.IMAGES_PER_BATCH, accumulated_batches(cfg)),
        f", in {world_size()} processes" if world_size() > 1 else "",
        "summed" if solver.GRADIENT_REDUCTION == "sum" else "averaged",
    )
    logger.info("steps       %d, %.1f epochs", solver.MAX_ITER, epochs)
    logger.info("optimizer   %s, learning rate %g, %s", solver.OPTIMIZER, base_lr(cfg), solver.SCHEDULE)
    if solver.LR_SCALING == "linear":
        logger.info("            scaled from %g for %d images a step", solver.BASE_LR, solver.LR_IMAGES)
    logger.info(
        "device      %s, %s, %d threads, seed %d",
        *(device, cfg.PRECISION, torch.get_num_threads(), cfg.SEED),
    )
    logger.info("run folder  %s", cfg.OUTPUT_DIR)
    for line in schedule_warnings(cfg):
        logger.warning("warning: %s", line)
    if trained < parameters and not cfg.MODEL.WEIGHTS:
        logger.warning(
            "warning: MODEL.WEIGHTS is '' and MODEL.BACKBONE.FROZEN_STAGES %d: these keep random weights",
            cfg.MODEL.BACKBONE.FROZEN_STAGES,
        )
