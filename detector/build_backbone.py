"""From a config to the backbone: one table of the networks that MODEL.BACKBONE.NAME can name."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten
from typing import Any, NamedTuple

from torch import Tensor, nn
from yacs.config import CfgNode

from detector.modeling.backbones import Backbone
from detector.modeling.backbones.pyramids import (
    SmallPyramid,
    TimmPyramid,
    load_torchvision_weights,
    torchvision_pyramid,
)
from detector.modeling.backbones.resnet import ResNet, load_resnet_weights
from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.backbones.vgg16 import VGG16, load_vgg16_weights
from detector.modeling.weights import Preprocessing, convert_weights, load_tensors, load_weights
from detector.utils.errors import ConfigError, MissingPackage, UserError


class Entry(NamedTuple):
    """A network that a config can name.

    Attributes:
        create: builds it with random weights.
        strides: that it can have; empty where the network itself has to be asked.
        stages: how many of its stages can be frozen.
        load: puts the weights of an ImageNet classifier into a model, of which `backbone` is this network;
            None: there are none.
    """

    create: Callable[[CfgNode], Backbone]
    strides: tuple[int, ...]
    stages: int
    load: Callable[[Any, Mapping[str, Tensor]], None] | None


def _create_vgg16(cfg: CfgNode) -> Backbone:
    options = cfg.MODEL.BACKBONE
    return VGG16(
        stride=options.STRIDE,
        frozen_stages=options.FROZEN_STAGES,
        image_by_image=cfg.PRECISION == "float32",
        last_relu=options.LAST_RELU,
    )


def _create_resnet(cfg: CfgNode) -> Backbone:
    options = cfg.MODEL.BACKBONE
    return ResNet(options.NAME, stride=options.STRIDE, frozen_stages=options.FROZEN_STAGES)


def _create_timm(cfg: CfgNode) -> Backbone:
    try:  # timm is an optional dependency
        from detector.modeling.backbones.timm import TimmBackbone
    except ImportError:
        raise MissingPackage(
            "MODEL.BACKBONE.NAME is 'timm', which is not installed: pip install timm"
        ) from None
    options = cfg.MODEL.BACKBONE
    try:
        return TimmBackbone(options.TIMM_NAME, stride=options.STRIDE, frozen_stages=options.FROZEN_STAGES)
    except UserError as error:
        raise ConfigError(f"MODEL.BACKBONE does not fit: {error}") from error


def _load_timm(model: Any, tensors: Mapping[str, Tensor]) -> None:
    from detector.modeling.backbones.timm import load_timm_weights

    load_timm_weights(model.backbone, tensors)


_RESNET = Entry(
    _create_resnet,
    strides=(8, 16, 32),
    stages=5,
    load=lambda model, tensors: load_resnet_weights(model.backbone, tensors),
)
BACKBONES = {
    "small": Entry(lambda cfg: SmallBackbone(), strides=(8,), stages=0, load=None),
    "vgg16": Entry(
        _create_vgg16,
        strides=(8, 16),
        stages=3,
        load=lambda model, tensors: load_vgg16_weights(model.backbone, model.box_features.layers, tensors),
    ),
    "resnet18": _RESNET,
    "resnet34": _RESNET,
    "resnet50": _RESNET,
    "timm": Entry(_create_timm, strides=(), stages=0, load=_load_timm),
}


def build_backbone(cfg: CfgNode) -> Backbone:
    """The network of MODEL.BACKBONE with random weights.

    Raises:
        ConfigError: it cannot have that stride, or so many frozen stages.
    """
    options = cfg.MODEL.BACKBONE
    entry = BACKBONES[options.NAME]
    if entry.strides:
        _require_one_of(options, "STRIDE", entry.strides)
        _require_one_of(options, "FROZEN_STAGES", range(entry.stages + 1))
    return entry.create(cfg)


def _require_one_of(options: CfgNode, key: str, allowed: Sequence[int]) -> None:
    if options[key] not in allowed:
        raise ConfigError(
            f"MODEL.BACKBONE.{key} is {options[key]}, expected {' or '.join(map(str, allowed))}, "
            f"because MODEL.BACKBONE.NAME is {options.NAME!r}"
        )


def build_pyramid(cfg: CfgNode, pretrained: bool) -> nn.Module:
    """The network of SELF_TRAIN.BACKBONE; of torchvision's, with SELF_TRAIN.WEIGHTS if `pretrained`."""
    options = cfg.SELF_TRAIN
    if options.BACKBONE == "small":
        return SmallPyramid(options.CHANNELS)
    if options.BACKBONE == "timm":
        try:
            return TimmPyramid(cfg.MODEL.BACKBONE.TIMM_NAME, options.CHANNELS)
        except ImportError:
            raise MissingPackage(
                "SELF_TRAIN.BACKBONE is 'timm', which is not installed: pip install timm"
            ) from None
        except UserError as error:
            raise ConfigError(f"MODEL.BACKBONE.TIMM_NAME does not fit: {error}") from error
    pyramid = torchvision_pyramid(options.BACKBONE, pretrained=bool(options.WEIGHTS))
    if pretrained and options.WEIGHTS:
        try:
            load_torchvision_weights(pyramid, convert_weights(load_tensors(options.WEIGHTS)).tensors)
        except (RuntimeError, UserError) as error:
            reason = shorten(str(error), 300)
            raise ConfigError(
                f"SELF_TRAIN.WEIGHTS is {options.WEIGHTS!r}, which does not fit: {reason}"
            ) from error
    return pyramid


def load_pretrained(cfg: CfgNode, model: nn.Module, name: str | None = None) -> None:
    """Load MODEL.WEIGHTS, those of an ImageNet classifier, into `model.backbone`; nothing where it is "".

    Args:
        name: of the network in `BACKBONES`; None: MODEL.BACKBONE.NAME.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: they are of another network, or want another preprocessing than INPUT.MEAN and INPUT.STD.
    """
    source, name = cfg.MODEL.WEIGHTS, name or cfg.MODEL.BACKBONE.NAME
    if source == "":
        return
    load = BACKBONES[name].load
    if load is None:
        raise ConfigError(f"MODEL.WEIGHTS is {source!r}, expected '': the backbone {name!r} has none")
    try:
        weights = load_weights(source)
        configured = Preprocessing(cfg.INPUT.MEAN, cfg.INPUT.STD)
        if not weights.preprocessing.is_close(configured):
            raise ConfigError(f"they expect {weights.preprocessing}, but INPUT has {configured}")
        load(model, weights.tensors)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"MODEL.WEIGHTS: {error}; download it, or use ''") from None
    except (RuntimeError, UserError) as error:
        reason = shorten(str(error), 300)  # torch lists every key on lines of their own
        raise ConfigError(f"MODEL.WEIGHTS is {source!r}, which cannot be used: {reason}") from error
