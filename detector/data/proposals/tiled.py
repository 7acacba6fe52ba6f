"""Proposals of a large picture: found in each of its tiles, and in the whole."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from detector.data.large_images import LargeImage
from detector.data.tiles import Tiling, tile_pixels, tiles_of, to_picture


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
        return self.find_in(torch.from_numpy(image).permute(2, 0, 1))

    def find_in(self, image: Tensor | LargeImage) -> np.ndarray:
        """The boxes in an image (3, H, W); if it is read in parts, one tile is in memory at a time."""
        height, width = image.shape[1:]
        if not self.tiling.cuts(height, width):
            assert isinstance(image, Tensor)
            return self.find(_as_array(image))
        tiles, found = self.tiling.boxes(height, width), []
        limits = torch.tensor([0, 0, width, height])
        for row, tile in enumerate(tiles):
            pixels = tile_pixels(image, tile, self.tiling.size)
            boxes = torch.from_numpy(self.find(_as_array(pixels)))
            boxes = to_picture(boxes, tile, pixels.shape[1:])
            cut = ((boxes == tile) & (tile != limits)).any(dim=1)
            found.append(boxes[~cut & (tiles_of(boxes, tiles) == row)])
        return torch.cat(found).numpy()


def find_in(find: Callable[[np.ndarray], np.ndarray], image: Tensor | LargeImage) -> np.ndarray:
    """The boxes (R, 4) that a search finds in an image (3, H, W)."""
    if isinstance(find, TiledSearch):
        return find.find_in(image)
    assert isinstance(image, Tensor)  # only a search in tiles is given others
    return find(image.permute(1, 2, 0).numpy())


def _as_array(image: Tensor) -> np.ndarray:
    return np.ascontiguousarray(image.permute(1, 2, 0).numpy())  # (H, W, 3)
