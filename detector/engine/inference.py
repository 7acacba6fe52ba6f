"""Scores and boxes of every proposal of a data set."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from detector.structures import Sample, Scores, Views, apply_deltas, boxes_to_rois, clip_boxes


@torch.no_grad()
def predict(model: nn.Module, loader: Iterable[Views], *, device: torch.device) -> Iterator[Scores]:
    """Score the proposals of each image: the mean over its test passes (sizes, mirrored or not).

    Where the model has a regression branch the boxes are the proposals moved by the mean over the passes of
    their deltas, which do not depend on the size of the image, and clipped to the image; without, the
    proposals as they are.

    Args:
        model: called in eval mode with (images, rois, counts); its outputs have `scores()` (R, C) and
            `deltas` (R, C, 4), (R, 1, 4) or None.

    Yields:
        the scores of one image, on the CPU. An image without proposals has none: (0, C).
    """
    model.eval()
    for views in loader:
        boxes = views.proposals[:, None]  # (R, 1, 4)
        num_classes = len(views.samples[0].labels)
        scores = torch.zeros(0, num_classes)
        if len(boxes):
            passes = [_score(model, sample, device) for sample in views.samples]
            scores = torch.stack([scores for scores, _ in passes]).mean(dim=0).cpu()  # (R, C); waits
            deltas = [deltas for _, deltas in passes if deltas is not None]
            if deltas:
                boxes = apply_deltas(boxes, torch.stack(deltas).mean(dim=0).cpu())
                boxes = clip_boxes(boxes, *views.size)
        yield Scores(views.image_id, boxes.expand(-1, num_classes, 4), scores)


def _score(model: nn.Module, sample: Sample, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Scores (R, C) and deltas of one sample, a batch of its own; the deltas as of the image not mirrored."""
    images = sample.image[None].to(device, non_blocking=True)  # (1, 3, H, W)
    rois = boxes_to_rois([sample.proposals]).to(device, non_blocking=True)  # (R, 5)
    outputs = model(images, rois, torch.tensor([len(rois)]))
    deltas = outputs.deltas
    if deltas is not None and sample.mirrored:
        deltas = deltas * deltas.new_tensor([-1, 1, 1, 1])
    return outputs.scores(), deltas
