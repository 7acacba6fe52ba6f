"""`detector.evaluate`, and what tools/test_net.py does."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from tqdm import tqdm
from yacs.config import CfgNode

from detector.build import build_coco_engine, build_device, build_precision, results_key, start_run
from detector.build_data import build_dataset, build_test_loader, name_classes
from detector.build_model import build_model, build_postprocess
from detector.config import load_cfg
from detector.data.annotated import AnnotatedImages
from detector.engine.checkpoint import load_checkpoint, restore_model
from detector.engine.inference import predict
from detector.engine.precision import Precision
from detector.engine.testing import remove_results, test_images
from detector.evaluation.coco import coco_ap
from detector.evaluation.detections_file import save_detections
from detector.evaluation.image_level import image_ap
from detector.evaluation.pictures import write_pictures
from detector.evaluation.report import metrics_table, summarize, write_json
from detector.evaluation.voc import corloc, voc_ap
from detector.structures import Annotation, Detections, Scores
from detector.utils.distributed import is_main, process_group

logger = logging.getLogger(__name__)

_PATIENCE = 3600.0  # seconds that a process waits for one with more proposals or a slower machine


def evaluate(
    config: str | Path,
    overrides: Mapping[str, object] | None = None,
    *,
    weights: str | Path | None = None,
) -> dict[str, Any]:
    """Measure a trained detector: `detector.evaluate("runs/demo")["mAP50"]`.

    Writes metrics.json and pictures/ to the run folder, OUTPUT_DIR, and prints a table.

    Args:
        config: a run folder, whose config.yaml is taken, or a config file.
        overrides: keys of the config to change, as in {"TEST.PICTURES": 0}; see detector/config.py.
        weights: a checkpoint; None: model_final.pt of OUTPUT_DIR.

    Returns:
        what metrics.json holds: AP on the test split, CorLoc on the training split, in percent, and more.

    Raises:
        FileNotFoundError, ValueError: whatever the user can mend.
    """
    file = Path(config)
    if file.is_dir():
        file = file / "config.yaml"
    words = [word for pair in (overrides or {}).items() for word in pair]
    run(str(file), words, None if weights is None else str(weights))
    folder = Path(load_cfg(file, words).OUTPUT_DIR)
    return json.loads((folder / "metrics.json").read_text(encoding="utf-8"))


def run(config_file: str, overrides: Sequence[str], weights: str | None) -> None:
    cfg = load_cfg(config_file, overrides)
    with process_group(build_device(cfg), timeout=_PATIENCE):
        test(cfg, weights)


def test(cfg: CfgNode, weights: str | None) -> None:
    """Measure a checkpoint (None: the run's own); the main process writes what was found, and the figures."""
    folder = Path(cfg.OUTPUT_DIR)
    path = Path(weights) if weights else folder / "model_final.pt"
    checkpoint = load_checkpoint(path)
    device = start_run(cfg, folder)
    coco_engine = build_coco_engine(cfg)
    train_set = build_dataset(cfg, cfg.DATASETS.TRAIN_SPLIT)
    cfg = name_classes(cfg, train_set)
    model = build_model(cfg)
    restore_model(model, checkpoint, path)
    model.to(device)
    logger.info("testing %s, %s, after %d steps", path, cfg.MODEL.METHOD, checkpoint["iteration"])

    test_set = build_dataset(cfg, cfg.DATASETS.TEST_SPLIT)
    key, precision = results_key(cfg, path), build_precision(cfg, device)
    results = test_images(
        lambda left: predict_all(cfg, model, test_set, left, precision),
        test_set.image_ids,
        build_postprocess(cfg),
        path=folder / "results" / "test",
        key=key,
    )
    train_boxed = images_with_boxes(train_set)
    train_results = test_images(
        lambda left: predict_all(cfg, model, train_set, [train_boxed[i] for i in left], precision),
        [train_set.image_ids[i] for i in train_boxed],
        None,
        path=folder / "results" / "train",
        key=key,
    )
    if not is_main():
        return
    detections = [result.detections for result in results]
    metrics = measure(
        detections,
        test_set,
        [result.best for result in train_results],
        train_set,
        coco_engine=coco_engine,
        image_ap=image_ap(
            [result.best_scores for result in results], [test_set.labels(i) for i in range(len(test_set))]
        ),
    )
    metrics |= {
        "method": cfg.MODEL.METHOD,
        "weights": str(path),
        "iteration": checkpoint["iteration"],
        "train_seconds": checkpoint["train_seconds"],
    }
    write_figures(cfg, metrics, detections, test_set, train_set)


def write_figures(
    cfg: CfgNode,
    metrics: dict[str, Any],
    detections: Sequence[Detections],
    test_set: AnnotatedImages,
    train_set: AnnotatedImages,
) -> None:
    """Write metrics.json, detections.npz and pictures/ to the run folder, and print the table."""
    folder = Path(cfg.OUTPUT_DIR)
    write_json(folder / "metrics.json", metrics)
    save_detections(folder / "detections.npz", detections)
    remove_results(folder / "results")
    options = {"count": cfg.TEST.PICTURES, "score_threshold": cfg.TEST.PICTURE_SCORE}
    pictures = write_pictures(folder / "pictures", test_set, detections, **options)
    print(f"AP in percent on {name_images(test_set)}, CorLoc on {name_images(train_set)}")
    print(f"image AP, of labels without boxes, on {test_set.name}\n\n{metrics_table(metrics)}\n")
    print(f"figures   {folder / 'metrics.json'}")
    if pictures:
        print(f"pictures  {pictures[-1]}")


def measure(
    detections: Sequence[Detections],
    test_set: AnnotatedImages,
    best: Sequence[Scores],
    train_set: AnnotatedImages,
    *,
    coco_engine: str | None,
    image_ap: np.ndarray | None = None,
) -> dict[str, Any]:
    """AP on the test split, CorLoc on the training split; COCO's AP too where there is an engine for it.

    Args:
        detections: in all images of the test split; those without true boxes do not count.
        best: of the images of the training split that have boxes.
    """
    names = train_set.class_names
    found, truth = with_truth(detections, test_set)
    return summarize(
        names,
        voc_ap(found, truth, len(names)),
        voc_ap(found, truth, len(names), eleven_point=True),
        corloc(best, [train_set.annotation(i) for i in images_with_boxes(train_set)], len(names)),
        coco_ap(found, truth, len(names), engine=coco_engine) if coco_engine and truth else {},
        image_ap,
    )


def images_with_boxes(dataset: AnnotatedImages) -> list[int]:
    """The images whose true boxes are known: all, but in an image_labels set."""
    return [i for i in range(len(dataset)) if dataset.annotation(i) is not None]


def with_truth(
    detections: Sequence[Detections], dataset: AnnotatedImages
) -> tuple[list[Detections], list[Annotation]]:
    """Of the detections in all images those in images with boxes, and these boxes."""
    boxed = images_with_boxes(dataset)
    return [detections[i] for i in boxed], [dataset.annotation(i) for i in boxed]


def name_images(dataset: AnnotatedImages) -> str:
    """What was measured: a data set, or the images of it that have boxes."""
    boxed = len(images_with_boxes(dataset))
    if boxed == len(dataset):
        return dataset.name
    if boxed == 0:
        return f"no image of {dataset.name}, as none has boxes"
    return f"{boxed} of {len(dataset)} images of {dataset.name}, those with boxes"


def predict_all(
    cfg: CfgNode,
    model: nn.Module,
    dataset: AnnotatedImages,
    indices: Sequence[int],
    precision: Precision,
) -> Iterator[Scores]:
    """The scores of the images of `indices`, on the device, behind a progress bar."""
    loader = build_test_loader(cfg, dataset, indices)
    results = predict(model, loader, device=precision.device, precision=precision, keep_on_device=True)
    disable = None if is_main() else True
    return iter(tqdm(results, total=len(indices), desc=dataset.name, unit="image", disable=disable))
