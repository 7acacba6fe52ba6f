"""Scores of every proposal of a data set."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from detector.structures import Sample, Scores, boxes_to_rois


@torch.no_grad()
def predict(
    model: nn.Module, loader: Iterable[tuple[str, Tensor, list[Sample]]], *, device: torch.device
) -> Iterator[Scores]:
    """Score the proposals of each image: the mean over its test passes (sizes, mirrored or not).

    Args:
        model: called in eval mode with (images, rois, counts); its outputs have `scores()` (R, C).
        loader: image id, proposals (R, 4) of the original image, one sample a pass whose proposals are in the
            same order.

    Yields:
        the scores of one image, on the CPU. An image without proposals has none: (0, C).
    """
    model.eval()
    for image_id, proposals, samples in loader:
        passes = [_score(model, sample, device) for sample in samples] if len(proposals) else []
        num_classes = len(samples[0].labels)
        scores = torch.stack(passes).mean(dim=0) if passes else torch.zeros(0, num_classes)  # (R, C)
        yield Scores(image_id, proposals, scores.cpu())  # waits for the device, once an image


def _score(model: nn.Module, sample: Sample, device: torch.device) -> Tensor:
    """Scores (R, C) of one sample, a batch of its own."""
    images = sample.image[None].to(device, non_blocking=True)  # (1, 3, H, W)
    rois = boxes_to_rois([sample.proposals]).to(device, non_blocking=True)  # (R, 5)
    return model(images, rois, torch.tensor([len(rois)])).scores()
