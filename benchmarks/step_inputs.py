"""Synthetic batches, and scores like those of a trained head, for training_step.py."""

from dataclasses import dataclass

import torch
from bench_clusters import make_boxes, make_probs
from torch import Tensor

from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.refinement import Refinement
from detector.structures import Batch, boxes_to_rois


@dataclass(frozen=True)
class Shape:
    """Sizes of the input. `trained`: compute clusters from scores like those of a trained head."""

    batch: int = 1
    height: int = 688
    width: int = 917
    proposals: int = 2000
    trained: bool = False


class TrainedScores:
    """Wraps a refinement so that it computes clusters from given scores; the loss uses the model's scores."""

    def __init__(self, refinement: Refinement, sources: Tensor) -> None:
        self.refinement, self.sources, self.loss = refinement, sources, refinement.loss

    def clusters(self, sources: Tensor, batch: Batch) -> ProposalClusters:
        return self.refinement.clusters(self.sources, batch)


def synthetic_batch(shape: Shape, num_classes: int) -> tuple[Batch, Tensor]:
    """A synthetic batch on the CPU, and scores (3, sum R, C) like those of trained streams."""
    generator = torch.Generator().manual_seed(0)
    boxes, scores = [], []
    for _ in range(shape.batch):
        image_boxes, objects = make_boxes(shape.proposals, generator)  # in 800 x 600 pixels
        streams = [make_probs("trained", image_boxes, objects, generator) for _ in range(3)]
        scores.append(torch.stack(streams)[:, :, 1 : num_classes + 1])
        boxes.append(image_boxes * torch.tensor([shape.width / 800, shape.height / 600] * 2))
    labels = torch.zeros(shape.batch, num_classes)
    labels[:, :3] = 1
    size = (shape.batch, 3, shape.height, shape.width)
    images = torch.randint(256, size, generator=generator, dtype=torch.uint8)
    counts = torch.full((shape.batch,), shape.proposals)
    ids = tuple(f"image{i}" for i in range(shape.batch))
    return Batch(images, boxes_to_rois(boxes), labels, counts, ids), torch.cat(scores, dim=1)
