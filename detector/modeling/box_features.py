"""From a feature map and boxes to one feature vector a proposal."""

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from detector.layers import RoIAlign, RoIPool


class BoxFeatures(nn.Module):
    """RoI pooling and fully connected layers: (B, D, H, W) and rois (sum R, 5) to (sum R, widths[-1])."""

    def __init__(
        self,
        in_channels: int,
        stride: int,
        *,
        pool: Literal["roi_pool", "roi_align"] = "roi_pool",
        output_size: int = 7,
        widths: Sequence[int] = (4096, 4096),
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if pool == "roi_pool":
            self.pool = RoIPool(output_size, 1 / stride)
        elif pool == "roi_align":
            self.pool = RoIAlign(output_size, 1 / stride, sampling_ratio=2, aligned=True)
        else:
            raise ValueError(f"pool is {pool!r}, expected 'roi_pool' or 'roi_align'")
        layers: list[nn.Module] = []
        features = in_channels * output_size**2
        for width in widths:
            layers += [nn.Linear(features, width), nn.ReLU(inplace=True), nn.Dropout(dropout)]
            features = width
        self.layers = nn.Sequential(*layers)
        self.out_features = features

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        pooled = self.pool(features, rois)  # (sum R, D, size, size)
        return self.layers(pooled.flatten(start_dim=1))  # (sum R, F)
