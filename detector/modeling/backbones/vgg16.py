"""VGG16, optionally without pool4 and with dilated conv5, as weakly supervised detectors use it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchvision.models.vgg import cfgs, make_layers

from detector.modeling.backbones import Backbone

# Positions in torchvision's vgg16().features.
POOL4, POOL5 = 23, 30
CONV5 = (24, 26, 28)
STAGE_ENDS = (5, 10, 17)  # first layer after conv1, conv2, conv3


class VGG16(Backbone):
    """Images (B, 3, H, W) to features (B, 512, H / stride, W / stride) (arXiv 1409.1556).

    Args:
        stride: pixels per feature: 16, or 8 without pool4 and with conv5 dilated by 2, which keeps the
            receptive field (arXiv 1511.07122).
        frozen_stages: how many of conv1 to conv3 are not trained (2 in the published recipes).
        image_by_image: process the images of a batch one by one. In float32 without TF32, cuDNN 9 takes 150
            times as long for a layer of conv3 with two images as with one (docs/performance.md).
        last_relu: whether a ReLU follows the last convolution.
    """

    out_channels = 512

    def __init__(
        self,
        *,
        stride: int = 8,
        frozen_stages: int = 2,
        image_by_image: bool = False,
        last_relu: bool = True,
    ) -> None:
        super().__init__()
        self.stride, self.image_by_image = stride, image_by_image
        # Layers have torchvision's names, so that its state dict can be loaded: pool4 becomes an identity.
        self.features = make_layers(cfgs["D"], batch_norm=False)[:POOL5]
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # it has a bias
        if stride == 8:
            self.features[POOL4] = nn.Identity()
            for position in CONV5:
                self.features[position].dilation = (2, 2)
                self.features[position].padding = (2, 2)
        elif stride != 16:
            raise ValueError(f"stride is {stride}, expected 8 or 16")
        if not last_relu:
            self.features[POOL5 - 1] = nn.Identity()
        if frozen_stages:
            self.features[: STAGE_ENDS[frozen_stages - 1]].requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        if self.image_by_image:
            return torch.cat([self.features(image) for image in images.split(1)])
        return self.features(images)


def load_vgg16_weights(backbone: VGG16, box_layers: nn.Sequential, weights: Mapping[str, Tensor]) -> None:
    """Load torchvision's ImageNet state dict: convolutions to the backbone, fc6 and fc7 to the box layers.

    Raises:
        RuntimeError: a weight is missing or has another shape; names it.
    """
    convolutions = {k: v for k, v in weights.items() if k.startswith("features.")}
    backbone.load_state_dict(convolutions)
    classifier = {k.removeprefix("classifier."): v for k, v in weights.items() if k.startswith("classifier.")}
    classifier = {k: v for k, v in classifier.items() if not k.startswith("6.")}  # the ImageNet classes
    box_layers.load_state_dict(classifier)
