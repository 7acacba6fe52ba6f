"""Refinement streams: pseudo labels from the scores of one stream, and the losses of the next one.

A pseudo-label rule picks the seeds of one image, proposals that count as objects. The rest is the same for
every rule: each proposal gets the class of its nearest seed, or background, and a loss compares that
with the probabilities of the stream. OICR, PCL and MIST have a compiled op for a whole batch; any other rule
is a plain PyTorch function (docs/adding_a_method.md adds one).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from detector.layers import assign_to_seeds, pcl_loss, proposal_clusters
from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.per_image import mean_per_image, sum_per_image
from detector.modeling.reviewed import with_hints, with_reviewed
from detector.structures import Batch, box_iou


class Seeds(NamedTuple):
    """The S proposals of one image that count as objects according to a rule."""

    rows: Tensor  # (S,) int64, each proposal at most once
    classes: Tensor  # (S,) int64, 0..C-1
    weights: Tensor  # (S,) float, the weight of a proposal whose nearest seed this is


# Boxes (R, 4), detached scores (R, C) and image labels (C,) of one image with any R to its seeds.
Rule = Callable[[Tensor, Tensor, Tensor], Seeds]
# Probabilities (K, sum R, C + 1) of the streams, their pseudo labels (K, sum R) and the proposals per image
# (B,) to losses (K,).
Loss = Callable[[Tensor, ProposalClusters, Tensor], Tensor]


def cross_entropy_loss(probs: Tensor, pseudo: ProposalClusters, counts: Tensor) -> Tensor:
    """-w_r log(phi_{r, label} + 1e-6), mean over the proposals of an image and over images.

    The loss of OICR (Tang et al., arXiv 1704.00138) and MIST (Ren et al., arXiv 2004.04725); for its
    arguments see `Loss`.
    """
    chosen = probs.gather(-1, pseudo.labels[..., None])[..., 0]  # (K, sum R)
    return mean_per_image(-pseudo.weights * (chosen + 1e-6).log(), counts)


def cluster_loss(probs: Tensor, pseudo: ProposalClusters, counts: Tensor) -> Tensor:
    """:func:`detector.layers.pcl_loss`, mean over images: a cluster is one bag (arXiv 1807.03342).

    For its arguments see `Loss`.
    """
    probs_, labels, weights, clusters = (
        tensor.flatten(0, 1) for tensor in (probs, pseudo.labels, pseudo.weights, pseudo.clusters)
    )
    # (K * B,): the images of the first stream, then those of the second, and so on
    losses = pcl_loss(probs_, labels, weights, clusters, counts.repeat(len(probs)))
    return losses.view(len(probs), -1).mean(dim=1)


def suppressed_by_any(
    boxes: Tensor, scores: Tensor, labels: Tensor, *, top_share: float = 0.15, nms_iou: float = 0.2
) -> Seeds:
    """MIST's seeds as in the code of its authors, which is stricter than the NMS of the paper.

    Of the `top_share` of the proposals with the highest scores of a class, rounded down but at least one, a
    proposal is a seed if its IoU with every higher-scored one is less than `nms_iou`. In NMS only seeds
    suppress others; here suppressed proposals do, too. A proposal that several classes select is a seed of
    the first of them, which wins all ties of the assignment anyway.

    For the arguments see `Rule`. Proposals with equal scores are in their given order.
    """
    rows, classes = [boxes.new_empty(0, dtype=torch.int64)], [boxes.new_empty(0, dtype=torch.int64)]
    count = min(len(boxes), max(1, int(len(boxes) * top_share)))
    for c in labels.nonzero()[:, 0]:  # synchronizes with the host
        best = scores[:, c].sort(descending=True, stable=True).indices[:count]  # (count,)
        suppressed = box_iou(boxes[best], boxes[best]) >= nms_iou  # (count, count): column j suppresses row i
        rows.append(best[~suppressed.tril(diagonal=-1).any(dim=1)])  # by higher-scored ones
        classes.append(c.expand(len(rows[-1])))
    seeds, of_class = torch.cat(rows), torch.cat(classes)  # (S,), (S,)
    earlier = (seeds[:, None] == seeds).tril(diagonal=-1).any(dim=1)  # selected by an earlier class
    seeds, of_class = seeds[~earlier], of_class[~earlier]
    return Seeds(seeds, of_class, scores[seeds, of_class])


@dataclass(frozen=True)
class Refinement:
    """The pseudo labels of the refinement streams and their losses.

    Args:
        rule: "oicr", "pcl" or "mist", see :func:`detector.layers.proposal_clusters`; or a function.
        options: keyword arguments of one of the three, such as `graph_iou`.
        loss: of the streams.
        member_iou, ignore_iou, ignore_cover, cover_iou: of :func:`detector.layers.assign_to_seeds`.
    """

    rule: Literal["oicr", "pcl", "mist"] | Rule
    options: Mapping[str, Any] = field(default_factory=dict)
    loss: Loss = cross_entropy_loss
    member_iou: float = 0.5
    ignore_iou: float = 0.1
    ignore_cover: float = 0.0
    cover_iou: float = 0.0

    def clusters(self, sources: Tensor, batch: Batch) -> ProposalClusters:
        """Pseudo labels of the proposals from scores (sum R, C), or of each stream from (K, sum R, C)."""
        if sources.dim() == 2:
            return ProposalClusters(*(field[0] for field in self.clusters(sources[None], batch)))
        assignment: dict[str, Any] = {
            "member_iou": self.member_iou,
            "ignore_iou": self.ignore_iou,
            "ignore_cover": self.ignore_cover,
            "cover_iou": self.cover_iou,
        }
        boxes = batch.boxes
        if isinstance(self.rule, str):
            options = {"method": self.rule, **self.options, **assignment}
            pseudo = proposal_clusters(boxes, sources, batch.labels, batch.counts, **options)
        else:
            sizes, streams = batch.counts.tolist(), []
            for scores in sources:  # (sum R, C)
                images = zip(boxes.split(sizes), scores.split(sizes), batch.labels, strict=True)
                assigned = [assign_to_seeds(b, *self.rule(b, s, y), **assignment) for b, s, y in images]
                streams.append(map(torch.cat, zip(*assigned, strict=True)))
            pseudo = ProposalClusters(*map(torch.stack, zip(*streams, strict=True)))
        pseudo = with_hints(pseudo, sources, batch, **assignment)
        pseudo = with_reviewed(pseudo, batch, self.member_iou)
        if batch.weights is None:
            return pseudo
        # The losses are means over the drawn proposals. These factors make them estimates of the mean over
        # all proposals of an image.
        total = sum_per_image(batch.weights[:, None], batch.counts)[batch.owners, 0]  # (sum R,)
        shown = batch.counts.to(total.device, non_blocking=True)[batch.owners]
        return pseudo._replace(weights=pseudo.weights * (batch.weights * shown / total))
