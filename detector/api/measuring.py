"""The figures of a test, and what metrics.json records beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from detector.config import changed_keys, load_cfg
from detector.data.annotated import AnnotatedImages
from detector.data.voc import VOCDataset
from detector.engine.self_training import agreement
from detector.engine.testing import ImageResult
from detector.evaluation.coco import coco_ap
from detector.evaluation.report import summarize
from detector.evaluation.voc import corloc, image_ap, voc_ap
from detector.structures import Annotation
from detector.utils.files import file_digest


def measure(
    results: Sequence[ImageResult],
    test_set: AnnotatedImages,
    train_results: Sequence[ImageResult],
    train_set: AnnotatedImages,
    with_coco: bool,
) -> dict[str, Any]:
    """AP on the test split, CorLoc on the training split; COCO's AP too where there is an engine for it.

    Args:
        results: of all images of the test split; those without ground-truth boxes count for the AP of the
            image labels only.
        train_results: of the images of the training split that have ground-truth boxes.
    """
    names, truth = train_set.class_names, annotations(test_set)
    found, boxed = [results[i].detections for i in truth], list(truth.values())
    labels = [test_set.labels(i) for i in range(len(test_set))]
    unknown = [each for i in range(len(test_set)) if (each := test_set.unknown(i)) is not None]
    best_boxes = [result.best_boxes for result in train_results]
    return summarize(
        names,
        voc_ap(found, boxed, len(names)),
        voc_ap(found, boxed, len(names), eleven_point=True),
        corloc(best_boxes, list(annotations(train_set).values()), len(names)),
        coco_ap(found, boxed, len(names)) if with_coco and truth else {},
        image_ap([result.best_scores for result in results], labels, unknown or None),
    )


def annotations(dataset: AnnotatedImages) -> dict[int, Annotation]:
    """The ground-truth boxes of the images that have them: all, but in an image_labels set."""
    pairs = ((i, dataset.annotation(i)) for i in range(len(dataset)))
    return {i: annotation for i, annotation in pairs if annotation is not None}


def name_images(dataset: AnnotatedImages) -> str:
    """What was measured: a data set, or the images of it that have boxes."""
    boxed = len(annotations(dataset))
    if boxed == len(dataset):
        return dataset.name
    if boxed == 0:
        return f"no image of {dataset.name}, as none has boxes"
    return f"{boxed} of {len(dataset)} images of {dataset.name}, those with boxes"


def describe_test(cfg: CfgNode, folder: Path, weights: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What metrics.json records of a test beside the figures: what they are of."""
    config = folder / "config.yaml"
    changed = changed_keys(load_cfg(config), cfg) if config.is_file() else {}
    return {
        "method": cfg.MODEL.METHOD,
        "weights": str(weights),
        "weights_sha256": file_digest(weights),
        "changed_keys": {key: value for key, value in changed.items() if key != "OUTPUT_DIR"},
        "iteration": checkpoint["iteration"],
        "train_seconds": checkpoint["train_seconds"],
    }


def describe_student(cfg: CfgNode, folder: Path, train_set: AnnotatedImages) -> dict[str, Any]:
    """What metrics.json records of self-training, and how good the pseudo boxes in `folder` are."""
    about = {"method": f"{cfg.MODEL.METHOD} + self-training", "backbone": cfg.SELF_TRAIN.BACKBONE}
    truth = annotations(train_set)
    rounds = [folder / f"round_{number}" for number in range(1, cfg.SELF_TRAIN.ROUNDS + 1)]
    by_round = []
    for path in (each / "pseudo" for each in (*rounds, folder)):
        if truth and path.is_dir():
            pseudo = annotations(VOCDataset(path, cfg.DATASETS.TRAIN_SPLIT, train_set.class_names))
            by_round.append(agreement([pseudo[i] for i in truth], list(truth.values())))
    return about | ({"pseudo_boxes": by_round[-1], "pseudo_boxes_by_round": by_round} if by_round else {})
