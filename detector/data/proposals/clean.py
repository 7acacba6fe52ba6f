"""Selection of the proposals that the network scores."""

import torch
from torch import Tensor


def clean_proposals(boxes: Tensor, *, min_size: float, stride: float, max_count: int) -> Tensor:
    """The boxes (R', 4) of (R, 4) to score, in their order, with R' <= max_count.

    Boxes whose width or height is at most `min_size` pixels are dropped, then those that coincide with an
    earlier box when rounded to the feature grid of `stride` pixels, then all after the first `max_count`.
    """
    sides = boxes[:, 2:] - boxes[:, :2]
    boxes = boxes[(sides > min_size).all(dim=1)]
    cells = (boxes / stride).round()
    groups, group = torch.unique(cells, dim=0, return_inverse=True)  # (G, 4), (R,)
    order = torch.arange(len(boxes), device=boxes.device)
    first = order.new_full((len(groups),), len(boxes)).scatter_reduce(0, group, order, "amin")  # (G,)
    return boxes[first.sort().values[:max_count]]
