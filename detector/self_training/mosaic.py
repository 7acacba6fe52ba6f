"""Mosaic: four images in one, for a detector that is trained on boxes."""

from collections.abc import Callable

import numpy as np
import torch

from detector.self_training.copy_paste import BoxedImage, resized, reviewed_first
from detector.structures import scale_boxes

_GRAY = 127  # between and around the images


def mosaic(target: BoxedImage, source: Callable[[], BoxedImage], rng: np.random.Generator) -> BoxedImage:
    """Four images, one of them `target`, around the center of an image as large as `target`.

    As in YOLOv4 (Bochkovskiy et al., arXiv 2004.10934), but each image is there as a whole, as large as a
    quarter allows and in its own shape, so that no object is cut. Which image is in which quarter is random.

    Args:
        target: at least 2 pixels wide and high, else it is returned as it is.
        source: another image; called three times.

    Returns:
        A new image, whose reviewed boxes come first; it is complete if all four are.
    """
    height, width = target.image.shape[1:]
    if min(height, width) < 2:
        return target
    canvas, boxes = torch.full_like(target.image, _GRAY), []
    images = [target, source(), source(), source()]
    for place, image in zip(rng.permutation(4).tolist(), images, strict=True):
        low, right = divmod(place, 2)
        free = (height - height // 2 if low else height // 2), (width - width // 2 if right else width // 2)
        sides = image.image.shape[1:]
        scale = min(free[0] / sides[0], free[1] / sides[1])
        h, w = (min(most, max(1, round(side * scale))) for most, side in zip(free, sides, strict=True))
        top, left = height // 2 - (0 if low else h), width // 2 - (0 if right else w)
        canvas[:, top : top + h, left : left + w] = resized(image.image, (h, w))
        scaled = scale_boxes(image.boxes, w / sides[1], h / sides[0])
        boxes.append(scaled + scaled.new_tensor([left, top, left, top]))
    return reviewed_first(
        BoxedImage(
            canvas,
            torch.cat(boxes),
            torch.cat([image.labels for image in images]),
            torch.cat([image.reviewed for image in images]),
            torch.cat([image.weights for image in images]),
            all(image.complete for image in images),
        )
    )
