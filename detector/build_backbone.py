"""From a config to the backbone, and to the weights that it starts from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

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

# The strides of a network, and how many of its stages can be frozen; TimmBackbone checks those of timm.
LIMITS: dict[str, tuple[tuple[int, ...], int]] = {
    "small": ((8,), 0),
    "vgg16": ((8, 16), 3),
    "resnet18": ((8, 16, 32), 5),
    "resnet34": ((8, 16, 32), 5),
    "resnet50": ((8, 16, 32), 5),
}


def build_backbone(cfg: CfgNode) -> Backbone:
    """The network of MODEL.BACKBONE with random weights.

    Raises:
        ConfigError: it cannot have that stride, or so many frozen stages.
        MissingPackage: it is of timm, which is not installed.
    """
    options = cfg.MODEL.BACKBONE
    name, shared = options.NAME, {"stride": options.STRIDE, "frozen_stages": options.FROZEN_STAGES}
    if name == "timm":
        with _timm_of("MODEL.BACKBONE.NAME"):
            from detector.modeling.backbones.timm import TimmBackbone

            return TimmBackbone(options.TIMM_NAME, **shared)
    strides, stages = LIMITS[name]
    _require_one_of(options, "STRIDE", strides)
    _require_one_of(options, "FROZEN_STAGES", range(stages + 1))
    if name == "small":
        return SmallBackbone()
    if name == "vgg16":
        return VGG16(**shared, image_by_image=cfg.PRECISION == "float32", last_relu=options.LAST_RELU)
    return ResNet(name, **shared)


@contextmanager
def _timm_of(key: str) -> Iterator[None]:
    """Errors of timm, an optional dependency, that name the key and what is wrong with it."""
    try:
        yield
    except ImportError:
        raise MissingPackage(f"{key} is 'timm', which is not installed: pip install timm") from None
    except UserError as error:
        raise ConfigError(f"MODEL.BACKBONE does not fit: {error}") from error


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
        with _timm_of("SELF_TRAIN.BACKBONE"):
            return TimmPyramid(cfg.MODEL.BACKBONE.TIMM_NAME, options.CHANNELS)
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
        name: of the network, as MODEL.BACKBONE.NAME has it; None: that one.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: they are of another network, or want another preprocessing than INPUT.MEAN and INPUT.STD.
    """
    source, name = cfg.MODEL.WEIGHTS, name or cfg.MODEL.BACKBONE.NAME
    if source == "":
        return
    if name == "small":
        raise ConfigError(f"MODEL.WEIGHTS is {source!r}, expected '': the backbone {name!r} has none")
    try:
        weights = load_weights(source)
        configured = Preprocessing(cfg.INPUT.MEAN, cfg.INPUT.STD)
        if not weights.preprocessing.is_close(configured):
            raise ConfigError(f"they expect {weights.preprocessing}, but INPUT has {configured}")
        _load(name, model, weights.tensors)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"MODEL.WEIGHTS: {error}; download it, or use ''") from None
    except (RuntimeError, UserError) as error:
        reason = shorten(str(error), 300)  # torch lists every key on lines of their own
        raise ConfigError(f"MODEL.WEIGHTS is {source!r}, which cannot be used: {reason}") from error


def _load(name: str, model: Any, tensors: Mapping[str, Tensor]) -> None:
    if name == "vgg16":
        load_vgg16_weights(model.backbone, model.box_features.layers, tensors)
    elif name == "timm":
        from detector.modeling.backbones.timm import load_timm_weights

        load_timm_weights(model.backbone, tensors)
    else:
        load_resnet_weights(model.backbone, tensors)
