"""What may be wrong with a data set beyond what its reader refuses: pixels, odd boxes, repeated pictures."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from detector.structures import Annotation, ImageDataset, box_iou

_LONGEST = 10.0  # a side over the other: more is odd
_WHOLE = 0.98  # share of the image: a box of more shows nothing
_SAME = 0.95  # IoU of two boxes of a class: more is the same object twice


class Pixels(NamedTuple):
    """What reading an image said."""

    error: str | None  # why it cannot be read
    digest: bytes  # the same for images of the same pixels


def read_all(source: ImageDataset, threads: int) -> Iterator[Pixels]:
    """Reads every image to its last pixel, in order; one that cannot be read stops nothing."""

    def read(index: int) -> Pixels:
        try:
            image = source.read_image(index)
        except (OSError, ValueError) as error:
            return Pixels(str(error), b"")
        content = repr(tuple(image.shape)).encode() + image.numpy().tobytes()
        return Pixels(None, hashlib.sha1(content, usedforsecurity=False).digest())

    with ThreadPoolExecutor(max(1, threads)) as pool:
        yield from pool.map(read, range(len(source.image_ids)))


def odd_boxes(annotation: Annotation, size: tuple[int, int], min_side: float) -> dict[str, int]:
    """How many true boxes of an image of `size` (height, width) are odd, by what is odd about them.

    Odd is a box with a side of at most `min_side` pixels, which no proposal may have; one that is very long
    or as large as the image; one that lies on another of its class.
    """
    boxes = annotation.boxes[~annotation.crowd]
    sides = boxes[:, 2:] - boxes[:, :2]  # (G, 2)
    labels = annotation.labels[~annotation.crowd]
    same = (box_iou(boxes, boxes) > _SAME) & (labels[:, None] == labels[None, :])
    odd = {
        f"with a side of at most {min_side:g} pixels, as no proposal has": (sides <= min_side).any(dim=1),
        f"over {_LONGEST:g} times as long as wide": sides.amax(dim=1) > _LONGEST * sides.amin(dim=1),
        "as large as the image": sides.prod(dim=1) > _WHOLE * size[0] * size[1],
        "on another of the same class": torch.triu(same, diagonal=1).any(dim=0),
    }
    return {what: int(rows.sum()) for what, rows in odd.items() if rows.any()}
