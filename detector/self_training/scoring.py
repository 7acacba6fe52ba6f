"""Scores and boxes of the proposals that a Faster R-CNN makes itself."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from detector.engine.passes import check_finite, not_finite
from detector.engine.precision import Precision
from detector.self_training.box_loader import image_loader
from detector.self_training.build import Student
from detector.self_training.faster_rcnn import NonFiniteFeatures
from detector.structures import Scores
from detector.structures.sample import ImageDataset


@torch.no_grad()
def score_batch(
    model: Student,
    images: Sequence[Tensor],
    image_ids: Sequence[str],
    *,
    device: torch.device,
    precision: Precision,
) -> list[Scores]:
    """The scores of the proposals that a Faster R-CNN makes itself, on `device`.

    Args:
        model: in eval mode.
        images: (3, H, W) uint8 each, which go through the model together, padded to the largest.

    Raises:
        UserError: they are not finite; names the image, or those of the batch.
    """
    inputs = [image.to(device, non_blocking=True).float() / 255 for image in images]
    try:
        with precision.autocast():
            found = list(model.scores(inputs))
    except NonFiniteFeatures:
        raise not_finite(", ".join(image_ids), precision) from None
    results = [Scores(name, *each) for name, each in zip(image_ids, found, strict=True)]
    for result in results:
        check_finite(result.image_id, precision, result.boxes, result.scores)
    return results


def score_images(
    model: Student,
    source: ImageDataset,
    indices: Sequence[int],
    *,
    device: torch.device,
    precision: Precision,
    images_per_batch: int,
    workers: int = 0,
) -> Iterator[Scores]:
    """:func:`score_batch` of the images `indices` of a data set, in their order.

    Args:
        workers: processes that read images; 0: this process reads.
    """
    model.eval()
    left = [source.image_ids[index] for index in indices]
    for images in image_loader(source, indices, images_per_batch=images_per_batch, workers=workers):
        batch, left = left[: len(images)], left[len(images) :]
        yield from score_batch(model, images, batch, device=device, precision=precision)
