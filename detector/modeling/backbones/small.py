"""A small residual network to train from random weights on a few hundred images and two CPU cores."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from detector.modeling.backbones import Backbone


class SmallBackbone(Backbone):
    """Images (B, 3, H, W) to features (B, channels[-1], H / stride, W / stride).

    Each entry of `channels` is a stage: a strided convolution, which halves the resolution, and a residual
    block. Group norm is used since it does not depend on the batch.
    """

    def __init__(self, channels: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        widths = pairwise((3, *channels))
        self.stages = nn.Sequential(*(nn.Sequential(_conv(i, o, 2), Residual(o)) for i, o in widths))
        self.channels, self.out_channels = tuple(channels), channels[-1]
        self.stride = 2 ** len(channels)

    def forward(self, images: Tensor) -> Tensor:
        return self.stages(images)


class Residual(nn.Module):
    """x + f(x), where f is two 3 x 3 convolutions; keeps the shape."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_conv(channels, channels), _conv(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


def _conv(in_channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(8, out_channels), nn.ReLU(inplace=True))
