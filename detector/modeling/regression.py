"""Box regression by a Fast R-CNN branch, or by each refinement stream.

Both learn from pseudo labels. The branch, which has its own classifier, learns pseudo labels from the scores
of the last stream, as in C-WSL (Gao et al., ECCV 2018) and Yang et al. (arXiv 1911.12148). In MIST (Ren et
al., arXiv 2004.04725) each stream regresses boxes with its own pseudo labels. The losses are those of Fast
R-CNN (Girshick, arXiv 1504.08083).
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.per_image import mean_per_image, sum_per_image
from detector.modeling.refinement import Refinement
from detector.structures import Batch, encode_boxes

BoxReduction = Literal["weighted", "all"]
_BOX_STD = 0.001  # of the initial weights of box layers, as in Fast R-CNN


@dataclass(frozen=True)
class RegressionOutputs:
    """Class logits and box deltas of the proposals, the same in training and testing."""

    logits: Tensor | None  # (sum R, C + 1), background in column 0; None: no classifier
    deltas: Tensor  # (sum R, C, 4), see structures.encode_boxes; of K streams (K, sum R, C, 4)
    score_weight: float = 1.0  # of the logits' classes in the final score, relative to one stream


class RegressionBranch(nn.Module):
    """RoI features (sum R, F) to classes and box deltas.

    Args:
        score_weight: weight of its classes in the final score, relative to a refinement stream.
        init_std: standard deviation of the initial weights of the classifier.
    """

    def __init__(
        self, in_features: int, num_classes: int, *, score_weight: float = 1.0, init_std: float = 0.01
    ) -> None:
        super().__init__()
        self.score_weight = score_weight
        self.classes = nn.Linear(in_features, num_classes + 1)
        self.boxes = nn.Linear(in_features, 4 * num_classes)
        _init(self.classes, init_std)
        _init(self.boxes, _BOX_STD)

    def forward(self, features: Tensor) -> RegressionOutputs:
        deltas = self.boxes(features).float().unflatten(1, (-1, 4))  # (sum R, C, 4)
        return RegressionOutputs(self.classes(features).float(), deltas, self.score_weight)


class StreamRegression(nn.Module):
    """RoI features (sum R, F) to the box deltas (K, sum R, C, 4) of each refinement stream."""

    def __init__(self, in_features: int, num_classes: int, num_streams: int) -> None:
        super().__init__()
        self.boxes = nn.ModuleList(nn.Linear(in_features, 4 * num_classes) for _ in range(num_streams))
        for layer in self.boxes:
            _init(layer, _BOX_STD)

    def forward(self, features: Tensor) -> RegressionOutputs:
        deltas = torch.stack([layer(features).float().unflatten(1, (-1, 4)) for layer in self.boxes])
        return RegressionOutputs(None, deltas)


def _init(layer: nn.Module, std: float) -> None:
    assert isinstance(layer, nn.Linear)
    nn.init.normal_(layer.weight, std=std)
    nn.init.zeros_(layer.bias)


@dataclass(frozen=True)
class RegressionLoss:
    """Losses of the branch by name: "regress_classes" and "regress_boxes".

    The former is the mean over proposals of w * cross-entropy, where w is the weight of the pseudo label; the
    latter is :func:`box_loss`. Both are means over images.
    """

    labels: Refinement  # for its pseudo labels
    weight: float = 1.0
    box_reduction: BoxReduction = "weighted"

    def __call__(self, outputs: RegressionOutputs, sources: Tensor, batch: Batch) -> dict[str, Tensor]:
        """`sources` (sum R, C): the detached scores from which the pseudo labels are computed."""
        assert outputs.logits is not None, "a RegressionBranch has classes"
        pseudo = self.labels.clusters(sources, batch)  # (sum R,)
        losses = pseudo.weights * cross_entropy(outputs.logits, pseudo.labels, reduction="none")
        return {
            "regress_classes": self.weight * mean_per_image(losses[None], batch.counts)[0],
            "regress_boxes": self.weight * box_loss(outputs.deltas, pseudo, batch, self.box_reduction),
        }


@dataclass(frozen=True)
class StreamRegressionLoss:
    """Losses (K,) of the boxes of each stream: :func:`box_loss` with the stream's pseudo labels."""

    weight: float = 1.0
    box_reduction: BoxReduction = "weighted"

    def __call__(self, outputs: RegressionOutputs, pseudo: ProposalClusters, batch: Batch) -> Tensor:
        """`pseudo`: the labels (K, sum R) of the streams."""
        streams = zip(outputs.deltas, zip(*pseudo, strict=True), strict=True)
        losses = [box_loss(d, ProposalClusters(*fields), batch, self.box_reduction) for d, fields in streams]
        return self.weight * torch.stack(losses)


def box_loss(deltas: Tensor, pseudo: ProposalClusters, batch: Batch, reduction: BoxReduction) -> Tensor:
    """w * smooth-L1 (beta 1) of the deltas of members to the center of their cluster, mean over images.

    The sum over an image is divided by the number of its proposals with w > 0, or of all.

    Args:
        deltas (Tensor[sum R, C, 4]): one for each class.
        pseudo: labels (sum R,).
        reduction: "weighted" or "all".
    """
    boxes = batch.boxes
    expected = encode_boxes(boxes, center_boxes(boxes, pseudo, batch.counts))  # (sum R, 4)
    column = (pseudo.labels - 1).clamp(min=0)
    own = deltas[torch.arange(len(column), device=column.device), column]  # (sum R, 4)
    losses = smooth_l1_loss(own, expected, reduction="none", beta=1.0).sum(dim=1)
    losses = losses * pseudo.weights * (pseudo.labels > 0)
    counted = (pseudo.weights > 0).float() if reduction == "weighted" else torch.ones_like(losses)
    sums = sum_per_image(torch.stack([losses, counted], dim=1), batch.counts)  # (B, 2)
    return (sums[:, 0] / sums[:, 1].clamp(min=1)).mean()


def center_boxes(boxes: Tensor, pseudo: ProposalClusters, counts: Tensor) -> Tensor:
    """The center (sum R, 4) of the cluster of each proposal; the proposal itself if it is in none.

    Args:
        boxes (Tensor[sum R, 4]): of several images, in order.
        pseudo: their clusters, numbered from 0 in each image.
        counts (Tensor[B]): proposals per image, int64, on the CPU.
    """
    rows = torch.arange(len(boxes), device=boxes.device)
    starts = (counts.cumsum(0) - counts).repeat_interleave(counts).to(boxes.device, non_blocking=True)
    # The number of a cluster is less than the number of proposals of its image, so start + number is unique.
    # Rows that are not centers write to the last entry of the table, which is not read.
    table = rows.new_zeros(len(rows) + 1)
    table[torch.where(pseudo.centers >= 0, starts + pseudo.centers, len(rows))] = rows
    centers = table[starts + pseudo.clusters.clamp(min=0)]
    return boxes[torch.where(pseudo.clusters >= 0, centers, rows)]
