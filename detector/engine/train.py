"""`detector.train`, and the command `detector train`."""

import logging
import warnings
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import torch

from detector.config import Settings, load_cfg, schedule_warnings
from detector.config.yaml_files import Overrides
from detector.data.build import build_train_loader, build_training_set, find_test_set, name_classes
from detector.data.check import shared_images
from detector.data.datasets.annotated import AnnotatedImages
from detector.engine.build import (
    accumulated_batches,
    base_lr,
    build_optimizer,
    build_running_ap,
    build_snapshots,
    build_train_options,
    images_per_step,
)
from detector.engine.loop import make_steps
from detector.engine.precision import Precision
from detector.engine.run_folder import (
    check_same_data,
    check_same_start,
    has_final,
    hint_at_resume,
    record_run,
    refuse_earlier_run,
    resume_run,
    start_run,
)
from detector.modeling.backbones.build import load_pretrained
from detector.modeling.build import WETECTRON, build_criterion, build_model
from detector.utils.distributed import find_device, is_main, process_group, restarts, sync_errors, world_size
from detector.utils.errors import check_path
from detector.utils.folder_lock import folder_lock

logger = logging.getLogger(__name__)


def train(config: str | Path, overrides: Overrides = (), *, resume: bool = False) -> Path:
    """Train a detector from image labels: `detector.train("toybox_pcl", {"SEED": 1})`.

    It logs to the console and to the run folder's log.txt, and seeds torch, numpy and Python for the whole
    process. Ctrl-C saves a checkpoint of the last complete step first.

    Args:
        config: the name of a recipe of configs/, or your own file.
        overrides: keys of the config to change, as in {"SOLVER.MAX_ITER": 500}; docs/config.md.
        resume: continue from the run folder's newest checkpoint, with the data that the run began with.

    Returns:
        the run folder, OUTPUT_DIR, which `detector.load` and `detector.evaluate` take.

    Raises:
        UserError, OSError: whatever the user can correct, such as a mistake in the config or the data set, or
            a run folder that holds an earlier run or is in use by another process.
    """
    check_path("config", config, "a config file or the name of a recipe")
    cfg = load_cfg(config, overrides)
    folder = Path(cfg.output_dir)
    with (
        warnings.catch_warnings(),  # the log takes them until the run has ended
        process_group(find_device(cfg.device), cfg.distributed.timeout),
        ExitStack() as stack,
    ):
        with sync_errors():
            stack.enter_context(folder_lock(folder))
            resume = resume or restarts() > 0
            refuse_earlier_run(folder, resume)
            device = start_run(cfg, folder)
            training_set = build_training_set(cfg)
            dataset = training_set.dataset
            cfg = name_classes(cfg, dataset)
            model = build_model(cfg).to(device)
            optimizer = build_optimizer(cfg.solver, model)
            precision = Precision(cfg.precision, device)
            progress = resume_run(cfg, folder, model, optimizer, precision, "weak")
            data = training_set.describe()
            if progress.iteration:
                check_same_data(folder, data)
            else:
                load_pretrained(cfg.model, cfg.input, model)
            # Batches that all processes have made.
            position = progress.iteration * accumulated_batches(cfg.solver) * world_size()
            batches = build_train_loader(cfg, training_set, stride=model.backbone.stride, start=position)
            snapshots = build_snapshots(cfg, training_set)
            test_set = find_test_set(cfg, dataset) if is_main() else None
            running_ap = build_running_ap(cfg, test_set, training_set.proposals, precision)
            record_run(cfg, folder, device, data)
            describe(cfg, dataset, model, device)
            warn(cfg, dataset, test_set, model)
        check_same_start(progress.iteration)
        if progress.iteration >= cfg.solver.max_iter and has_final(folder, progress.iteration):
            logger.info("trained already; weights in %s", folder / "model_final.pt")
            return folder
        with hint_at_resume(folder):
            seconds = make_steps(
                model,
                build_criterion(cfg),
                optimizer,
                batches,
                build_train_options(cfg.solver, cfg.seed),
                folder=folder,
                precision=precision,
                snapshots=snapshots,
                running_ap=running_ap,
                config=cfg.dump(),
                start=progress.iteration,
                train_seconds=progress.train_seconds,
            )
    logger.info("trained in %s; weights in %s", timedelta(seconds=round(seconds)), folder / "model_final.pt")
    return folder


def describe(cfg: Settings, dataset: AnnotatedImages, model: torch.nn.Module, device: torch.device) -> None:
    """Log what the config amounts to."""
    solver, method = cfg.solver, cfg.model.method
    parts = [] if method == "wsddn" else [f"{cfg.model.streams} refinement streams"]
    where = "boxes of each stream" if method == WETECTRON else "regression branch"
    parts += [where] if cfg.model.regression.enabled else []
    parts += ["concrete drop block"] if cfg.model.drop_block.enabled else []
    images = images_per_step(cfg.solver)
    epochs = solver.max_iter * images / len(dataset)
    parameters = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    origin = cfg.model.weights or "random weights"
    logger.info("method      %s", ", ".join([method, *parts]))
    logger.info("data        %s: %d images, %d classes", dataset.name, len(dataset), len(dataset.class_names))
    logger.info("proposals   %s", cfg.datasets.proposals)
    backbone = cfg.model.backbone
    name = backbone.timm_name if backbone.name == "timm" else backbone.name
    logger.info("model       %s from %s", name, origin)
    logger.info("parameters  %.2f million, %.2f million trained", parameters / 1e6, trained / 1e6)
    logger.info(
        "batch       %d images per step (%d at a time, %d times%s), gradients %s",
        *(images, solver.images_per_batch, accumulated_batches(cfg.solver)),
        f", in {world_size()} processes" if world_size() > 1 else "",
        "summed" if solver.gradient_reduction == "sum" else "averaged",
    )
    logger.info("steps       %d, %.1f epochs", solver.max_iter, epochs)
    logger.info(
        "optimizer   %s, learning rate %g, %s", solver.optimizer, base_lr(cfg.solver), solver.schedule
    )
    if solver.lr_scaling == "linear":
        logger.info("            scaled from %g for %d images per step", solver.base_lr, solver.lr_images)
    logger.info(
        "device      %s, %s, %d threads, seed %d",
        *(device, cfg.precision, torch.get_num_threads(), cfg.seed),
    )
    logger.info("run folder  %s", cfg.output_dir)


def warn(
    cfg: Settings, dataset: AnnotatedImages, test_set: AnnotatedImages | None, model: torch.nn.Module
) -> None:
    """Log what is allowed but probably not intended."""
    lines = schedule_warnings(cfg)
    if test_set and cfg.datasets.test_split != cfg.datasets.train_split:
        lines += [*shared_images(dataset, test_set), *test_set.unclear]
    if not cfg.model.weights and not all(parameter.requires_grad for parameter in model.parameters()):
        frozen = cfg.model.backbone.frozen_stages
        lines.append(
            f"MODEL.WEIGHTS is '' and MODEL.BACKBONE.FROZEN_STAGES {frozen}: these keep random weights"
        )
    for line in lines:
        logger.warning("warning: %s", line)
