"""Train a Faster R-CNN on what a weak detector finds in its training split, and measure it the same way.

    python tools/self_train.py --config-file configs/doom_pcl_lite0.yaml [--weights FILE] [--resume] \
        [KEY VALUE ...]

The weak detector is OUTPUT_DIR/model_final.pt, or FILE. Everything goes to OUTPUT_DIR/self_train: pseudo/, a
data set in VOC's layout (with COCO's JSON) whose boxes are the detector's; log, events and checkpoints as of
train_net.py; metrics.json as of test_net.py, beside the weak detector's. The keys SELF_TRAIN decide; the
images' labels choose the classes, true boxes are read for the figures alone.
"""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm
from yacs.config import CfgNode

from detector.api.testing import measure, with_truth
from detector.build import (
    build_coco_engine,
    build_optimizer,
    build_precision,
    build_training,
    self_training_cfg,
    start_run,
)
from detector.build_data import build_box_loader, build_dataset, build_test_loader, name_classes
from detector.build_model import build_faster_rcnn, build_model
from detector.config import dump_cfg, load_cfg
from detector.data.annotated import AnnotatedImages
from detector.data.pseudo_set import write_pseudo_set
from detector.data.voc import VOCDataset
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.engine.inference import predict
from detector.engine.resuming import restore_newest
from detector.engine.self_training import agreement, best_boxes, detect, pseudo_boxes
from detector.evaluation.pictures import write_pictures
from detector.evaluation.report import encode_json, metrics_table, write_json
from detector.structures import Detections
from detector.utils.command_line import config_parser, run_command
from detector.utils.distributed import world_size
from detector.utils.errors import UserError
from detector.utils.files import atomic_write
from detector.utils.outputs import OutputFolder
from detector.utils.run_info import run_info

logger = logging.getLogger("detector.tools.self_train")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = config_parser("Train a Faster R-CNN on what a weak detector finds.")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint; default: OUTPUT_DIR/model_final.pt")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's newest checkpoint")
    options = parser.parse_intermixed_args(arguments)
    return run_command(lambda: run(options.config_file, options.overrides, options.weights, options.resume))


def run(config_file: str, overrides: Sequence[str], weights: str | None, resume: bool) -> None:
    if world_size() > 1:
        raise UserError(f"self-training runs in one process, found {world_size()}: start it without torchrun")
    cfg = self_training_cfg(load_cfg(config_file, overrides))
    folder = Path(cfg.OUTPUT_DIR) / "self_train"
    if not resume and folder.exists():
        raise UserError(f"{folder} exists: add --resume to go on with it, or remove it")
    path = Path(weights) if weights else Path(cfg.OUTPUT_DIR) / "model_final.pt"
    if not (folder / "pseudo").exists() and not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist; train first, or name another file")
    device = start_run(cfg, folder)

    coco_engine = build_coco_engine(cfg)
    train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    cfg = name_classes(cfg, train_set)
    if not (folder / "pseudo").exists():
        find_pseudo_boxes(cfg, train_set, path, folder / "pseudo", device)
    pseudo_set = VOCDataset(folder / "pseudo", cfg.DATASETS.TRAIN_SPLIT, cfg.DATASETS.CLASSES)
    model = train_detector(cfg, pseudo_set, folder, device)

    test_set = build_dataset(cfg, cfg.DATASETS.TEST_SPLIT)
    detections = detect_all(cfg, model, test_set, device)
    on_train, _ = with_truth(detect_all(cfg, model, train_set, device), train_set)
    best = [best_boxes(image, len(train_set.class_names)) for image in on_train]
    metrics = measure(detections, test_set, best, train_set, coco_engine=coco_engine)
    pseudo = [pseudo_set.annotation(i) for i in range(len(pseudo_set))]
    checkpoint = load_checkpoint(folder / "model_final.pt")
    metrics |= {
        "method": f"{cfg.MODEL.METHOD} + self-training",
        "backbone": cfg.SELF_TRAIN.BACKBONE,
        "weights": str(folder / "model_final.pt"),
        "iteration": checkpoint["iteration"],
        "train_seconds": checkpoint["train_seconds"],
        "pseudo_boxes": agreement(*with_truth(pseudo, train_set)),
    }
    outputs = OutputFolder(folder, "self-training")
    outputs.write("metrics.json", encode_json(metrics))
    options = {"count": cfg.TEST.PICTURES, "score_threshold": cfg.TEST.PICTURE_SCORE}
    write_pictures(outputs, test_set, detections, **options)
    print(f"AP in percent on {test_set.name}, CorLoc on {train_set.name}\n\n{metrics_table(metrics)}\n")
    print(
        "{count} pseudo boxes: precision {precision:.1f}, recall {recall:.1f}".format(
            **metrics["pseudo_boxes"]
        )
    )
    print(f"figures   {folder / 'metrics.json'}")


def find_pseudo_boxes(
    cfg: CfgNode, train_set: AnnotatedImages, weights: Path, folder: Path, device: torch.device
) -> None:
    """Write the pseudo boxes of the training split as a data set."""
    model = build_model(cfg)
    restore_model(model, load_checkpoint(weights), weights)
    loader, precision = build_test_loader(cfg, train_set), build_precision(cfg, device)
    results = predict(model.to(device), loader, device=device, precision=precision)
    options = {"score_threshold": cfg.SELF_TRAIN.SCORE_THRESHOLD, "nms_threshold": cfg.SELF_TRAIN.NMS}
    found = [
        pseudo_boxes(scores, train_set.labels(index), **options)
        for index, scores in enumerate(
            tqdm(results, total=len(train_set), desc="pseudo boxes", unit="image", disable=None)
        )
    ]
    images = [(train_set.image_path(i), train_set.image_size(i)) for i in range(len(train_set))]
    write_pseudo_set(folder, cfg.DATASETS.TRAIN_SPLIT, train_set.class_names, images, found)
    count = sum(len(image.boxes) for image in found)
    logger.info("%d pseudo boxes in %d images, found by %s, in %s", count, len(found), weights, folder)


def train_detector(cfg: CfgNode, dataset: AnnotatedImages, folder: Path, device: torch.device) -> nn.Module:
    """Train from the newest checkpoint of the folder, or from the start."""
    model = build_faster_rcnn(cfg).to(device)
    optimizer = build_optimizer(cfg, model)
    precision = build_precision(cfg, device)
    progress = restore_newest(folder, model, optimizer, precision.scaler)
    with atomic_write(folder / "config.yaml", "w") as file:
        file.write(dump_cfg(cfg))
    write_json(folder / "run.json", run_info(device, cfg.SEED))
    build_training(cfg)(
        model,
        lambda losses, batch: losses,
        optimizer,
        build_box_loader(cfg, dataset, start=progress.iteration),
        folder=folder,
        device=device,
        start=progress.iteration,
        train_seconds=progress.train_seconds,
        precision=precision,
    )
    return model


def detect_all(
    cfg: CfgNode, model: nn.Module, dataset: AnnotatedImages, device: torch.device
) -> list[Detections]:
    """What the detector finds in every image of a data set, behind a progress bar."""
    batch = cfg.SELF_TRAIN.IMAGES_PER_BATCH
    results = detect(model, dataset, device=device, images_per_batch=batch, workers=cfg.DATASETS.WORKERS)
    return list(tqdm(results, total=len(dataset), desc=dataset.name, unit="image", disable=None))


if __name__ == "__main__":
    sys.exit(main())
