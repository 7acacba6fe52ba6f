"""From the settings to the weak detector, its criterion and its postprocessing."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from detector.config import Settings
from detector.modeling.backbones.build import build_backbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.criterion import Criterion
from detector.modeling.drop_block import ConcreteDropBlock
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
from detector.modeling.tag_noise import TagNoise
from detector.modeling.weak_rcnn import WeakRCNN, compile_model
from detector.structures import Detections, Scores


def build_model(cfg: Settings) -> WeakRCNN:
    """The detector with random weights."""
    backbone = build_backbone(cfg)
    options = cfg.model.box_features
    box_features = BoxFeatures(
        backbone.out_channels,
        backbone.stride,
        pool=options.pool,
        output_size=options.output_size,
        widths=options.widths,
        dropout=options.dropout,
        drop_cells=options.drop_cells,
        drop_block=build_drop_block(cfg, backbone.out_channels),
        context=options.context,
        chunk=options.chunk,
    )
    streams = 0 if cfg.model.method == "wsddn" else cfg.model.streams
    num_classes = len(cfg.datasets.classes)
    head = Head(
        box_features.out_features,
        num_classes,
        streams,
        init_std=cfg.model.head_std,
        mil_background=cfg.model.mil_background,
    )
    image_head = ImageHead(backbone.out_channels, num_classes) if cfg.model.image_head else None
    model = WeakRCNN(
        backbone,
        box_features,
        head,
        image_head,
        build_regression(cfg, box_features.out_features),
        pixel_mean=cfg.input.mean,
        pixel_std=cfg.input.std,
        recompute_backbone=cfg.model.backbone.recompute,
    )
    if cfg.channels_last:
        backbone.to(memory_format=torch.channels_last)  # convolutions lay out features as their weights
    if cfg.compile:
        compile_model(model)
    return model


def build_drop_block(cfg: Settings, channels: int) -> ConcreteDropBlock | None:
    """MIST's concrete drop block for pooled features (N, channels, S, S); None: it is disabled."""
    options = cfg.model.drop_block
    if not options.enabled:
        return None
    return ConcreteDropBlock(
        channels,
        share=options.share,
        size=options.size,
        temperature=options.temperature,
        gradient_factor=options.gradient_factor,
        width=options.width,
        norm=options.norm,
        bound=options.bound,
        rescale=options.rescale,
    )


def build_regression(cfg: Settings, in_features: int) -> RegressionBranch | StreamRegression | None:
    """The module that regresses boxes from the features of proposals; None: there is none."""
    options = cfg.model.regression
    if not options.enabled:
        return None
    num_classes = len(cfg.datasets.classes)
    if options.per_stream:
        return StreamRegression(in_features, num_classes, cfg.model.streams)
    return RegressionBranch(
        in_features, num_classes, score_weight=options.score_weight, init_std=cfg.model.head_std
    )


def build_criterion(cfg: Settings) -> Criterion:
    """The losses of MODEL.METHOD, and of the regression branch where there is one."""
    refinement, options = build_refinement(cfg), cfg.model.regression
    regression: RegressionLoss | StreamRegressionLoss | None = None
    if options.enabled and options.per_stream:
        regression = StreamRegressionLoss(options.weight, options.box_reduction)
    elif options.enabled:
        labels = _refinement(cfg, "oicr") if options.labels == "top1" else refinement
        assert labels is not None  # the config rejects regression with WSDDN, which has no clusters
        regression = RegressionLoss(labels, options.weight, options.box_reduction)
    return Criterion(
        refinement,
        mil_reduction=cfg.model.mil_reduction,
        stream_weights=cfg.model.stream_weights,
        regression=regression,
        noise=build_tag_noise(cfg),
    )


def build_tag_noise(cfg: Settings) -> TagNoise | None:
    """How often tags are wrong, DATASETS.MISSING_TAGS and FALSE_TAGS; None: never."""
    missing, false = cfg.datasets.missing_tags, cfg.datasets.false_tags
    return TagNoise(missing, false) if missing or false else None


def build_refinement(cfg: Settings) -> Refinement | None:
    """The pseudo-label rule and the loss of the refinement streams; None for WSDDN, which has none."""
    method, options = cfg.model.method, cfg.clusters
    if method == "wsddn":
        return None
    if method == "pcl":
        chosen = {"graph_iou": options.graph_iou, "max_centers": options.max_centers}
        return _refinement(cfg, "pcl", chosen, loss=cluster_loss)
    if method == "mist":
        if options.suppression == "any":
            rule = partial(suppressed_by_any, top_share=options.top_share, nms_iou=options.nms_iou)
            return _refinement(cfg, rule)
        return _refinement(cfg, "mist", {"top_share": options.top_share, "nms_iou": options.nms_iou})
    return _refinement(cfg, "oicr")


def _refinement(
    cfg: Settings,
    rule: Literal["oicr", "pcl", "mist"] | Rule,
    options: Mapping[str, Any] | None = None,
    loss: Loss = cross_entropy_loss,
) -> Refinement:
    """A refinement whose proposals are assigned to its seeds as CLUSTERS says."""
    return Refinement(
        rule,
        options or {},
        loss,
        member_iou=cfg.clusters.member_iou,
        ignore_iou=cfg.clusters.ignore_iou,
        ignore_cover=cfg.clusters.ignore_cover,
        cover_iou=cfg.clusters.cover_iou,
    )


def build_postprocess(
    cfg: Settings, score_threshold: float | Tensor | None = None
) -> Callable[[Scores], Detections]:
    """From the scores of an image's proposals to its detections; None: those above TEST.SCORE_THRESHOLD."""
    return partial(
        postprocess,
        score_threshold=cfg.test.score_threshold if score_threshold is None else score_threshold,
        nms_threshold=cfg.test.nms,
        max_per_class=cfg.test.max_per_class,
        max_detections=cfg.test.max_detections,
    )
