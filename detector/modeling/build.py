"""From the settings to the weak detector, its criterion and its postprocessing."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from detector.config import Settings
from detector.config.settings import ClusterSettings, ModelSettings, TestSettings
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
from detector.modeling.weak_rcnn import WeakRCNN, compile_model
from detector.structures import Detections, Scores

WETECTRON = "mist_wetectron"  # MODEL.METHOD of the code of MIST's authors, github.com/NVlabs/wetectron
_WETECTRON_DROP_BLOCK: dict[str, Any] = {
    "gradient_factor": 0.01,
    "width": 512,
    "norm": "batch",
    "bound": "scale",
    "rescale": "batch",
}


def build_model(cfg: Settings) -> WeakRCNN:
    """The detector with random weights."""
    backbone = build_backbone(
        cfg.model.backbone, image_by_image=cfg.precision == "float32", last_relu=cfg.model.method != WETECTRON
    )
    options = cfg.model.box_features
    box_features = BoxFeatures(
        backbone.out_channels,
        backbone.stride,
        pool=options.pool,
        output_size=options.output_size,
        widths=options.widths,
        dropout=options.dropout,
        drop_cells=options.drop_cells,
        drop_block=build_drop_block(cfg.model, backbone.out_channels),
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
        build_regression(cfg.model, num_classes, box_features.out_features),
        pixel_mean=cfg.input.mean,
        pixel_std=cfg.input.std,
        recompute_backbone=cfg.model.backbone.recompute,
    )
    if cfg.channels_last:
        backbone.to(memory_format=torch.channels_last)  # convolutions lay out features as their weights
    if cfg.compile:
        compile_model(model)
    return model


def build_drop_block(model: ModelSettings, channels: int) -> ConcreteDropBlock | None:
    """MIST's concrete drop block for pooled features (N, channels, S, S); None: it is disabled."""
    options = model.drop_block
    if not options.enabled:
        return None
    return ConcreteDropBlock(
        channels,
        share=options.share,
        size=options.size,
        temperature=options.temperature,
        **(_WETECTRON_DROP_BLOCK if model.method == WETECTRON else {}),
    )


def build_regression(
    model: ModelSettings, num_classes: int, in_features: int
) -> RegressionBranch | StreamRegression | None:
    """The module that regresses boxes from the features of proposals; None: there is none."""
    options = model.regression
    if not options.enabled:
        return None
    if model.method == WETECTRON:
        return StreamRegression(in_features, num_classes, model.streams)
    return RegressionBranch(
        in_features, num_classes, score_weight=options.score_weight, init_std=model.head_std
    )


def build_criterion(cfg: Settings) -> Criterion:
    """The losses of MODEL.METHOD, and of the regression branch where there is one."""
    refinement, options = build_refinement(cfg.model.method, cfg.clusters), cfg.model.regression
    regression: RegressionLoss | StreamRegressionLoss | None = None
    if options.enabled and cfg.model.method == WETECTRON:
        regression = StreamRegressionLoss(options.weight, "all")
    elif options.enabled:
        labels = _refinement(cfg.clusters, "oicr") if options.labels == "top1" else refinement
        assert labels is not None  # the config rejects regression with WSDDN, which has no clusters
        regression = RegressionLoss(labels, options.weight)
    return Criterion(
        refinement,
        mil_reduction=cfg.model.mil_reduction,
        stream_weights=cfg.model.stream_weights,
        regression=regression,
    )


def build_refinement(method: str, options: ClusterSettings) -> Refinement | None:
    """The pseudo-label rule and the loss of the refinement streams; None for WSDDN, which has none."""
    if method == "wsddn":
        return None
    if method == "pcl":
        chosen = {"graph_iou": options.graph_iou, "max_centers": options.max_centers}
        return _refinement(options, "pcl", chosen, loss=cluster_loss)
    if method == WETECTRON:
        rule = partial(suppressed_by_any, top_share=options.top_share, nms_iou=options.nms_iou)
        return _refinement(options, rule)
    if method == "mist":
        return _refinement(options, "mist", {"top_share": options.top_share, "nms_iou": options.nms_iou})
    return _refinement(options, "oicr")


def _refinement(
    clusters: ClusterSettings,
    rule: Literal["oicr", "pcl", "mist"] | Rule,
    options: Mapping[str, Any] | None = None,
    loss: Loss = cross_entropy_loss,
) -> Refinement:
    """A refinement whose proposals are assigned to its seeds as CLUSTERS says."""
    return Refinement(
        rule,
        options or {},
        loss,
        member_iou=clusters.member_iou,
        ignore_iou=clusters.ignore_iou,
        ignore_cover=clusters.ignore_cover,
        cover_iou=clusters.cover_iou,
    )


def build_postprocess(
    test: TestSettings, score_threshold: float | Tensor | None = None
) -> Callable[[Scores], Detections]:
    """From the scores of an image's proposals to its detections; None: those above TEST.SCORE_THRESHOLD."""
    return partial(
        postprocess,
        score_threshold=test.score_threshold if score_threshold is None else score_threshold,
        nms_threshold=test.nms,
        max_per_class=test.max_per_class,
        max_detections=test.max_detections,
    )
