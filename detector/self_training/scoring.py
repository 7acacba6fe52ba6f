"""Scores and boxes of the proposals that a Faster R-CNN makes itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from detector.data.large_images import LargeImage
from detector.data.tiles import Tiling, cut_view, tiles_of, to_picture
from detector.engine.passes import check_finite, not_finite
from detector.engine.precision import Precision
from detector.modeling.merge_tiles import merge_tiles
from detector.modeling.postprocess import postprocess
from detector.self_training.box_loader import image_loader
from detector.self_training.build import Student
from detector.self_training.faster_rcnn import NonFiniteFeatures
from detector.structures import Detections, Scores
from detector.structures.sample import ImageDataset


class Limits(NamedTuple):
    """Which boxes are detections."""

    score_threshold: float
    nms_iou: float
    max_detections: int


def detection_limits(model: Student) -> Limits:
    """What torchvision's models keep in places of their own."""
    where: Any = getattr(model, "roi_heads", model)
    return Limits(where.score_thresh, where.nms_thresh, where.detections_per_img)


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
    results = [Scores(name, *fields) for name, fields in zip(image_ids, found, strict=True)]
    for result in results:
        check_finite(result.image_id, precision, result.boxes, result.scores)
    return results


def score_picture(
    model: Student,
    image: Tensor | LargeImage,
    image_id: str,
    tiling: Tiling,
    *,
    device: torch.device,
    precision: Precision,
) -> Scores:
    """The scores of a picture (3, H, W) uint8 larger than a tile, on the CPU.

    The detections of its tiles, and of the whole picture, reduced, where no tile holds them, are merged as
    :func:`merge_tiles` does. So a row is a detection, and has a score for its class alone; each class has one
    at least, however low its score. `tiling.per_step` tiles go through the model together.
    """
    limits, tiles = detection_limits(model), tiling.boxes(*image.shape[1:])
    found, best = list[Detections](), list[Tensor]()  # best: (C, 5), of each class its box and score
    groups = [*torch.arange(len(tiles) - 1).split(tiling.per_step), torch.tensor([len(tiles) - 1])]
    for rows in groups:
        views = [cut_view(image, tiles, row, tiling) for row in rows.tolist()]
        names = [image_id] * len(views)
        scored = score_batch(model, views, names, device=device, precision=precision)
        for row, view, scores in zip(rows.tolist(), views, scored, strict=True):
            scores = replace(scores, boxes=to_picture(scores.boxes, tiles[row], view.shape[1:]))
            of_tile = postprocess(
                scores,
                score_threshold=limits.score_threshold,
                nms_threshold=limits.nms_iou,
                max_detections=limits.max_detections,
            ).to("cpu")
            if row == len(tiles) - 1:
                of_tile = of_tile[tiles_of(of_tile.boxes, tiles) == row]
            found.append(of_tile)
            if len(scores.scores):
                values, which = scores.scores.max(dim=0)  # (C,)
                boxes = scores.boxes[which, torch.arange(len(which), device=which.device)]
                best.append(torch.cat([boxes, values[:, None]], dim=1).cpu())
    merged = merge_tiles(found, tiles, nms_threshold=limits.nms_iou)
    found_best = torch.stack(best) if best else torch.zeros(0, scores.scores.shape[1], 5)
    return replace(_as_scores(merged, found_best), tiles=len(tiles))


def _as_scores(found: Detections, best: Tensor) -> Scores:
    """Detections as scores, with the best box of each class that is not among them.

    Args:
        best: (T, C, 5), a box and its score of each class in T tiles.
    """
    classes = best.shape[1]
    labels = found.labels
    boxes, values = found.boxes, found.scores
    if len(best):
        which = best[..., 4].argmax(dim=0)  # (C,)
        missing = torch.ones(classes, dtype=torch.bool)
        missing[labels] = False
        added = best[which, torch.arange(classes)][missing]
        labels = torch.cat([labels, missing.nonzero()[:, 0]])
        boxes, values = torch.cat([boxes, added[:, :4]]), torch.cat([values, added[:, 4]])
    scores = torch.zeros(len(labels), classes).scatter_(1, labels[:, None], values[:, None])
    return Scores(found.image_id, boxes[:, None].expand(-1, classes, 4), scores)


def score_images(
    model: Student,
    source: ImageDataset,
    indices: Sequence[int],
    *,
    device: torch.device,
    precision: Precision,
    images_per_batch: int,
    workers: int = 0,
    tiling: Tiling | None = None,
) -> Iterator[Scores]:
    """:func:`score_batch` of the images `indices` of a data set, in their order; each scores as if alone.

    Args:
        images_per_batch: so many are read together; those of equal size go through the model together.
        workers: processes that read images; 0: this process reads.
        tiling: how large images are cut, see :func:`score_picture`; the others then go through the model
            one by one. None: they are not cut.
    """
    model.eval()
    left = [source.image_ids[index] for index in indices]
    if tiling is not None:
        images_per_batch = 1
    options = {"images_per_batch": images_per_batch, "workers": workers}
    for images in image_loader(source, indices, **options, in_parts=tiling is not None):  # type: ignore[arg-type]
        batch, left = left[: len(images)], left[len(images) :]
        if tiling is not None and tiling.cuts(*images[0].shape[1:]):
            yield score_picture(model, images[0], batch[0], tiling, device=device, precision=precision)
            continue
        found: dict[int, Scores] = {}
        for rows in _of_equal_size(images):
            names = [batch[row] for row in rows]
            same_size = [images[row] for row in rows]
            scored = score_batch(model, same_size, names, device=device, precision=precision)
            found.update(zip(rows, scored, strict=True))
        yield from (found[row] for row in range(len(images)))


def _of_equal_size(images: Sequence[Tensor]) -> list[list[int]]:
    """The rows of images of one size each, which need no padding.

    Group norm takes its mean over padding, too: scores would depend on the other images of the batch.
    """
    rows: dict[torch.Size, list[int]] = {}
    for row, image in enumerate(images):
        rows.setdefault(image.shape, []).append(row)
    return list(rows.values())
