"""From a feature map and boxes to one feature vector per proposal."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from detector.layers import RoIAlign, RoIPool
from detector.utils.errors import UserError


class BoxFeatures(nn.Module):
    """RoI pooling and fully connected layers: (B, D, H, W) and rois (sum R, 5) to (sum R, widths[-1]).

    Args:
        output_size: side of the pooled grid, in cells.
        widths: units of the fully connected layers.
        dropout: of those units.
        drop_cells: share of the grid's cells that training drops: without the most discriminative part of an
            object, the rest must be learned, too.
        drop_block: module that drops cells of (N, D, S, S), such as :class:`ConcreteDropBlock`.
        context: width and height of the region of :meth:`context_features` relative to the proposal; 0: none.
        chunk: number of proposals that are pooled at a time; 0: all. Features of a chunk are recomputed in
            the backward pass, so that memory is needed for only one. The random numbers of dropout differ.
    """

    def __init__(
        self,
        in_channels: int,
        stride: int,
        *,
        pool: Literal["roi_pool", "roi_align"] = "roi_pool",
        output_size: int = 7,
        widths: Sequence[int] = (4096, 4096),
        dropout: float = 0.5,
        drop_cells: float = 0.0,
        drop_block: nn.Module | None = None,
        context: float = 0.0,
        chunk: int = 0,
    ) -> None:
        super().__init__()
        if pool == "roi_pool":
            self.pool: nn.Module = RoIPool(output_size, 1 / stride)
        elif pool == "roi_align":
            self.pool = RoIAlign(output_size, 1 / stride, sampling_ratio=2, aligned=True)
        else:
            raise ValueError(f"pool is {pool!r}, expected 'roi_pool' or 'roi_align'")
        self.drop_cells = DropCells(drop_cells)
        self.drop_block = drop_block
        layers: list[nn.Module] = []
        features = in_channels * output_size**2
        for width in widths:
            layers += [nn.Linear(features, width), nn.ReLU(inplace=True), nn.Dropout(dropout)]
            features = width
        self.layers = nn.Sequential(*layers)
        self.out_features = features
        self.context = context
        if context:
            self.register_buffer("ring", context_ring(output_size, context), persistent=False)
        self.chunk = chunk

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        return self._in_chunks(self._box_features, features, rois)

    def context_features(self, features: Tensor, rois: Tensor) -> Tensor | None:
        """Features (sum R, widths[-1]) of the ring around each proposal; None: no context.

        They are computed by the same layers; no cells are dropped.
        """
        if not self.context:
            return None
        return self._in_chunks(self._ring_features, features, enlarge_rois(rois, self.context))

    def _in_chunks(
        self, compute: Callable[[Tensor, Tensor], Tensor], features: Tensor, rois: Tensor
    ) -> Tensor:
        # Pooling reads one channel at a time, and pretrained weights expect pooled values by channel:
        # converting channels_last features here is cheaper than converting the pooled ones.
        features = features.contiguous()
        if self.chunk == 0 or len(rois) <= self.chunk:
            return compute(features, rois)
        parts = rois.split(self.chunk)
        if not torch.is_grad_enabled():
            return torch.cat([compute(features, part) for part in parts])
        return torch.cat([checkpoint(compute, features, part, use_reentrant=False) for part in parts])

    def _box_features(self, features: Tensor, rois: Tensor) -> Tensor:
        pooled = self.drop_cells(self.pool(features, rois))  # (sum R, D, size, size)
        if self.drop_block is not None:
            pooled = self.drop_block(pooled)
        return self.layers(pooled.flatten(start_dim=1))  # (sum R, F)

    def _ring_features(self, features: Tensor, rois: Tensor) -> Tensor:
        pooled = self.pool(features, rois)  # (sum R, D, size, size)
        return self.layers((pooled * self.ring.to(pooled.dtype)).flatten(start_dim=1))  # (sum R, F)


class DropCells(nn.Module):
    """Drops cells of the grid (N, D, S, S) in training, with all their channels; keeps the mean.

    DropBlock (arXiv 1810.12890) with blocks of one cell; ConcreteDropBlock learns which cells to drop.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        kept = torch.empty_like(x[:, :1]).bernoulli_(1 - self.share)  # (N, 1, S, S)
        return x * (kept / (1 - self.share))

    def extra_repr(self) -> str:
        return f"share={self.share}"


def enlarge_rois(rois: Tensor, scale: float) -> Tensor:
    """RoIs (R, 5) `scale` times as wide and high around the same centers; they may leave the image."""
    first, last = rois[:, 1:3], rois[:, 3:]
    centers, halves = (first + last) / 2, (last - first) * (scale / 2)
    return torch.cat([rois[:, :1], centers - halves, centers + halves], dim=1)


def context_ring(size: int, scale: float) -> Tensor:
    """Mask (size, size) of an enlarged RoI's grid: 1 where the center of a cell is outside the RoI, else 0.

    Raises:
        UserError: all cells are inside.
    """
    inside = ((torch.arange(size) + 0.5) * 2 / size - 1).abs() < 1 / scale
    outside = ~(inside[:, None] & inside)
    if not outside.any():
        least = size / (size - 1) if size > 1 else float("inf")
        raise UserError(
            f"context is {scale}, expected at least {least:.3g}: otherwise no cell of a {size} x {size} grid "
            "lies outside the proposal"
        )
    return outside.float()
