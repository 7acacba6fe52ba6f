"""Scores and boxes of the proposals that a Faster R-CNN makes itself."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from detector.data.large_images import LargeImage
from detector.data.tiles import Tiling, cut_view, tiles_of, to_picture
from detector.engine.passes import check_finite, not_finite
from detector.engine.precision import Precision
from detector.modeling.merge_tiles import merge_tiles
from detector.modeling.postprocess import postprocess
from detector.self_training.box_loader import image_loader
from detector.self_training.faster_rcnn import FasterRCNN, NonFiniteFeatures
from detector.structures import Detections, Scores
from detector.structures.sample import ImageDataset


@torch.no_grad()
def score_batch(
    model: FasterRCNN,
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


def score_picture(
    model: FasterRCNN,
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
    heads, size = model.roi_heads, image.shape[1:]
    options = {"score_threshold": heads.score_thresh, "nms_threshold": heads.nms_thresh}
    tiles, found = tiling.boxes(*size), list[Detections]()
    best = torch.full((heads.box_predictor.cls_score.out_features - 1,), -1.0)  # (C,), without the background
    best_boxes = torch.zeros(len(best), 4)
    groups = [*torch.arange(len(tiles) - 1).split(tiling.per_step), torch.tensor([len(tiles) - 1])]
    for rows in groups:
        views = [cut_view(image, tiles, row, tiling) for row in rows.tolist()]
        names = [image_id] * len(views)
        scored = score_batch(model, views, names, device=device, precision=precision)
        for row, view, scores in zip(rows.tolist(), views, scored, strict=True):
            scores = replace(scores, boxes=to_picture(scores.boxes, tiles[row], view.shape[1:]))
            of_tile = postprocess(scores, **options, max_detections=heads.detections_per_img).to("cpu")
            if row == len(tiles) - 1:
                of_tile = of_tile[tiles_of(of_tile.boxes, tiles) == row]
            found.append(of_tile)
            if len(scores.scores):
                values, which = scores.scores.max(dim=0)  # (C,)
                better = values.cpu() > best
                columns = torch.arange(len(best), device=which.device)
                best = torch.where(better, values.cpu(), best)
                best_boxes[better] = scores.boxes[which, columns].cpu()[better]
    return _as_scores(merge_tiles(found, tiles, nms_threshold=heads.nms_thresh), best, best_boxes)


def _as_scores(found: Detections, best: Tensor, best_boxes: Tensor) -> Scores:
    """Detections as scores, with the best box of each class that is not among them."""
    missing = best >= 0
    missing[found.labels] = False
    labels = torch.cat([found.labels, missing.nonzero()[:, 0]])
    boxes = torch.cat([found.boxes, best_boxes[missing]])
    values = torch.cat([found.scores, best[missing]])
    scores = torch.zeros(len(labels), len(best)).scatter_(1, labels[:, None], values[:, None])
    return Scores(found.image_id, boxes[:, None].expand(-1, len(best), 4), scores)


def score_images(
    model: FasterRCNN,
    source: ImageDataset,
    indices: Sequence[int],
    *,
    device: torch.device,
    precision: Precision,
    images_per_batch: int,
    workers: int = 0,
    tiling: Tiling | None = None,
) -> Iterator[Scores]:
    """:func:`score_batch` of the images `indices` of a data set, in their order.

    Args:
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
        else:
            yield from score_batch(model, images, batch, device=device, precision=precision)
