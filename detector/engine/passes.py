"""Scores and boxes of every proposal of images, the mean over test passes."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn

from detector.data.loader import collate
from detector.engine.precision import Precision
from detector.structures import Sample, Scores, Views, clip_boxes, decode_boxes
from detector.utils.errors import UserError


@torch.no_grad()
def predict(
    model: nn.Module,
    loader: Iterable[Views | Iterable[Views]],
    *,
    device: torch.device,
    precision: Precision | None = None,
) -> Iterator[Scores]:
    """Score the proposals of each image: the mean over its test passes (sizes, flipped or not).

    Passes of one size, as those that differ in the flipping are, go through the model together.

    Where the model has a regression branch the boxes are the proposals moved by the mean over the passes of
    their deltas, which do not depend on the size of the image, and clipped to the image; without, the
    proposals as they are.

    Args:
        loader: images in all test passes, one after the other; of one that is cut, its tiles, at least one.
        model: called in eval mode with `Batch.inputs`; its outputs have `scores()` (R, C) and
            `deltas` (R, C, 4) or None.
        precision: None: float32.

    Yields:
        the scores of one image, on `device`. An image without proposals has none: (0, C).

    Raises:
        UserError: they are not finite; names the image.
    """
    model.eval()
    precision = precision or Precision("float32", device)
    for image in loader:
        tiles = [image] if isinstance(image, Views) else image
        parts, image_id = list[tuple[Tensor, Tensor]](), ""
        for views in tiles:
            image_id = views.image_id
            parts.append(_score_views(model, views, device, precision))
        # Joined only if there are several: without regression, boxes are one view for all classes.
        boxes, scores = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
        yield Scores(image_id, boxes, scores, len(parts))


def _score_views(
    model: nn.Module, views: Views, device: torch.device, precision: Precision
) -> tuple[Tensor, Tensor]:
    """Boxes (R, C, 4) and scores (R, C) of an image, or of one tile of it, the mean over the test passes."""
    boxes = views.proposals.to(device, non_blocking=True)[:, None]  # (R, 1, 4)
    num_classes = len(views.samples[0].labels)
    scores = torch.zeros(0, num_classes, device=device)
    if len(boxes):
        passes: list[tuple[Tensor, Tensor | None]] = []
        for _, together in groupby(views.samples, key=lambda sample: sample.image.shape):
            passes += _score(model, list(together), device, precision)
        scores = torch.stack([scores for scores, _ in passes]).mean(dim=0)  # (R, C)
        deltas = [deltas for _, deltas in passes if deltas is not None]
        if deltas:
            boxes = decode_boxes(boxes, torch.stack(deltas).mean(dim=0))
            boxes = clip_boxes(boxes, *views.size)
    check_finite(views.image_id, precision, boxes, scores)
    return boxes.expand(-1, num_classes, 4), scores


def check_finite(image_id: str, precision: Precision, boxes: Tensor, scores: Tensor) -> None:
    """Refuse scores that would count as no detection, whatever the image shows."""
    if not (boxes.isfinite().all() & scores.isfinite().all()):
        raise not_finite(image_id, precision)


def not_finite(image_ids: str, precision: Precision) -> UserError:
    return UserError(
        f"the network's output is not finite, in the image {image_ids}; PRECISION is {precision.name!r}. "
        "float16 (fp16) overflows above 65,504: take bf16 or float32. If it is one of these, the weights or "
        "INPUT.MEAN and INPUT.STD do not fit the images"
    )


def _score(
    model: nn.Module, samples: Sequence[Sample], device: torch.device, precision: Precision
) -> list[tuple[Tensor, Tensor | None]]:
    """Scores (R, C) and deltas of each sample, from one batch; flipped deltas are flipped back."""
    batch = collate(samples).to(device, non_blocking=True)
    with precision.autocast():
        outputs = model(*batch.inputs)
    rows = len(batch.rois) // len(samples)  # each is a view of the same proposals
    scores, deltas = outputs.scores().split(rows), outputs.deltas
    if deltas is None:
        return [(whole, None) for whole in scores]
    flip = deltas.new_tensor([-1, 1, 1, 1])
    unflipped = [
        part * flip if sample.flipped else part
        for part, sample in zip(deltas.split(rows), samples, strict=True)
    ]
    return list(zip(scores, unflipped, strict=True))
