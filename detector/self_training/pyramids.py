"""Networks with a feature pyramid (Lin et al., arXiv 1612.03144), for Faster R-CNN and FCOS.

Pretrained weights are those of ImageNet classifiers only: a detector pretrained on boxes would not be weakly
supervised.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Literal

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models.detection.backbone_utils import mobilenet_backbone, resnet_fpn_backbone
from torchvision.ops import FeaturePyramidNetwork, FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from detector.modeling.backbones.small import SmallBackbone
from detector.utils.errors import UserError

PyramidName = Literal["resnet50", "mobilenet_v3"]


class TimmPyramid(nn.Module):
    """Stages of stride 4 (or 8) to 32 of a timm network, and a feature pyramid on them.

    :func:`load_timm_weights` loads weights into `body`. Batch norm always uses its running statistics.
    """

    anchors = ((32,), (64,), (128,), (256,), (512,))  # their sides in pixels, of each map, with stride 4

    def __init__(self, name: str, channels: int = 256, *, least_stride: Literal[4, 8] = 4):
        super().__init__()
        from detector.modeling.backbones.timm import create_network  # timm is an optional dependency

        strides = create_network(name, features_only=True).feature_info.reduction()
        if any(strides.count(stride) != 1 for stride in (4, 8, 16, 32)):
            raise UserError(f"{name} has stages of stride {strides}, expected 4, 8, 16 and 32 among them")
        indices = [index for index, stride in enumerate(strides) if least_stride <= stride <= 32]
        self.strides = tuple(stride for stride in (4, 8, 16, 32, 64) if stride >= least_stride)
        self.body = create_network(name, features_only=True, out_indices=indices)
        self.pyramid = FeaturePyramidNetwork(
            self.body.feature_info.channels(), channels, extra_blocks=LastLevelMaxPool()
        )
        self.out_channels = channels

    def train(self, mode: bool = True) -> "TimmPyramid":
        super().train(mode)
        for module in self.body.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return self.pyramid(OrderedDict((str(i), feature) for i, feature in enumerate(self.body(images))))


class SmallPyramid(nn.Module):
    """Stages of stride 4 and 8 of :class:`SmallBackbone`, and a feature pyramid on them."""

    anchors = ((16, 24), (32, 48), (64, 96))
    strides = 4, 8, 16

    def __init__(self, channels: int = 64):
        super().__init__()
        self.body = SmallBackbone()
        self.pyramid = FeaturePyramidNetwork(
            self.body.channels[1:], channels, extra_blocks=LastLevelMaxPool()
        )
        self.out_channels = channels

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        features, maps = images, OrderedDict()
        for index, stage in enumerate(self.body.stages):
            features = stage(features)
            if index > 0:  # from stride 4 on
                maps[str(index - 1)] = features
        return self.pyramid(maps)


def torchvision_pyramid(name: PyramidName, *, pretrained: bool, least_stride: Literal[4, 8] = 4) -> nn.Module:
    """ResNet-50 or MobileNetV3-Large with a feature pyramid, with random weights.

    Args:
        least_stride: of the maps of ResNet-50; those of MobileNetV3 begin with 32.
        pretrained: for :func:`load_torchvision_weights`: the first stages and the batch norms are frozen.
            Otherwise all of it is trained.
    """
    norm_layer = FrozenBatchNorm2d if pretrained else nn.BatchNorm2d
    if name == "resnet50":
        layers = 3 if pretrained else 5
        stages = [1, 2, 3, 4] if least_stride == 4 else [2, 3, 4]
        backbone = resnet_fpn_backbone(
            backbone_name=name,
            weights=None,
            norm_layer=norm_layer,
            trainable_layers=layers,
            returned_layers=stages,
        )
        backbone.anchors = TimmPyramid.anchors
        backbone.strides = (4, 8, 16, 32, 64) if least_stride == 4 else (8, 16, 32, 64)
        return backbone
    backbone = mobilenet_backbone(
        backbone_name="mobilenet_v3_large",
        weights=None,
        fpn=True,
        norm_layer=norm_layer,
        trainable_layers=3 if pretrained else 6,
    )
    backbone.anchors = ((32, 64, 128, 256, 512),) * 3  # as torchvision's
    backbone.strides = 32, 32, 64
    return backbone


def load_torchvision_weights(backbone: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load the state dict of torchvision's ImageNet classifier of the same name.

    Raises:
        UserError: the weights are of another network.
    """
    renamed = {key.removeprefix("features."): tensor for key, tensor in weights.items()}
    body = backbone.get_submodule("body")
    missing = [key for key in body.state_dict() if key not in renamed]
    if missing:
        raise UserError(f"weights hold no {missing[0]}, which the network has")
    body.load_state_dict({key: renamed[key] for key in body.state_dict()})
