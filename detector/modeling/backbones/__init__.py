"""Networks that a detector can be built on."""

from torch import nn


class Backbone(nn.Module):
    """Maps images (B, 3, H, W) to features (B, out_channels, H / stride, W / stride)."""

    out_channels: int
    stride: int
