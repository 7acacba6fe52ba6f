"""From a config to the network, its criterion and its postprocessing; see detector/build.py for the rest."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from yacs.config import CfgNode

from detector.build_backbone import build_backbone, build_pyramid, load_pretrained
from detector.modeling.box_features import BoxFeatures
from detector.modeling.criterion import Criterion
from detector.modeling.drop_block import ConcreteDropBlock
from detector.modeling.faster_rcnn import (
    NMS_IOU,
    SCORE_THRESHOLD,
    SMALL_SIZE,
    TORCHVISION_SIZE,
    FasterRCNN,
    faster_rcnn,
)
from detector.modeling.head import Head, ImageHead
from detector.modeling.postprocess import postprocess
from detector.modeling.refinement import (
    Loss,
    Refinement,
    Rule,
    cluster_loss,
    cross_entropy_loss,
    suppressed_by_any,
)
from detector.modeling.regression import (
    RegressionBranch,
    RegressionLoss,
    StreamRegression,
    StreamRegressionLoss,
)
from detector.modeling.weak_rcnn import WeakRCNN, compile_model
from detector.modeling.weights import TORCHVISION
from detector.structures import Detections, Scores


def build_model(cfg: CfgNode) -> WeakRCNN:
    """The detector with random weights."""
    backbone = build_backbone(cfg)
    options = cfg.MODEL.BOX_FEATURES
    box_features = BoxFeatures(
        backbone.out_channels,
        backbone.stride,
        pool=options.POOL,
        output_size=options.OUTPUT_SIZE,
        widths=options.WIDTHS,
        dropout=options.DROPOUT,
        drop_cells=options.DROP_CELLS,
        drop_block=build_drop_block(cfg, backbone.out_channels),
        context=options.CONTEXT,
        chunk=options.CHUNK,
    )
    streams = 0 if cfg.MODEL.METHOD == "wsddn" else cfg.MODEL.STREAMS
    num_classes = len(cfg.DATASETS.CLASSES)
    head = Head(
        box_features.out_features,
        num_classes,
        streams,
        init_std=cfg.MODEL.HEAD_STD,
        mil_background=cfg.MODEL.MIL_BACKGROUND,
    )
    image_head = ImageHead(backbone.out_channels, num_classes) if cfg.MODEL.IMAGE_HEAD else None
    model = WeakRCNN(
        backbone,
        box_features,
        head,
        image_head,
        build_regression(cfg, box_features.out_features),
        pixel_mean=cfg.INPUT.MEAN,
        pixel_std=cfg.INPUT.STD,
        recompute_backbone=cfg.MODEL.BACKBONE.RECOMPUTE,
    )
    if cfg.CHANNELS_LAST:
        backbone.to(memory_format=torch.channels_last)  # convolutions lay out features as their weights
    if cfg.COMPILE:
        compile_model(model)
    return model


def build_drop_block(cfg: CfgNode, channels: int) -> ConcreteDropBlock | None:
    """MIST's concrete drop block for pooled features (N, channels, S, S); None: it is disabled."""
    options = cfg.MODEL.DROP_BLOCK
    if not options.ENABLED:
        return None
    return ConcreteDropBlock(
        channels,
        share=options.SHARE,
        size=options.SIZE,
        temperature=options.TEMPERATURE,
        gradient_factor=options.GRADIENT_FACTOR,
        width=options.WIDTH,
        norm=options.NORM,
        bound=options.BOUND,
        rescale=options.RESCALE,
    )


def build_regression(cfg: CfgNode, in_features: int) -> RegressionBranch | StreamRegression | None:
    """The module that regresses boxes from the features of proposals; None: there is none."""
    options = cfg.MODEL.REGRESSION
    if not options.ENABLED:
        return None
    num_classes = len(cfg.DATASETS.CLASSES)
    if options.PER_STREAM:
        return StreamRegression(in_features, num_classes, cfg.MODEL.STREAMS)
    return RegressionBranch(
        in_features, num_classes, score_weight=options.SCORE_WEIGHT, init_std=cfg.MODEL.HEAD_STD
    )


def build_criterion(cfg: CfgNode) -> Criterion:
    """The losses of MODEL.METHOD, and of the regression branch where there is one."""
    refinement, options = build_refinement(cfg), cfg.MODEL.REGRESSION
    regression: RegressionLoss | StreamRegressionLoss | None = None
    if options.ENABLED and options.PER_STREAM:
        regression = StreamRegressionLoss(options.WEIGHT, options.BOX_REDUCTION)
    elif options.ENABLED:
        labels = _refinement(cfg, "oicr") if options.LABELS == "top1" else refinement
        assert labels is not None  # WSDDN has no clusters, and the config refuses to regress to them
        regression = RegressionLoss(labels, options.WEIGHT, options.BOX_REDUCTION)
    return Criterion(
        refinement,
        mil_reduction=cfg.MODEL.MIL_REDUCTION,
        stream_weights=cfg.MODEL.STREAM_WEIGHTS,
        regression=regression,
    )


def build_refinement(cfg: CfgNode) -> Refinement | None:
    """The pseudo-label rule and the loss of the refinement streams; None for WSDDN, which has none."""
    method, options = cfg.MODEL.METHOD, cfg.CLUSTERS
    if method == "wsddn":
        return None
    if method == "pcl":
        chosen = {"graph_iou": options.GRAPH_IOU, "max_centers": options.MAX_CENTERS}
        return _refinement(cfg, "pcl", chosen, loss=cluster_loss)
    if method == "mist":
        chosen = {"top_share": options.TOP_SHARE, "nms_iou": options.NMS_IOU}
        if options.SUPPRESSION == "any":
            return _refinement(cfg, partial(suppressed_by_any, **chosen))
        return _refinement(cfg, "mist", chosen)
    return _refinement(cfg, "oicr")


def _refinement(
    cfg: CfgNode,
    rule: Literal["oicr", "pcl", "mist"] | Rule,
    options: Mapping[str, Any] | None = None,
    loss: Loss = cross_entropy_loss,
) -> Refinement:
    """A refinement whose proposals are assigned to its seeds as CLUSTERS says."""
    return Refinement(
        rule,
        options or {},
        loss,
        member_iou=cfg.CLUSTERS.MEMBER_IOU,
        ignore_iou=cfg.CLUSTERS.IGNORE_IOU,
        ignore_cover=cfg.CLUSTERS.IGNORE_COVER,
        cover_iou=cfg.CLUSTERS.COVER_IOU,
    )


def build_faster_rcnn(cfg: CfgNode, *, pretrained: bool = True) -> FasterRCNN:
    """The detector of self-training.

    Args:
        pretrained: load its ImageNet weights; False: those of a checkpoint come next.

    Raises:
        FileNotFoundError, UserError: there are no such weights, or they are of another network.
    """
    options, backbone = cfg.SELF_TRAIN, cfg.SELF_TRAIN.BACKBONE
    of_torchvision = backbone not in ("small", "timm")
    model = faster_rcnn(
        build_pyramid(cfg, pretrained),
        len(cfg.DATASETS.CLASSES),
        sizes=options.SIZES,
        max_size=options.MAX_SIZE,
        scale_jitter=options.SCALE_JITTER,
        size=SMALL_SIZE if backbone == "small" else TORCHVISION_SIZE,
        rois=options.ROIS,
        test_proposals=options.TEST_PROPOSALS,
        pseudo_weight=options.PSEUDO_WEIGHT,
        drop_loss=options.DROP_LOSS,
        mean=TORCHVISION.mean if of_torchvision else cfg.INPUT.MEAN,
        std=TORCHVISION.std if of_torchvision else cfg.INPUT.STD,
        score_threshold=student_threshold(cfg),
        max_detections=cfg.TEST.MAX_DETECTIONS,
    )
    if pretrained and backbone == "timm":
        load_pretrained(cfg, model, "timm")
    return model


def student_threshold(cfg: CfgNode) -> float:
    """TEST.SCORE_THRESHOLD for the Faster R-CNN of self-training, of which scores below 0.001 are noise."""
    return max(SCORE_THRESHOLD, cfg.TEST.SCORE_THRESHOLD)


def build_student_postprocess(
    cfg: CfgNode, score_threshold: float | None = None
) -> Callable[[Scores], Detections]:
    """As :func:`build_postprocess`, for the Faster R-CNN of self-training, with an NMS of its own."""
    return partial(
        postprocess,
        score_threshold=student_threshold(cfg) if score_threshold is None else score_threshold,
        nms_threshold=NMS_IOU,
        max_detections=cfg.TEST.MAX_DETECTIONS,
    )


def build_postprocess(cfg: CfgNode, score_threshold: float | None = None) -> Callable[[Scores], Detections]:
    """From the scores of an image's proposals to its detections; None: those above TEST.SCORE_THRESHOLD."""
    return partial(
        postprocess,
        score_threshold=cfg.TEST.SCORE_THRESHOLD if score_threshold is None else score_threshold,
        nms_threshold=cfg.TEST.NMS,
        max_per_class=cfg.TEST.MAX_PER_CLASS,
        max_detections=cfg.TEST.MAX_DETECTIONS,
    )
