"""Train a detector from image labels.

    python tools/train_net.py --config-file configs/toybox_pcl.yaml [--resume] [KEY VALUE ...]

Everything goes to the run folder, OUTPUT_DIR: config.yaml, run.json (versions, commit, seed), log.txt, events
for TensorBoard, checkpoints/ and, at the end, model_final.pt.
"""

import logging
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import torch
from yacs.config import CfgNode

from detector.build import (
    build_criterion,
    build_model,
    build_optimizer,
    build_precision,
    build_training,
    load_pretrained,
    start_run,
)
from detector.build_data import build_dataset, build_train_loader, name_classes
from detector.config import differences, load_cfg
from detector.data.annotated import AnnotatedImages
from detector.engine.checkpoint import list_checkpoints, restore_newest
from detector.evaluation.report import write_json
from detector.utils.command_line import config_parser, run_command
from detector.utils.files import atomic_write
from detector.utils.run_info import run_info

logger = logging.getLogger("detector.tools.train_net")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("Train a detector from image labels.")
    parser.add_argument("--resume", action="store_true", help="go on from the run folder's newest checkpoint")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.resume))


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
    precision = build_precision(cfg, device)
    start, seconds = restore_newest(folder, model, optimizer, precision.scaler)
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
            precision=precision,
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
    logger.info(
        "device      %s, %s, %d threads, seed %d",
        *(device, cfg.PRECISION, torch.get_num_threads(), cfg.SEED),
    )
    logger.info("run folder  %s", cfg.OUTPUT_DIR)


if __name__ == "__main__":
    sys.exit(main())
