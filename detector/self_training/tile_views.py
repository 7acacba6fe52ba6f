"""Which part of a large picture a student sees in a step, and the boxes in it."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from detector.data.tiles import tiles_of, to_view
from detector.self_training.copy_paste import BoxedImage
from detector.structures import box_area

# Shares of the draws that show all of the picture, and a tile with an object.
_WHOLE, _WITH_OBJECT = 0.25, 0.5
_VISIBLE = 0.25  # share of a box that a tile shows, with less of which it is background
_LEAST_SIDE = 8  # pixels of a box in the reduced picture: with less it is background there


def draw_tile(tiles: Tensor, boxes: Tensor, rng: np.random.Generator) -> int:
    """The tile, a row of `tiles`, that a step sees of a picture.

    A quarter of the draws is the whole picture, which is the last. Half of them is the tile of one of the
    boxes, as most tiles show no object; the others are any tile, for their background.

    Args:
        tiles: (T, 4) of :meth:`Tiling.boxes`, at least two.
        boxes: (G, 4); without any, three quarters of the draws are any tile.
    """
    kind = rng.random()
    if kind < _WHOLE:
        return len(tiles) - 1
    if kind < _WHOLE + _WITH_OBJECT and len(boxes):
        box = boxes[int(rng.integers(len(boxes)))]
        return int(tiles_of(box[None], tiles)[0])
    return int(rng.integers(len(tiles) - 1))


def clip_to_tile(boxes: Tensor, tile: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes (G, 4) clipped to a tile (4,), and which (G,) it shows at least a quarter of."""
    low = torch.maximum(boxes[:, :2], tile[:2])
    high = torch.minimum(boxes[:, 2:], tile[2:])
    shown = (high - low).clamp(min=0).prod(dim=1)
    return torch.cat([low, high], dim=1), (shown > 0) & (shown >= _VISIBLE * box_area(boxes))


def clip_to_view(view: BoxedImage, tiles: Tensor, row: int) -> BoxedImage:
    """The view of tile `row`, which has the boxes of the picture, with those that it shows, clipped to it.

    As the last one, the whole picture, reduced, it has the larger ones alone.
    """
    boxes, visible = clip_to_tile(view.boxes, tiles[row])
    boxes = to_view(boxes, tiles[row], view.image.shape[1:])
    if row == len(tiles) - 1:
        visible &= (boxes[:, 2:] - boxes[:, :2]).amin(dim=1) >= _LEAST_SIDE
    return replace(
        view,
        boxes=boxes[visible],
        labels=view.labels[visible],
        reviewed=view.reviewed[visible],
        weights=view.weights[visible],
    )
