"""Converts boxes of pictures with an EXIF orientation: of the pixels as stored, or as a viewer shows them.

Boxes of labeling tools, tables and `detector predict` refer to the upright picture, as a viewer shows it;
those of COCO and VOC by definition to the pixels as stored. If the orientation swaps height and width, the
size in a file tells to which of the two its boxes refer.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from detector.data.images import read_image_size, read_orientation
from detector.utils.errors import counted

Corners = tuple[float, float, float, float]  # x1, y1, x2, y2
Size = tuple[int, int]  # height, width


class Boxed(NamedTuple):
    """A picture, and the orientation of its boxes according to its annotation."""

    path: Path
    size: Size  # of the picture to which they refer
    upright: bool  # whether they refer to the picture as a viewer shows it, where the size does not tell
    orientation: int | None = None  # of EXIF, where it is known already
    stated: bool = False  # the file itself says that it is not upright: no warning


def find_turns(source: object, pictures: Sequence[Boxed], *, upright: bool) -> list[int]:
    """For each picture, the EXIF orientation by which to turn its boxes; 1: they stay as they are.

    The size of a picture in its annotation decides to what its boxes refer, else the sizes of other turned
    pictures of the file, else the definition of its format. A warning counts the pictures of the last case.

    Args:
        source: the file of the boxes, for the warning.
        upright: whether boxes are wanted for the pictures as a viewer shows them, or as stored.

    Raises:
        FileNotFoundError, DataError: a picture cannot be read.
    """
    orientations = [
        read_orientation(picture.path) if picture.orientation is None else picture.orientation
        for picture in pictures
    ]
    meant = [
        _refers_to_upright(picture, orientation)
        for picture, orientation in zip(pictures, orientations, strict=True)
    ]
    known = {answer for answer in meant if answer is not None}
    turns, assumed = [], []
    for picture, orientation, of_upright in zip(pictures, orientations, meant, strict=True):
        if of_upright is None:
            of_upright = min(known) if len(known) == 1 else picture.upright
            if orientation > 1 and len(known) != 1 and not (of_upright or picture.stated):
                assumed.append(picture.path.name)
        turn = orientation if upright else inverse(orientation)
        turns.append(1 if of_upright == upright else turn)
    if assumed:
        warnings.warn(
            f"{source}: {counted(len(assumed), 'picture is', 'pictures are')} turned by an EXIF orientation, "
            f"and no size tells whether their boxes are, such as {assumed[0]}; they are taken for those of "
            "the pixels as stored, as COCO and VOC define: if they were drawn on the turned pictures, turn "
            "the pixels (exiftran -ai, or jhead -autorot) and read the boxes again",
            stacklevel=2,
        )
    return turns


def _refers_to_upright(picture: Boxed, orientation: int) -> bool | None:
    """Whether the annotated size is that of the upright picture; None: it does not tell."""
    if orientation < 5:
        return None
    height, width = read_image_size(picture.path, apply_orientation=True)
    return None if height == width else {(height, width): True, (width, height): False}.get(picture.size)


def inverse(orientation: int) -> int:
    """The orientation that undoes another."""
    return {6: 8, 8: 6}.get(orientation, orientation)


def turn_box(box: Sequence[float], orientation: int, size: Size) -> Corners:
    """A box of a picture of this size after the picture was turned by an EXIF orientation."""
    x1, y1, x2, y2 = box
    height, width = turn_size(size, orientation)
    if orientation >= 5:  # rows become columns
        x1, y1, x2, y2 = y1, x1, y2, x2
    if orientation in (2, 3, 6, 7):
        x1, x2 = width - x2, width - x1
    if orientation in (3, 4, 7, 8):
        y1, y2 = height - y2, height - y1
    return x1, y1, x2, y2


def turn_objects(
    boxes: np.ndarray, images: np.ndarray, sizes: np.ndarray, turns: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """The boxes (M, 4) of N pictures, and their sizes (N, 2), after each picture was turned.

    Args:
        images: (M,), of each box the index of its picture.
        sizes: (N, 2), (height, width) before.
        turns: of :func:`find_turns`.
    """
    turned_boxes, turned_sizes = boxes.copy(), sizes.copy()
    is_turned = np.array(turns, dtype=np.int64) != 1  # (N,)
    for index in np.flatnonzero(is_turned).tolist():
        turned_sizes[index] = turn_size(tuple(sizes[index].tolist()), turns[index])
    for row in np.flatnonzero(is_turned[images]).tolist():
        size = tuple(sizes[images[row]].tolist())
        turned_boxes[row] = turn_box(boxes[row].tolist(), turns[images[row]], size)
    return turned_boxes, turned_sizes


def turn_size(size: Size, orientation: int) -> Size:
    height, width = size
    return (width, height) if orientation >= 5 else size
