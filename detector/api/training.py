"""`detector.train`, and what tools/train_net.py does."""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from yacs.config import CfgNode

from detector.build import (
    accumulated_batches,
    base_lr,
    build_device,
    build_optimizer,
    build_precision,
    build_snapshots,
    build_training,
    images_per_step,
    start_run,
)
from detector.build_data import build_dataset, build_train_loader, name_classes
from detector.build_model import build_criterion, build_model, load_pretrained
from detector.config import check_resumable, dump_cfg, load_cfg, schedule_warnings
from detector.data.annotated import AnnotatedImages
from detector.engine.resuming import check_batches, list_checkpoints, restore_newest
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
from detector.utils.errors import UserError
from detector.utils.files import atomic_write
from detector.utils.run_info import run_info

logger = logging.getLogger(__name__)


def train(config: str | Path, overrides: Mapping[str, object] | None = None, *, resume: bool = False) -> Path:
    """Train a detector from image labels: `detector.train("configs/toybox_pcl.yaml", {"SEED": 1})`.

    It logs to the console and to the run folder's log.txt, and seeds torch, numpy and Python for the whole
    process.

    Args:
        config: a file of configs/, or one's own.
        overrides: keys of the config to change, as in {"SOLVER.MAX_ITER": 500}; see detector/config.py.
        resume: go on from the run folder's newest checkpoint.

    Returns:
        the run folder, OUTPUT_DIR, which `detector.load` and `detector.evaluate` take.

    Raises:
        FileNotFoundError, ValueError: whatever the user can mend, such as a mistake in the config or the data
            set, or a run folder that holds an earlier run.
    """
    words = [word for pair in (overrides or {}).items() for word in pair]
    run(str(config), words, resume)
    return Path(load_cfg(config, words).OUTPUT_DIR)


def run(config_file: str, overrides: Sequence[str], resume: bool) -> None:
    cfg = load_cfg(config_file, overrides)
    folder = Path(cfg.OUTPUT_DIR)
    with process_group(build_device(cfg), cfg.DISTRIBUTED.TIMEOUT):
        with together():
            training = prepare(cfg, folder, resume or restarts() > 0)
        check_same_start(training.keywords["start"])
        try:
            seconds = training()
        except KeyboardInterrupt:
            if is_main():
                logger.error("give the same command with --resume: it %s", where_it_goes_on(folder))
            raise
    logger.info("trained in %s; weights in %s", timedelta(seconds=round(seconds)), folder / "model_final.pt")
    logger.info("to test them: python tools/test_net.py --config-file %s", folder / "config.yaml")


def prepare(cfg: CfgNode, folder: Path, resume: bool) -> partial[float]:
    """All that comes before the first step; what is returned trains, and returns the seconds that it took."""
    if not resume and (list_checkpoints(folder) or (folder / "model_final.pt").exists()):
        raise UserError(
            f"{folder} holds an earlier run: add --resume to go on with it, "
            "name another folder (OUTPUT_DIR NAME), or remove this one"
        )
    device = start_run(cfg, folder)
    dataset = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    cfg = name_classes(cfg, dataset)
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    precision = build_precision(cfg, device)
    progress = restore_newest(folder, model, optimizer, precision.scaler)
    accumulate = accumulated_batches(cfg)
    check_batches(progress, accumulate)
    if progress.config:
        for line in check_resumable(progress.config, cfg):
            logger.warning("warning: this run began with another config: %s", line)
    if not progress.iteration:
        load_pretrained(cfg, model)
    position = progress.iteration * accumulate * world_size()  # batches that all processes have made
    loader = build_train_loader(cfg, dataset, stride=model.backbone.stride, start=position)
    if is_main():
        with atomic_write(folder / "config.yaml", "w") as file:
            file.write(dump_cfg(cfg))
        write_json(folder / "run.json", run_info(device, cfg.SEED))
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


def check_same_start(start: int) -> None:
    """Refuse to train where processes of several machines do not see the same checkpoints."""
    starts = gather(start)
    if len(set(starts)) > 1:
        raise_once(
            ValueError(
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
    parts += ["regression branch"] if cfg.MODEL.REGRESSION.ENABLED else []
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
        "batch       %d images a step (%d at a time, %d times%s)",
        *(images, solver.IMAGES_PER_BATCH, accumulated_batches(cfg)),
        f", in {world_size()} processes" if world_size() > 1 else "",
    )
    logger.info("steps       %d, %.1f epochs", solver.MAX_ITER, epochs)
    logger.info("optimiser   %s, learning rate %g, %s", solver.OPTIMIZER, base_lr(cfg), solver.SCHEDULE)
    if solver.LR_SCALING == "linear":
        logger.info("            scaled from %g for %d images a step", solver.BASE_LR, solver.LR_IMAGES)
    logger.info(
        "device      %s, %s, %d threads, seed %d",
        *(device, cfg.PRECISION, torch.get_num_threads(), cfg.SEED),
    )
    logger.info("run folder  %s", cfg.OUTPUT_DIR)
    for line in schedule_warnings(cfg):
        logger.warning("warning: %s", line)
