"""From a config to the backbone, and to the weights that it starts from."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import shorten
from typing import Any

from torch import Tensor, nn

from detector.config.settings import BackboneSettings, InputSettings, ModelSettings
from detector.modeling.backbones import Backbone
from detector.modeling.backbones.resnet import ResNet, load_resnet_weights
from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.backbones.vgg16 import VGG16, load_vgg16_weights
from detector.modeling.weights import Preprocessing, load_weights
from detector.utils.errors import ConfigError, MissingPackage, UserError

# The strides of a network, and how many of its stages can be frozen; TimmBackbone checks those of timm.
LIMITS: dict[str, tuple[tuple[int, ...], int]] = {
    "small": ((8,), 0),
    "vgg16": ((8, 16), 3),
    "resnet18": ((8, 16, 32), 5),
    "resnet34": ((8, 16, 32), 5),
    "resnet50": ((8, 16, 32), 5),
}


def build_backbone(
    options: BackboneSettings, *, image_by_image: bool = False, last_relu: bool = True
) -> Backbone:
    """The network of MODEL.BACKBONE with random weights.

    Args:
        image_by_image, last_relu: of :class:`VGG16`.

    Raises:
        ConfigError: it cannot have that stride, or so many frozen stages.
        MissingPackage: it is of timm, which is not installed.
    """
    name, stride, frozen = options.name, options.stride, options.frozen_stages
    if name == "timm":
        with timm_errors("MODEL.BACKBONE.NAME"):
            from detector.modeling.backbones.timm import TimmBackbone

            return TimmBackbone(options.timm_name, stride=stride, frozen_stages=frozen)
    strides, stages = LIMITS[name]
    _require_one_of(name, "STRIDE", stride, strides)
    _require_one_of(name, "FROZEN_STAGES", frozen, range(stages + 1))
    if name == "small":
        return SmallBackbone()
    if name == "vgg16":
        return VGG16(
            stride=stride,
            frozen_stages=frozen,
            image_by_image=image_by_image,
            last_relu=last_relu,
        )
    return ResNet(name, stride=stride, frozen_stages=frozen)


@contextmanager
def timm_errors(key: str) -> Iterator[None]:
    """Errors of timm, an optional dependency, that name the key and what is wrong with it."""
    try:
        yield
    except ImportError:
        raise MissingPackage(f"{key} is 'timm', which is not installed: pip install timm") from None
    except UserError as error:
        raise ConfigError(f"MODEL.BACKBONE does not fit: {error}") from error


def _require_one_of(name: str, key: str, value: int, allowed: Sequence[int]) -> None:
    if value not in allowed:
        raise ConfigError(
            f"MODEL.BACKBONE.{key} is {value}, expected {' or '.join(map(str, allowed))}, "
            f"because MODEL.BACKBONE.NAME is {name!r}"
        )


def load_pretrained(
    options: ModelSettings, inputs: InputSettings, model: nn.Module, name: str | None = None
) -> None:
    """Load MODEL.WEIGHTS, those of an ImageNet classifier, into `model.backbone`; nothing where it is "".

    Args:
        name: of the network, as MODEL.BACKBONE.NAME has it; None: that one.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: they are of another network, or want another preprocessing than INPUT.MEAN and INPUT.STD.
    """
    source, name = options.weights, name or options.backbone.name
    if source == "":
        return
    if name == "small":
        raise ConfigError(f"MODEL.WEIGHTS is {source!r}, expected '': the backbone {name!r} has none")
    try:
        weights = load_weights(source)
        configured = Preprocessing(inputs.mean, inputs.std)
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
