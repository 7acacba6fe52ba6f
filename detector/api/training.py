"""`detector.train`, and the command `detector train`."""

import logging
import warnings
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import torch
from yacs.config import CfgNode

from detector.api.run_folder import (
    check_same_data,
    check_same_start,
    has_final,
    hint_at_resume,
    record_run,
    refuse_earlier_run,
    resume_run,
    start_run,
    training_data,
)
from detector.build import (
    accumulated_batches,
    base_lr,
    build_optimizer,
    build_precision,
    build_snapshots,
    build_train_options,
    images_per_step,
)
from detector.build_backbone import load_pretrained
from detector.build_data import build_dataset, build_train_loader, find_test_set, name_classes
from detector.build_model import build_criterion, build_model
from detector.config import load_cfg, schedule_warnings
from detector.config_reader import Overrides
from detector.data.annotated import AnnotatedImages
from detector.data.check import shared_images
from detector.engine.train import train as make_steps
from detector.utils.distributed import find_device, is_main, process_group, restarts, together, world_size
from detector.utils.errors import check_path
from detector.utils.folder_lock import folder_lock

logger = logging.getLogger(__name__)


def train(config: str | Path, overrides: Overrides = (), *, resume: bool = False) -> Path:
    """Train a detector from image labels: `detector.train("toybox_pcl", {"SEED": 1})`.

    It logs to the console and to the run folder's log.txt, and seeds torch, numpy and Python for the whole
    process. Ctrl-C saves a checkpoint of the last complete step first.

    Args:
        config: the name of a recipe of configs/, or your own file.
        overrides: keys of the config to change, as in {"SOLVER.MAX_ITER": 500}; see detector/config.py.
        resume: continue from the run folder's newest checkpoint, with the data that the run began with.

    Returns:
        the run folder, OUTPUT_DIR, which `detector.load` and `detector.evaluate` take.

    Raises:
        UserError, OSError: whatever the user can correct, such as a mistake in the config or the data set, or
            a run folder that holds an earlier run or is in use by another process.
    """
    check_path("config", config, "a config file or the name of a recipe")
    cfg = load_cfg(config, overrides)
    folder = Path(cfg.OUTPUT_DIR)
    with (
        warnings.catch_warnings(),  # the log takes them until the run has ended
        process_group(find_device(cfg.DEVICE), cfg.DISTRIBUTED.TIMEOUT),
        ExitStack() as stack,
    ):
        with together():
            stack.enter_context(folder_lock(folder))
            resume = resume or restarts() > 0
            refuse_earlier_run(folder, resume)
            device = start_run(cfg, folder)
            dataset = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
            cfg = name_classes(cfg, dataset)
            model = build_model(cfg).to(device)
            optimizer = build_optimizer(cfg, model)
            precision = build_precision(cfg, device)
            progress = resume_run(cfg, folder, model, optimizer, precision)
            data = training_data(cfg, dataset)
            if progress.iteration:
                check_same_data(folder, data)
            else:
                load_pretrained(cfg, model)
            # Batches that all processes have made.
            position = progress.iteration * accumulated_batches(cfg) * world_size()
            batches = build_train_loader(cfg, dataset, stride=model.backbone.stride, start=position)
            snapshots = build_snapshots(cfg, dataset)
            record_run(cfg, folder, device, data)
            describe(cfg, dataset, model, device)
            warn(cfg, dataset, model)
        check_same_start(progress.iteration)
        if progress.iteration >= cfg.SOLVER.MAX_ITER and has_final(folder, progress.iteration):
            logger.info("trained already; weights in %s", folder / "model_final.pt")
            return folder
        with hint_at_resume(folder):
            seconds = make_steps(
                model,
                build_criterion(cfg),
                optimizer,
                batches,
                build_train_options(cfg),
                folder=folder,
                precision=precision,
                snapshots=snapshots,
                config=cfg.dump(),
                start=progress.iteration,
                train_seconds=progress.train_seconds,
            )
    logger.info("trained in %s; weights in %s", timedelta(seconds=round(seconds)), folder / "model_final.pt")
    return folder


def describe(cfg: CfgNode, dataset: AnnotatedImages, model: torch.nn.Module, device: torch.device) -> None:
    """Log what the config amounts to."""
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
    backbone = cfg.MODEL.BACKBONE
    name = backbone.TIMM_NAME if backbone.NAME == "timm" else backbone.NAME
    logger.info("model       %s from %s", name, origin)
    logger.info("parameters  %.2f million, %.2f million trained", parameters / 1e6, trained / 1e6)
    logger.info(
        "batch       %d images per step (%d at a time, %d times%s), gradients %s",
        *(images, solver.IMAGES_PER_BATCH, accumulated_batches(cfg)),
        f", in {world_size()} processes" if world_size() > 1 else "",
        "summed" if solver.GRADIENT_REDUCTION == "sum" else "averaged",
    )
    logger.info("steps       %d, %.1f epochs", solver.MAX_ITER, epochs)
    logger.info("optimizer   %s, learning rate %g, %s", solver.OPTIMIZER, base_lr(cfg), solver.SCHEDULE)
    if solver.LR_SCALING == "linear":
        logger.info("            scaled from %g for %d images per step", solver.BASE_LR, solver.LR_IMAGES)
    logger.info(
        "device      %s, %s, %d threads, seed %d",
        *(device, cfg.PRECISION, torch.get_num_threads(), cfg.SEED),
    )
    logger.info("run folder  %s", cfg.OUTPUT_DIR)


def warn(cfg: CfgNode, dataset: AnnotatedImages, model: torch.nn.Module) -> None:
    """Log what is allowed but probably not intended."""
    lines = schedule_warnings(cfg)
    if is_main() and cfg.DATASETS.TEST_SPLIT != cfg.DATASETS.TRAIN_SPLIT:
        test_set = find_test_set(cfg, dataset)
        lines += [*shared_images(dataset, test_set), *test_set.unclear] if test_set else []
    if not cfg.MODEL.WEIGHTS and not all(parameter.requires_grad for parameter in model.parameters()):
        frozen = cfg.MODEL.BACKBONE.FROZEN_STAGES
        lines.append(
            f"MODEL.WEIGHTS is '' and MODEL.BACKBONE.FROZEN_STAGES {frozen}: these keep random weights"
        )
    for line in lines:
        logger.warning("warning: %s", line)
