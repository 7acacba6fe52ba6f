"""A Fast R-CNN branch: it classifies the proposals and moves them to where the detector sees an object.

What it learns from are pseudo labels made of the last stream's scores, as in C-WSL (Gao et al., ECCV 2018)
and by Yang et al. (arXiv 1911.12148); the losses are those of Fast R-CNN (Girshick, arXiv 1504.08083).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.per_image import mean_per_image, sum_per_image
from detector.modeling.refinement import Refinement
from detector.structures import Batch, encode_boxes


@dataclass(frozen=True)
class RegressionOutputs:
    """What the branch says of every proposal, the same in training and testing."""

    logits: Tensor  # (sum R, C + 1), background in column 0
    deltas: Tensor  # (sum R, C, 4), or (sum R, 1, 4) for all classes alike: see structures.encode_boxes


class RegressionBranch(nn.Module):
    """RoI features (sum R, F) to classes and box deltas.

    Args:
        class_agnostic: one box a proposal rather than one for each class.
        init_std, box_std: standard deviations of the initial weights of the two layers.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        class_agnostic: bool = False,
        init_std: float = 0.01,
        box_std: float = 0.001,
    ) -> None:
        super().__init__()
        self.classes = nn.Linear(in_features, num_classes + 1)
        self.boxes = nn.Linear(in_features, 4 * (1 if class_agnostic else num_classes))
        for layer, std in ((self.classes, init_std), (self.boxes, box_std)):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor) -> RegressionOutputs:
        deltas = self.boxes(features).float().unflatten(1, (-1, 4))  # (sum R, C or 1, 4)
        return RegressionOutputs(self.classes(features).float(), deltas)


@dataclass(frozen=True)
class RegressionLoss:
    """Losses of the branch by name: "regress_classes" and "regress_boxes".

    The classes: the mean over proposals of w * cross-entropy, w the weight of the proposal's pseudo label.
    The boxes: of members of a cluster, w * smooth-L1 (beta 1) of the deltas to the cluster's center, summed
    and divided by the count of w > 0. Both are means over images.
    """

    labels: Refinement  # only its pseudo labels are used
    weight: float = 1.0

    def __call__(self, outputs: RegressionOutputs, sources: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Args: sources (sum R, C), the scores that the pseudo labels are made of, without a gradient."""
        found = self.labels.clusters(sources, batch)  # (sum R,)
        losses = found.weights * cross_entropy(outputs.logits, found.labels, reduction="none")
        boxes = batch.rois[:, 1:]
        expected = encode_boxes(boxes, center_boxes(boxes, found, batch.counts))  # (sum R, 4)
        column = (found.labels - 1).clamp(min=0, max=outputs.deltas.shape[1] - 1)
        deltas = outputs.deltas[torch.arange(len(column), device=column.device), column]  # (sum R, 4)
        misses = smooth_l1_loss(deltas, expected, reduction="none", beta=1.0).sum(dim=1)
        misses = misses * found.weights * (found.labels > 0)
        sums = sum_per_image(
            torch.stack([misses, (found.weights > 0).float()], dim=1), batch.counts
        )  # (B, 2)
        return {
            "regress_classes": self.weight * mean_per_image(losses[None], batch.counts)[0],
            "regress_boxes": self.weight * (sums[:, 0] / sums[:, 1].clamp(min=1)).mean(),
        }


def center_boxes(boxes: Tensor, found: ProposalClusters, counts: Tensor) -> Tensor:
    """The center (sum R, 4) of each member's cluster; of a proposal that is no member, the proposal itself.

    Args:
        boxes (Tensor[sum R, 4]): of several images, one after another.
        found: their clusters, which count from 0 in each image.
        counts (Tensor[B]): proposals per image, int64, on the CPU.
    """
    rows = torch.arange(len(boxes), device=boxes.device)
    starts = (counts.cumsum(0) - counts).repeat_interleave(counts).to(boxes.device, non_blocking=True)
    # A cluster's number is less than its image's proposals, so start + number is its own among all images'.
    # The rows that are no center write to the end of the table, which nobody reads.
    table = rows.new_zeros(len(rows) + 1)
    table[torch.where(found.centers >= 0, starts + found.centers, len(rows))] = rows
    centers = table[starts + found.clusters.clamp(min=0)]
    return boxes[torch.where(found.clusters >= 0, centers, rows)]
