"""Selection of the proposals that the network scores."""

import torch
from torch import Tensor


def clean_proposals(boxes: Tensor, *, min_size: float, stride: float, max_count: int) -> Tensor:
    """The boxes (R', 4) of (R, 4) to score, in their order, with R' <= max_count.

    Boxes whose width or height is at most `min_size` pixels are dropped, then those that coincide with an
    earlier box when rounded to the feature grid of `stride` pixels, then all after the first `max_count`.
    """
    return boxes[clean_rows(boxes, min_size=min_size, stride=stride, max_count=max_count)]


def clean_rows(boxes: Tensor, *, min_size: float, stride: float, max_count: int) -> Tensor:
    """The rows (R',) int64 of the boxes that :func:`clean_proposals` keeps."""
    sides = boxes[:, 2:] - boxes[:, :2]
    rows = (sides > min_size).all(dim=1).nonzero()[:, 0]
    cells = (boxes[rows] / stride).round()
    groups, group = torch.unique(cells, dim=0, return_inverse=True)  # (G, 4), (R,)
    order = torch.arange(len(rows), device=boxes.device)
    first = order.new_full((len(groups),), len(rows)).scatter_reduce(0, group, order, "amin")  # (G,)
    return rows[first.sort().values[:max_count]]
