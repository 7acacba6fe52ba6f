"""Periodic snapshots of the scores and clusters of each stream on a few training images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from detector.data.loader import collate
from detector.evaluation.attention import Attention, draw_attention, save_attention
from detector.modeling.refinement import Refinement
from detector.structures import Views


@dataclass(frozen=True)
class Snapshots:
    """Takes a snapshot every `period` steps: a file for the report and pictures for TensorBoard.

    It draws no random numbers and does not change the model, so training is the same without it.
    """

    views: Sequence[Views]  # of the images, with one pass and at least one proposal each
    images: Sequence[Tensor]  # (3, H, W) uint8 each, to draw on
    class_names: Sequence[str]
    refinement: Refinement | None  # None: there are no clusters
    period: int  # steps

    def due(self, iteration: int, max_iter: int) -> bool:
        return iteration % self.period == 0 or iteration == max_iter

    def take(self, model: nn.Module, iteration: int, folder: Path, writer: SummaryWriter) -> None:
        """Write the snapshot after `iteration` steps to the run folder `folder` and to TensorBoard."""
        model.eval()
        seen = [attend(model, views, self.refinement) for views in self.views]
        model.train()
        if not all(attention.scores.isfinite().all() for attention in seen):
            return  # the next step raises NonFiniteLoss, which names the images
        save_attention(folder / "snapshots" / f"{iteration:06d}.npz", seen)
        for image, attention in zip(self.images, seen, strict=True):
            picture = np.asarray(draw_attention(image, attention, self.class_names))
            writer.add_image(f"streams/{attention.image_id}", picture, iteration, dataformats="HWC")


@torch.no_grad()
def attend(model: nn.Module, views: Views, refinement: Refinement | None) -> Attention:
    """The scores and clusters of each stream of a model in eval mode, for the first pass of an image."""
    device = next(model.parameters()).device
    batch = collate([views.samples[0]]).to(device)
    outputs = model(*batch.inputs)
    scores = torch.cat([outputs.mil[None], outputs.refinements[:, :, 1:]])  # (S, R, C)
    clusters = centers = torch.full(scores.shape[:2], -1)  # (S, R)
    if refinement is not None and scores.isfinite().all():
        pseudo = refinement.clusters(scores, batch)
        clusters, centers = pseudo.clusters, torch.where(pseudo.centers >= 0, pseudo.labels - 1, -1)
    labels = views.samples[0].labels.nonzero()[:, 0]  # (L,)
    return Attention(
        views.image_id, labels, views.proposals, scores.cpu()[..., labels], clusters.cpu(), centers.cpu()
    )


def list_snapshots(folder: Path) -> list[Path]:
    """The snapshots of a run folder, oldest first."""
    found = [path for path in (folder / "snapshots").glob("*.npz") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem))
