"""From a config to data sets and batches; detector/build.py makes all else."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Subset
from yacs.config import CfgNode

from detector.data.annotated import AnnotatedImages
from detector.data.batch_order import repeat_factors
from detector.data.box_loader import BoxDataset, IndexedImages, collate_boxes
from detector.data.check import doubtful_classes
from detector.data.coco import COCODataset
from detector.data.hints import read_hints
from detector.data.image_labels import ImageLabels
from detector.data.loader import TestDataset, WeakDataset, collate
from detector.data.proposals import Proposals, load_proposals
from detector.data.reviewed import (
    annotations_as_reviewed,
    contradictions,
    describe_reviewed,
    draw_images,
    favor,
    label_counts,
    read_reviewed,
    training_labels,
    unused_images,
)
from detector.data.table_source import changed_source
from detector.data.transforms import TestTransform, TrainTransform
from detector.data.voc import VOCDataset
from detector.data.worker_loader import WorkerLoader, seeded_loader
from detector.structures import Hints, ReviewedBoxes, Views
from detector.utils.distributed import rank, world_size
from detector.utils.errors import UserError
from detector.utils.files import read_text

logger = logging.getLogger(__name__)


def build_dataset(cfg: CfgNode, split: str) -> AnnotatedImages:
    """The images, labels and annotations of one split."""
    data = cfg.DATASETS
    if data.FORMAT == "coco":
        return COCODataset(
            data.ROOT,
            split,
            data.CLASSES,
            annotations=data.COCO_JSON,
            images=data.COCO_IMAGES,
            crowd_labels=data.DIFFICULT_LABELS,
        )
    if data.FORMAT == "image_labels":
        if split == data.TRAIN_SPLIT and (changed := changed_source(Path(data.ROOT))):
            again = f"detector init --again --output {data.ROOT}.yaml"
            line = (
                f"{data.ROOT} has the labels of before a change of {changed}: write its tables anew, {again}"
            )
            warnings.warn(line, stacklevel=1)  # the same place for every caller, so that it is shown once
        return ImageLabels(data.ROOT, split, data.CLASSES)
    return VOCDataset(data.ROOT, split, data.CLASSES, difficult_labels=data.DIFFICULT_LABELS)


def find_test_set(cfg: CfgNode, train_set: AnnotatedImages) -> AnnotatedImages | None:
    """The test split, without its warnings; None if it cannot be read, since training does not need it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return build_dataset(name_classes(cfg, train_set), cfg.DATASETS.TEST_SPLIT)
    except (UserError, OSError):
        return None


def name_classes(cfg: CfgNode, dataset: AnnotatedImages) -> CfgNode:
    """The config with the classes of the data set to learn from, if DATASETS.CLASSES is empty."""
    if cfg.DATASETS.CLASSES:
        return cfg
    named = cfg.clone()
    named.defrost()
    named.DATASETS.CLASSES = dataset.class_names
    named.freeze()
    return named


def build_proposals(cfg: CfgNode, dataset: AnnotatedImages) -> Proposals:
    """The proposals, checked against the images of the data set."""
    proposals = load_proposals(cfg.DATASETS.PROPOSALS)
    proposals.check(dataset)
    return proposals


def build_reviewed(cfg: CfgNode, dataset: AnnotatedImages) -> dict[str, ReviewedBoxes]:
    """The reviewed boxes that training may see, by image id.

    Warnings count reviewed images that are not in the data set, and boxes that contradict tags.
    """
    named, share = cfg.DATASETS.BOXED, cfg.DATASETS.BOXED_SHARE
    others: list[str] = []
    if named.endswith(".txt"):
        lines = read_text(named, "list of images").splitlines()
        reviewed = annotations_as_reviewed(dataset, [line.strip() for line in lines if line.strip()])
    elif named:
        reviewed, others = read_reviewed(Path(named), dataset)
    elif share:
        reviewed = annotations_as_reviewed(dataset, draw_images(dataset.image_ids, share, cfg.SEED))
    else:
        return {}
    test_set = find_test_set(cfg, dataset) if others else None
    unused = unused_images(named, others, dataset, test_set)
    for line in [*unused, *contradictions(dataset, reviewed)]:
        warnings.warn(line, stacklevel=1)  # the same place for every caller, so that it is shown once
    return reviewed


def build_hints(cfg: CfgNode, dataset: AnnotatedImages) -> dict[str, Hints]:
    """Points and counts of images, by image id."""
    return read_hints(Path(cfg.DATASETS.HINTS), dataset) if cfg.DATASETS.HINTS else {}


def draw_factors(
    cfg: CfgNode, dataset: AnnotatedImages, reviewed: Mapping[str, ReviewedBoxes], hints: Mapping[str, Hints]
) -> np.ndarray | None:
    """How often to draw each image (N,), by SOLVER.REPEAT_THRESHOLD and BOXED_SHARE; None: equally often."""
    boxed = np.array([image_id in reviewed for image_id in dataset.image_ids])
    threshold, share = cfg.SOLVER.REPEAT_THRESHOLD, cfg.SOLVER.BOXED_SHARE if boxed.any() else 0.0
    if not threshold and not share:
        return None
    labels = training_labels(dataset, reviewed, hints)
    return repeat_factors(labels, threshold) * favor(boxed, labels, share)


def build_train_loader(cfg: CfgNode, dataset: AnnotatedImages, *, stride: int, start: int = 0) -> DataLoader:
    """Endless training batches (:class:`Batch`); the first is the one after `start` batches of all processes.

    Classes that cannot be learned and labels that are probably misspelt are logged as warnings. `stride` is
    the backbone's.
    """
    inputs, reviewed, hints = cfg.INPUT, build_reviewed(cfg, dataset), build_hints(cfg, dataset)
    for line in doubtful_classes(dataset.name, label_counts(dataset, reviewed, hints), len(dataset)):
        logger.warning("warning: %s", line)
    if reviewed:
        logger.info(describe_reviewed(dataset, reviewed))
    transform = TrainTransform(
        sizes=inputs.TRAIN_SIZES,
        side=inputs.SIDE,
        max_size=inputs.MAX_SIZE,
        flip=inputs.FLIP,
        inclusive_rois=inputs.INCLUSIVE_ROIS,
    )
    samples = WeakDataset(
        dataset,
        build_proposals(cfg, dataset),
        transform,
        min_size=cfg.PROPOSALS.MIN_SIZE,
        stride=stride,
        max_count=cfg.PROPOSALS.MAX_COUNT,
        reviewed=reviewed,
        hints=hints,
    )
    return seeded_loader(
        samples,
        partial(collate, multiple=inputs.PAD_MULTIPLE),
        **_batch_options(cfg, start),
        window=cfg.SOLVER.SORT_WINDOW,
        shape=samples.shape,
        repeats=draw_factors(cfg, dataset, reviewed, hints),
    )


def build_test_transforms(cfg: CfgNode) -> list[TestTransform]:
    """One for each test pass: each of INPUT.TEST_SIZES, flipped as well if INPUT.TEST_FLIP is True."""
    inputs = cfg.INPUT
    return [
        TestTransform(size, test_side(cfg), max_size, flip, inputs.INCLUSIVE_ROIS)
        for size, max_size in zip(inputs.TEST_SIZES, test_max_sizes(cfg), strict=True)
        for flip in ((False, True) if inputs.TEST_FLIP else (False,))
    ]


def test_side(cfg: CfgNode) -> str:
    """The side of an image to which INPUT.TEST_SIZES refer: "shortest" or "longest"."""
    return cfg.INPUT.SIDE if cfg.INPUT.TEST_SIDE == "same" else cfg.INPUT.TEST_SIDE


def test_max_sizes(cfg: CfgNode) -> list[int]:
    """The maximum length of the longer side for each of INPUT.TEST_SIZES."""
    inputs = cfg.INPUT
    caps = inputs.TEST_MAX_SIZES
    if len(caps) == 1:
        caps = caps * len(inputs.TEST_SIZES)
    return [cap or inputs.MAX_SIZE for cap in caps]


def build_test_loader(cfg: CfgNode, dataset: AnnotatedImages, indices: Sequence[int]) -> DataLoader:
    """The images of `indices`, once, in order, with a sample for each test pass."""
    passes = _test_dataset(cfg, dataset, build_test_transforms(cfg))
    return WorkerLoader(Subset(passes, indices), workers=cfg.DATASETS.WORKERS, batch_size=None)


def build_watched(cfg: CfgNode, dataset: AnnotatedImages, indices: Sequence[int]) -> list[Views]:
    """The images of `indices` in one pass each, of the first training size and not flipped."""
    inputs = cfg.INPUT
    transform = TestTransform(
        inputs.TRAIN_SIZES[0], inputs.SIDE, inputs.MAX_SIZE, flip=False, inclusive_rois=inputs.INCLUSIVE_ROIS
    )
    passes = _test_dataset(cfg, dataset, [transform])
    return [passes[index] for index in indices]


def _test_dataset(cfg: CfgNode, dataset: AnnotatedImages, transforms: Sequence[TestTransform]) -> TestDataset:
    limits = {"min_size": cfg.PROPOSALS.MIN_SIZE, "max_count": cfg.PROPOSALS.MAX_COUNT}
    return TestDataset(dataset, build_proposals(cfg, dataset), transforms, **limits)


def build_box_loader(
    cfg: CfgNode, dataset: BoxDataset | IndexedImages, *, start: int, factors: np.ndarray | None
) -> DataLoader:
    """Endless batches (:class:`BoxBatch`); the first is the one after `start` batches of all processes.

    Args:
        factors: (N,), how often to draw each image; None: all equally often.
    """
    return seeded_loader(dataset, collate_boxes, **_batch_options(cfg, start), repeats=factors)


def _batch_options(cfg: CfgNode, start: int) -> dict[str, Any]:
    """Which batches this process makes: those after `start` batches of all processes."""
    return {
        "images_per_batch": cfg.SOLVER.IMAGES_PER_BATCH,
        "seed": cfg.SEED,
        "start": start,
        "workers": cfg.DATASETS.WORKERS,
        "rank": rank(),
        "world_size": world_size(),
    }
