"""Proposals of a large picture: found in each of its tiles, and in the whole."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from detector.data.tiles import Tiling, tiles_of


@dataclass(frozen=True)
class TiledSearch:
    """A search of each tile of a picture, whose boxes belong to one tile each.

    A box is kept if it belongs to the tile that it was found in, so that what two tiles have in common gives
    it once. What an inner edge of a tile cuts touches that edge, and is dropped: a neighbor, or the whole
    picture, holds all of it.

    Args:
        find: (H, W, 3) uint8 RGB to boxes (R, 4) float32.
    """

    find: Callable[[np.ndarray], np.ndarray]
    tiling: Tiling

    def __call__(self, image: np.ndarray) -> np.ndarray:
        height, width = image.shape[:2]
        if not self.tiling.cuts(height, width):
            return self.find(image)
        tiles, found = self.tiling.boxes(height, width), []
        limits = torch.tensor([0, 0, width, height])
        for row, tile in enumerate(tiles):
            x1, y1, x2, y2 = tile.tolist()
            boxes = torch.from_numpy(self.find(np.ascontiguousarray(image[y1:y2, x1:x2])))
            boxes = boxes + boxes.new_tensor([x1, y1, x1, y1])
            cut = ((boxes == tile) & (tile != limits)).any(dim=1)
            found.append(boxes[~cut & (tiles_of(boxes, tiles) == row)])
        return torch.cat(found).numpy()
