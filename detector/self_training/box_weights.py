"""Losses of Faster R-CNN with lower weights for uncertain boxes and uncertain background.

In a target, `reviewed` () is the number of leading boxes that a person has reviewed; `complete` () says
whether these are all objects of the image. Reviewed boxes have the weight 1, pseudo boxes less, and so has
the background of an image that is not complete, as it may show other objects. If a target has `weights`
(G,), the weight of a box is multiplied by its own. As in torchvision, sums are divided by the number of
samples, whatever their weights: half the weight is half the gradient.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.roi_heads import RoIHeads

from detector.structures import box_iou

_BETA = 1 / 9  # of torchvision's smooth L1 losses of boxes


def sample_weights(
    foreground: Tensor, matched: Tensor, target: Mapping[str, Tensor], pseudo_weight: float
) -> Tensor:
    """The weights (R,) of the samples, RoIs or anchors, of one image.

    Args:
        foreground: (R,) bool.
        matched: (R,) int64, the box that a foreground sample matches.
    """
    true = torch.where(foreground, matched < target["reviewed"], target["complete"])
    weights = torch.where(true, 1.0, pseudo_weight)
    if "weights" not in target or not len(target["weights"]):
        return weights
    return weights.where(~foreground, weights * target["weights"][matched])


def weighs(targets: Sequence[Mapping[str, Tensor]], pseudo_weight: float) -> bool:
    """Whether any sample may have another weight than 1."""
    return pseudo_weight != 1 or "weights" in targets[0]


def anchor_weights(
    anchors: Sequence[Tensor],
    labels: Sequence[Tensor],
    targets: Sequence[Mapping[str, Tensor]],
    pseudo_weight: float,
) -> Tensor:
    """The weights (sum A,) of anchors (A, 4) of several images; labels (A,) are 1 where one matches a box."""
    weights = []
    for boxes, label, target in zip(anchors, labels, targets, strict=True):
        rows, matched = (label > 0).nonzero()[:, 0], torch.zeros_like(label, dtype=torch.int64)
        if len(rows):  # torchvision's matcher takes the box of the highest IoU, but does not tell which
            matched[rows] = box_iou(target["boxes"], boxes[rows]).argmax(dim=0)
        weights.append(sample_weights(label > 0, matched, target, pseudo_weight))
    return torch.cat(weights)


def weighted_losses(
    classification: Tensor, deltas: Tensor, expected: Tensor, weights: Tensor, positive: Tensor
) -> tuple[Tensor, Tensor]:
    """The weighted losses of classes and boxes, each summed over R samples and divided by R.

    Args:
        classification: (R,) losses.
        deltas, expected: (P, 4) of the foreground samples.
        weights: (R,).
        positive: (P,) int64, the indices of the foreground samples.
    """
    boxes = F.smooth_l1_loss(deltas, expected, beta=_BETA, reduction="none").sum(dim=1)  # (P,)
    count = len(classification)
    return (weights * classification).sum() / count, (weights[positive] * boxes).sum() / count


class WeightedRoIHeads(RoIHeads):
    """torchvision's RoI heads, whose losses weight each RoI."""

    pseudo_weight = 1.0

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: list[dict[str, Tensor]] | None = None,
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        """As torchvision's; with weights, training reads `reviewed` and `complete` of targets."""
        if not self.training or targets is None or not weighs(targets, self.pseudo_weight):
            return super().forward(features, proposals, image_shapes, targets)
        rois, matched, labels, deltas = self.select_training_samples(proposals, targets)
        pooled = self.box_head(self.box_roi_pool(features, rois, image_shapes))
        logits, found = self.box_predictor(pooled)
        samples = zip(labels, matched, targets, strict=True)
        weights = torch.cat([sample_weights(y > 0, m, t, self.pseudo_weight) for y, m, t in samples])
        label = torch.cat(labels)
        losses = F.cross_entropy(logits, label, reduction="none")  # (sum R,)
        positive = (label > 0).nonzero()[:, 0]
        found = found.unflatten(1, (-1, 4))[positive, label[positive]]
        classes, boxes = weighted_losses(losses, found, torch.cat(deltas)[positive], weights, positive)
        return [], {"loss_classifier": classes, "loss_box_reg": boxes}
