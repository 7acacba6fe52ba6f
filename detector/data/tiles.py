"""Tiles of a large picture, each of which goes through the network as an image of its own.

The tiles of a picture overlap, and the whole picture, reduced, is one more, for objects that no tile holds. A
box belongs to exactly one of them: nothing is found twice, and nothing is cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from detector.data.large_images import LargeImage

_CHUNK = 4096  # boxes that are compared with all tiles at a time, to bound the memory


@dataclass(frozen=True)
class Tiling:
    """How pictures are cut.

    Args:
        size: side of a tile in pixels of the picture. A picture whose sides are no longer is not cut.
        overlap: least share of a side that two neighbors have in common. A box that is no longer than this is
            in some tile as a whole.
        per_step: tiles of one picture in memory at a time, including the reduced picture.
    """

    size: int
    overlap: float = 0.25
    per_step: int = 8

    def cuts(self, height: int, width: int) -> bool:
        """Whether a picture of this size is cut."""
        return max(height, width) > self.size

    def boxes(self, height: int, width: int) -> Tensor:
        """The tiles (T, 4) of a picture, xyxy int64, row by row, and as the last one the whole picture."""
        whole = torch.tensor([[0, 0, width, height]])
        if not self.cuts(height, width):
            return whole
        rows, columns = self._starts(height), self._starts(width)
        tiles = [[x, y, min(x + self.size, width), min(y + self.size, height)] for y in rows for x in columns]
        return torch.cat([torch.tensor(tiles), whole])

    def reduced(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of the whole picture as a view: its shorter side is that of a tile, the longer at
        most twice that.
        """
        scale = min(1.0, self.size / min(height, width), 2 * self.size / max(height, width))
        return max(1, round(height * scale)), max(1, round(width * scale))

    def _starts(self, side: int) -> list[int]:
        """The first pixels of tiles that cover a side evenly."""
        step = max(1, round(self.size * (1 - self.overlap)))
        count = 1 + max(0, -(-(side - self.size) // step))
        return [round(i * (side - self.size) / max(1, count - 1)) for i in range(count)]


def tiles_of(boxes: Tensor, tiles: Tensor) -> Tensor:
    """The tile (R,) int64 that each box (R, 4) belongs to.

    It is the one with the nearest center of those that contain the box, else the last, the whole picture.

    Args:
        tiles: (T, 4) of :meth:`Tiling.boxes`.
    """
    if len(tiles) == 1:
        return torch.zeros(len(boxes), dtype=torch.int64)
    own, found = tiles[:-1].float(), []
    for part in boxes.split(_CHUNK):
        inside = ((part[:, None, :2] >= own[:, :2]) & (part[:, None, 2:] <= own[:, 2:])).all(dim=2)  # (R, T)
        centers = (part[:, None, :2] + part[:, None, 2:]) / 2, (own[:, :2] + own[:, 2:]) / 2
        far = (centers[0] - centers[1]).abs().amax(dim=2).masked_fill(~inside, torch.inf)
        found.append(torch.where(inside.any(dim=1), far.argmin(dim=1), len(own)))
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64)


def draw_tiles(count: int, most: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Up to `most` of a picture's tiles, ascending, and how many tiles each one represents.

    The whole picture, which is the last, is always drawn and represents itself. The others are drawn evenly;
    each represents the number of the others divided by the number of draws. Sums over the drawn tiles with
    these weights are therefore unbiased estimates of sums over all tiles (Horvitz and Thompson, 1952).

    Args:
        count: the tiles of the picture.
        most: at least 2.

    Returns:
        rows (K,) int64 and weights (K,) float32.
    """
    if count <= most:
        return torch.arange(count), torch.ones(count)
    drawn = torch.randperm(count - 1, generator=generator)[: most - 1]
    weights = torch.ones(count).index_fill(0, drawn, (count - 1) / len(drawn))
    rows = torch.cat([drawn, torch.tensor([count - 1])]).sort().values
    return rows, weights[rows]


def tile_pixels(image: Tensor | LargeImage, tile: Tensor, size: int) -> Tensor:
    """The pixels of a tile (4,), as they are; but of all of a large image fewer, with at least twice `size` a
    side.
    """
    x1, y1, x2, y2 = tile.tolist()
    if isinstance(image, LargeImage) and (y2 - y1, x2 - x1) == image.shape[1:]:
        return image.reduced(2 * size)
    return image[:, y1:y2, x1:x2]


def cut_view(image: Tensor | LargeImage, tiles: Tensor, row: int, tiling: Tiling) -> Tensor:
    """The image of tile `row` of a picture (3, H, W) uint8 for a student; the last one is the whole, reduced.

    Args:
        tiles: (T, 4) of :meth:`Tiling.boxes`.
    """
    pixels = tile_pixels(image, tiles[row], tiling.size)
    if row < len(tiles) - 1:
        return pixels
    size = tiling.reduced(*image.shape[1:])
    return F.interpolate(pixels[None], size, mode="bilinear", antialias=True)[0]


def to_view(boxes: Tensor, tile: Tensor, size: Sequence[int]) -> Tensor:
    """Boxes (R, 4) of a picture in pixels of a view of its tile (4,), which has `size` (height, width)."""
    corner, scale = _frame(boxes, tile, size)
    return (boxes - corner) / scale


def to_picture(boxes: Tensor, tile: Tensor, size: Sequence[int]) -> Tensor:
    """The inverse of :func:`to_view`, of boxes (..., 4)."""
    corner, scale = _frame(boxes, tile, size)
    return boxes * scale + corner


def _frame(boxes: Tensor, tile: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The corner of a tile, and the size of a pixel of its view, both (4,) in pixels of the picture."""
    x1, y1, x2, y2 = tile.tolist()
    pixel = (x2 - x1) / size[1], (y2 - y1) / size[0]
    return boxes.new_tensor([x1, y1, x1, y1]), boxes.new_tensor(pixel * 2)
