"""VGG16 as weakly supervised detectors use it: pool4 gone, conv5 dilated, stride 8."""

from collections.abc import Mapping

from torch import Tensor, nn
from torchvision.models import vgg16

# Positions in torchvision's vgg16().features.
POOL4, POOL5 = 23, 30
CONV5 = (24, 26, 28)
STAGE_ENDS = (5, 10, 17)  # first layer after conv1, conv2, conv3


class VGG16(nn.Module):
    """Images (B, 3, H, W) to features (B, 512, H / 8, W / 8) (arXiv 1409.1556; dilation: arXiv 1511.07122).

    Args:
        frozen_stages: how many of conv1 to conv3 keep their weights (2 in the published recipes).
    """

    out_channels = 512
    stride = 8

    def __init__(self, *, frozen_stages: int = 2) -> None:
        super().__init__()
        # The names of torchvision's layers are kept, so that its state dict loads: pool4 becomes an identity.
        self.features = vgg16(weights=None).features[:POOL5]
        self.features[POOL4] = nn.Identity()
        for position in CONV5:
            self.features[position].dilation = (2, 2)
            self.features[position].padding = (2, 2)
        if frozen_stages:
            self.features[: STAGE_ENDS[frozen_stages - 1]].requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        return self.features(images)


def load_vgg16_weights(backbone: VGG16, box_layers: nn.Sequential, weights: Mapping[str, Tensor]) -> None:
    """Load torchvision's ImageNet state dict: convolutions to the backbone, fc6 and fc7 to the box layers.

    Raises:
        RuntimeError: a weight is missing or of another shape (names it).
    """
    convolutions = {k: v for k, v in weights.items() if k.startswith("features.")}
    backbone.load_state_dict(convolutions)
    classifier = {k.removeprefix("classifier."): v for k, v in weights.items() if k.startswith("classifier.")}
    classifier = {k: v for k, v in classifier.items() if not k.startswith("6.")}  # the ImageNet classes
    box_layers.load_state_dict(classifier)
