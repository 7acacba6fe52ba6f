"""`detector.train`, and what tools/train_net.py does."""

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import torch
from yacs.config import CfgNode

from detector.build import (
    build_criterion,
    build_model,
    build_optimizer,
    build_training,
    load_pretrained,
    start_run,
)
from detector.build_data import build_dataset, build_train_loader, name_classes
from detector.config import differences, load_cfg
from detector.data.annotated import AnnotatedImages
from detector.engine.checkpoint import list_checkpoints, restore_newest
from detector.evaluation.report import write_json
from detector.utils.files import atomic_write
from detector.utils.run_info import run_info

logger = logging.getLogger("detector.tools.train_net")


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
    if not resume and (list_checkpoints(folder) or (folder / "model_final.pt").exists()):
        raise ValueError(
            f"{folder} holds an earlier run: add --resume to go on with it, "
            "name another folder (OUTPUT_DIR NAME), or remove this one"
        )
    device = start_run(cfg, folder)

    dataset = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    cfg = name_classes(cfg, dataset)
    model = build_model(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    start, seconds = restore_newest(folder, model, optimizer)
    if start:
        for line in differences(load_cfg(folder / "config.yaml"), cfg):
            logger.warning("warning: this run began with another config: %s", line)
    else:
        load_pretrained(cfg, model)
    loader = build_train_loader(
        cfg, dataset, stride=model.backbone.stride, start=start * cfg.SOLVER.ACCUMULATE
    )
    with atomic_write(folder / "config.yaml", "w") as file:
        file.write(cfg.dump())
    write_json(folder / "run.json", run_info(device, cfg.SEED))
    describe(cfg, dataset, model, device)

    try:
        seconds = build_training(cfg)(
            model,
            build_criterion(cfg),
            optimizer,
            loader,
            folder=folder,
            device=device,
            start=start,
            train_seconds=seconds,
        )
    except KeyboardInterrupt:
        saved = list_checkpoints(folder)
        place = f"goes on from {saved[-1]}" if saved else "starts over, as there is no checkpoint yet"
        logger.error("give the same command with --resume: it %s", place)
        raise
    logger.info("trained in %s; weights in %s", timedelta(seconds=round(seconds)), folder / "model_final.pt")
    logger.info("to test them: python tools/test_net.py --config-file %s", folder / "config.yaml")


def describe(cfg: CfgNode, dataset: AnnotatedImages, model: torch.nn.Module, device: torch.device) -> None:
    """Log what will run, so that nobody has to guess what a config amounts to."""
    solver, method = cfg.SOLVER, cfg.MODEL.METHOD
    parts = [] if method == "wsddn" else [f"{cfg.MODEL.STREAMS} refinement streams"]
    parts += ["regression branch"] if cfg.MODEL.REGRESSION.ENABLED else []
    parts += ["concrete drop block"] if cfg.MODEL.DROP_BLOCK.ENABLED else []
    images = solver.IMAGES_PER_BATCH * solver.ACCUMULATE
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
        "batch       %d images a step (%d at a time, %d times)",
        *(images, solver.IMAGES_PER_BATCH, solver.ACCUMULATE),
    )
    logger.info("steps       %d, %.1f epochs", solver.MAX_ITER, epochs)
    logger.info("optimiser   %s, learning rate %g, %s", solver.OPTIMIZER, solver.BASE_LR, solver.SCHEDULE)
    logger.info("device      %s, %d threads, seed %d", device, torch.get_num_threads(), cfg.SEED)
    logger.info("run folder  %s", cfg.OUTPUT_DIR)
