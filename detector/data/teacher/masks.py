"""The boxes around masks: COCO's run-length encoding, compressed or not, polygons, and rows of pixels."""

from typing import Any

import numpy as np

from detector.utils.errors import DataError, describe_value

Box = tuple[float, float, float, float]  # half-open x1, y1, x2, y2 in pixels
Size = tuple[int, int]  # (height, width)


def mask_box(mask: Any) -> tuple[Box | None, Size | None]:
    """The box around a mask, and the size of its image where the mask tells it.

    Args:
        mask: {"size": [height, width], "counts": text or numbers}, polygons, lists of x, y, x, y, ..., or
            the rows of all pixels, as SAM's binary_mask: true and false, or 1 and 0.

    Returns:
        the box, None of an empty mask; and the size, None of polygons.

    Raises:
        DataError: it is neither, or its runs do not fill its size.
    """
    if isinstance(mask, dict):
        return _box_of_runs(mask)
    pixels = _as_pixels(mask)
    if pixels is not None:
        return _box_of_pixels(pixels), (len(pixels), len(pixels[0]))
    return _box_of_polygons(mask), None


def _as_pixels(mask: Any) -> np.ndarray | None:
    """(H, W) of 0 and 1; None: it is no list of such rows. No polygon has such corners only."""
    try:
        pixels = np.asarray(mask, dtype=float)
    except (TypeError, ValueError):
        return None
    rows = pixels.ndim == 2 and len(pixels) > 1 and pixels.size
    return pixels if rows and np.isin(pixels, (0, 1)).all() else None


def _box_of_pixels(pixels: np.ndarray) -> Box | None:
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return None
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _box_of_polygons(polygons: Any) -> Box:
    flat = isinstance(polygons, list) and polygons and isinstance(polygons[0], (int, float))
    try:
        points = [
            np.asarray(polygon, dtype=float).reshape(-1, 2) for polygon in ([polygons] if flat else polygons)
        ]
        xy = np.concatenate(points)
        (x1, y1), (x2, y2) = xy.min(axis=0).tolist(), xy.max(axis=0).tolist()
    except (TypeError, ValueError):
        expected = "run lengths (size and counts) or polygons, lists of x, y, x, y, ..."
        raise DataError(f"a segmentation is {describe_value(polygons)}, expected {expected}") from None
    return x1, y1, x2, y2


def _box_of_runs(mask: dict[str, Any]) -> tuple[Box | None, Size]:
    size, counts = mask.get("size"), mask.get("counts")
    if not isinstance(size, list) or [type(side) for side in size] != [int, int] or min(size) < 1:
        raise DataError(f"a mask has the size {describe_value(size)}, expected [height, width] in pixels")
    height, width = size
    runs = _decode(counts) if isinstance(counts, str) else _numbers(counts)
    if (runs < 0).any() or runs.sum() != height * width:
        raise DataError(
            f"the runs of a mask add up to {int(runs.sum())} pixels, but its size {size} has "
            f"{height * width}: the mask is damaged, or its size is of another image"
        )
    ends = runs.cumsum()  # runs of background and object alternate; pixels are in column order
    first, last = (ends - runs)[1::2], ends[1::2] - 1
    filled = first <= last
    first, last = first[filled], last[filled]
    if not len(first):
        return None, (height, width)
    tall = first // height < last // height  # continues in the next column, so it touches top and bottom
    top = np.where(tall, 0, first % height).min()
    bottom = np.where(tall, height - 1, last % height).max() + 1
    box = first.min() // height, top, last.max() // height + 1, bottom
    x1, y1, x2, y2 = (float(side) for side in box)
    return (x1, y1, x2, y2), (height, width)


def _numbers(counts: Any) -> np.ndarray:
    if not isinstance(counts, list) or not all(type(count) is int and abs(count) < 2**40 for count in counts):
        raise DataError(f"a mask has the counts {describe_value(counts)}, expected whole numbers or text")
    return np.array(counts, dtype=np.int64)


def _decode(text: str) -> np.ndarray:
    """The runs of COCO's compressed text (maskApi.c of pycocotools, rleFrString).

    A character holds 5 bits, the lowest first; with its sixth bit the number goes on, else the fifth is the
    sign. From the fourth on, a number is the difference to the one before the last.
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64 or shift > 40:
            raise DataError(f"a mask has the counts {describe_value(text)}, which COCO's code does not write")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    if shift:
        raise DataError(f"a mask has the counts {describe_value(text)}, which end within a number")
    return np.array(runs, dtype=np.int64)
