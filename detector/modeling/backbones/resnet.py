"""ResNet with dilated last stages and frozen batch norm."""

from collections.abc import Mapping
from typing import Literal

import torchvision
from torch import Tensor, nn
from torchvision.ops import FrozenBatchNorm2d

from detector.modeling.backbones import Backbone


class ResNet(Backbone):
    """Images (B, 3, H, W) to C5 (B, D, H / stride, W / stride) (He et al., arXiv 1512.03385).

    Stages without their stride are dilated instead (arXiv 1511.07122): every second feature of every second
    row is then equal to that of the strided network. Batch norm is a fixed scale and shift, also in training:
    the batches of a detector are too small for its statistics.

    Args:
        name: "resnet18", "resnet34" or "resnet50".
        stride: pixels per feature: 32 as published; 16 dilates C5, 8 also C4.
        frozen_stages: number of stages that are not trained, of 5; the stem is the first, C2 the second.
    """

    def __init__(
        self,
        name: Literal["resnet18", "resnet34", "resnet50"],
        *,
        stride: int = 16,
        frozen_stages: int = 2,
    ) -> None:
        super().__init__()
        if stride not in (8, 16, 32):
            raise ValueError(f"stride is {stride}, expected 8, 16 or 32")
        network = torchvision.models.get_model(name, weights=None, norm_layer=FrozenBatchNorm2d)
        self.out_channels = network.fc.in_features
        self.stride = stride
        # Layers have torchvision's names, so that its state dict can be loaded.
        self.conv1, self.bn1, self.relu = network.conv1, network.bn1, network.relu
        self.maxpool = network.maxpool
        self.layer1, self.layer2 = network.layer1, network.layer2
        self.layer3, self.layer4 = network.layer3, network.layer4
        if stride <= 16:
            _dilate(self.layer4, 16 // stride)
        if stride == 8:
            _dilate(self.layer3, 1)
        for stage in (self.conv1, self.layer1, self.layer2, self.layer3, self.layer4)[:frozen_stages]:
            stage.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))  # (B, 64, H / 4, W / 4)
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))


def _dilate(stage: nn.Sequential, before: int) -> None:
    """Replace the stride of 2 of a stage by dilation; `before` is the dilation of its input."""
    dilation = before  # of the convolution with the stride; it doubles for those after it
    for convolution in (module for module in stage.modules() if isinstance(module, nn.Conv2d)):
        if convolution.kernel_size == (3, 3):
            convolution.dilation = convolution.padding = (dilation, dilation)
            dilation = 2 * before
        convolution.stride = (1, 1)


def load_resnet_weights(backbone: ResNet, weights: Mapping[str, Tensor]) -> None:
    """Load torchvision's ImageNet state dict without its classifier.

    Raises:
        RuntimeError: a weight is missing or has another shape; names it.
    """
    backbone.load_state_dict({k: v for k, v in weights.items() if not k.startswith("fc.")})
