"""Whether pictures should be cut into tiles, and how large: from the sizes of pictures and objects."""

import math
from collections.abc import Sequence

import numpy as np

_LEAST = 32  # pixels of the network's input: an object with fewer is one or two cells of the features
_REDUCED = 2  # a picture that is reduced less than this is not cut
_MUCH_REDUCED = 4  # one that is reduced so much is cut even if nobody knows how large its objects are,
_ALONG = 6  # into so many pieces of its longer side at most
_ENLARGED = 4  # a tile is enlarged no more than this
_STEP = 32  # pixels


def choose_tile(longest: float, sides: Sequence[float], size: int) -> int:
    """The side of tiles, INPUT.TILE, in pixels of the picture; 0: pictures need not be cut.

    A quarter of the objects, the smallest, may have fewer than 32 pixels of the network's input.

    Args:
        longest: the longer side of a typical picture, in pixels.
        sides: of objects, the roots of their areas, in pixels; none: nobody knows them.
        size: pixels of the network's input along a picture, or a tile.
    """
    if longest < _REDUCED * size:
        return 0
    if len(sides):
        tile = quartile(sides) * size / _LEAST
        if tile >= longest:
            return 0
    elif longest < _MUCH_REDUCED * size:
        return 0
    else:
        tile = longest / _ALONG
    tile = _STEP * math.ceil(max(tile, size / _ENLARGED if len(sides) else size) / _STEP)
    return tile if tile < longest else 0


def quartile(sides: Sequence[float]) -> float:
    """The lower quartile."""
    return float(np.quantile(sides, 0.25))


def tile_findings(name: str, longest: float, sides: Sequence[float], size: int, tile: int) -> list[str]:
    """That objects are too small for the network at INPUT.TILE `tile`, and what to do; usually nothing.

    Args:
        name: of the data set in the message.
        longest, sides, size: of :func:`choose_tile`.
    """
    better, seen = choose_tile(longest, sides, size), min(tile or longest, longest)
    advice = f"set INPUT.TILE {better} (docs/large_pictures.md) and make the proposals anew"
    if not len(sides):
        if tile or not better:
            return []
        return [
            f"{name}: pictures are {longest:.0f} pixels long and reduced to {size}: where objects are small, "
            f"{advice}"
        ]
    pixels = quartile(sides) * size / seen
    if pixels >= _LEAST or longest < _REDUCED * size:
        return []
    if not 0 < better < seen:
        advice = "raise INPUT.TRAIN_SIZES and TEST_SIZES"
    return [
        f"{name}: a quarter of the objects have fewer than {pixels:.0f} pixels of the network's input, which "
        f"is too small to learn: {advice}"
    ]
