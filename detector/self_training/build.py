"""From the settings to the student of self-training, its batches and its pseudo boxes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from textwrap import shorten
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader

from detector.config import Settings
from detector.config.settings import SelfTrainSettings, TestSettings
from detector.data.build import batch_options
from detector.data.training_set import TrainingSet
from detector.data.worker_loader import seeded_loader
from detector.modeling.backbones.build import load_pretrained, timm_errors
from detector.modeling.postprocess import postprocess
from detector.modeling.weights import TORCHVISION, convert_weights, load_tensors
from detector.self_training.box_loader import BoxDataset, IndexedImages, collate_boxes
from detector.self_training.choose import pseudo_boxes
from detector.self_training.faster_rcnn import (
    NMS_IOU,
    SCORE_THRESHOLD,
    SMALL_SIZE,
    TORCHVISION_SIZE,
    FasterRCNN,
    faster_rcnn,
)
from detector.self_training.fcos import FCOS, fcos
from detector.self_training.pyramids import (
    SmallPyramid,
    TimmPyramid,
    load_torchvision_weights,
    torchvision_pyramid,
)
from detector.self_training.random_sizes import RandomSizes
from detector.self_training.tile_views import clip_to_tile
from detector.structures import Detections, ReviewedBoxes, Scores
from detector.utils.errors import ConfigError, UserError

Student = FasterRCNN | FCOS  # the detectors of self-training

_SURE = 0.5  # score of a box in a tile that is learned, where the threshold is relative to the image


def build_student(cfg: Settings, *, pretrained: bool = True) -> Student:
    """The detector of self-training, the one that SELF_TRAIN.DETECTOR names.

    Args:
        pretrained: load its ImageNet weights; False: those of a checkpoint come next.

    Raises:
        FileNotFoundError, UserError: there are no such weights, or they are of another network.
    """
    options, backbone, classes = cfg.self_train, cfg.self_train.backbone, len(cfg.datasets.classes)
    of_torchvision = backbone not in ("small", "timm")
    transform = RandomSizes(
        options.sizes,
        options.max_size,
        TORCHVISION.mean if of_torchvision else cfg.input.mean,
        TORCHVISION.std if of_torchvision else cfg.input.std,
        options.scale_jitter,
    )
    shared: dict[str, Any] = {
        "pseudo_weight": options.pseudo_weight,
        "score_threshold": student_threshold(cfg.test),
        "max_detections": cfg.test.max_detections,
    }
    pyramid, small = build_pyramid(options, cfg.model.backbone.timm_name, pretrained), backbone == "small"
    model: Student
    if options.detector == "fcos":
        convs = 2 if small else 4
        model = fcos(pyramid, classes, transform, convs=convs, test_places=options.test_proposals, **shared)
    else:
        model = faster_rcnn(
            pyramid,
            classes,
            transform,
            size=SMALL_SIZE if small else TORCHVISION_SIZE,
            rois=options.rois,
            test_proposals=options.test_proposals,
            **shared,
        )
    if pretrained and backbone == "timm":
        load_pretrained(cfg.model, cfg.input, model, "timm")
    return model


def build_student_postprocess(
    test: TestSettings, score_threshold: float | Tensor | None = None
) -> Callable[[Scores], Detections]:
    """As :func:`build_postprocess`, for the student of self-training, with an NMS of its own."""
    return partial(
        postprocess,
        score_threshold=student_threshold(test) if score_threshold is None else score_threshold,
        nms_threshold=NMS_IOU,
        max_detections=test.max_detections,
    )


def build_pyramid(options: SelfTrainSettings, timm_name: str, pretrained: bool) -> nn.Module:
    """The network of SELF_TRAIN.BACKBONE; of torchvision's, with SELF_TRAIN.WEIGHTS if `pretrained`."""
    # FCOS scores each place of a map: with stride 4, four times as many as with all other maps.
    least_stride: Literal[4, 8] = 8 if options.detector == "fcos" else 4
    if options.backbone == "small":
        return SmallPyramid(options.channels)
    if options.backbone == "timm":
        with timm_errors("SELF_TRAIN.BACKBONE"):
            return TimmPyramid(timm_name, options.channels, least_stride=least_stride)
    pyramid = torchvision_pyramid(
        options.backbone, pretrained=bool(options.weights), least_stride=least_stride
    )
    if pretrained and options.weights:
        try:
            load_torchvision_weights(pyramid, convert_weights(load_tensors(options.weights)).tensors)
        except (RuntimeError, UserError) as error:
            reason = shorten(str(error), 300)
            raise ConfigError(
                f"SELF_TRAIN.WEIGHTS is {options.weights!r}, which does not fit: {reason}"
            ) from error
    return pyramid


def build_box_loader(
    cfg: Settings, dataset: BoxDataset | IndexedImages, *, start: int, factors: np.ndarray | None
) -> DataLoader:
    """Endless batches (:class:`BoxBatch`); the first is the one after `start` batches of all processes.

    Args:
        factors: (N,), how often to draw each image; None: all equally often.
    """
    return seeded_loader(dataset, collate_boxes, **batch_options(cfg, start), repeats=factors)


def build_pseudo_boxes(
    keys: SelfTrainSettings, training_set: TrainingSet, *, of_student: bool
) -> Callable[[int, Scores, Tensor | None], Detections]:
    """A function from the index of a training image and its scores to the boxes to learn from.

    For scores of a tile (4,) of the image, in pixels of the image, only boxes are taken that score more than
    SELF_TRAIN.SCORE_THRESHOLD, or than 0.5 where that is relative: a tile need not show what the image does.
    Points and counts, which are of the image, are then not used.

    Args:
        of_student: a student regressed the boxes, so they stay where they are, and groups stay.
    """
    dataset = training_set.dataset

    def choose(index: int, scores: Scores, tile: Tensor | None = None) -> Detections:
        whole, image_id = tile is None, dataset.image_ids[index]
        relative, reviewed = keys.relative_scores, training_set.reviewed.get(image_id)
        return pseudo_boxes(
            scores,
            dataset.labels(index),
            score_threshold=keys.score_threshold if whole or not relative else _SURE,
            relative=relative and whole,
            each_label=whole,
            nms_threshold=keys.nms,
            drop_inside=keys.drop_inside,
            drop_groups=0.0 if of_student else keys.drop_groups,
            voting_iou=0.0 if of_student else keys.voting_iou,
            reviewed=reviewed if tile is None or reviewed is None else _in_tile(reviewed, tile),
            hints=training_set.hints.get(image_id) if whole else None,
        )

    return choose


def _in_tile(reviewed: ReviewedBoxes, tile: Tensor) -> ReviewedBoxes:
    boxes, visible = clip_to_tile(reviewed.boxes, tile)
    return replace(reviewed, boxes=boxes[visible], labels=reviewed.labels[visible])


def student_threshold(test: TestSettings) -> float:
    """TEST.SCORE_THRESHOLD for the student of self-training, of which scores below 0.001 are noise."""
    return max(SCORE_THRESHOLD, test.score_threshold)
