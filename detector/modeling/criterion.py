"""The losses of a weakly supervised detector."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from detector.modeling.doubted_tags import doubt_missing_tags
from detector.modeling.head import HeadOutputs
from detector.modeling.per_image import sum_per_image
from detector.modeling.refinement import Refinement
from detector.modeling.regression import RegressionLoss, StreamRegressionLoss
from detector.modeling.reviewed import only_at_objects
from detector.structures import Batch


def mil_loss(
    mil: Tensor,
    labels: Tensor,
    counts: Tensor,
    reduction: Literal["mean", "sum"] = "mean",
    unknown: Tensor | None = None,
    absent_weight: float = 1.0,
) -> Tensor:
    """Binary cross-entropy of image scores, mean over images (Bilen and Vedaldi, arXiv 1511.02853, eq. 2).

    The score of an image is the sum of mil (sum R, C) over its proposals, clamped to [1e-6, 1 - 1e-6]. An
    image without proposals contributes zero loss. Scores that are NaN give a loss that is NaN.

    Args:
        labels (Tensor[B, C]): 1 where the image shows the class, else 0.
        counts (Tensor[B]): proposals per image, int64, on the CPU.
        reduction: over classes: "mean", or "sum" as the paper writes it.
        unknown (Tensor[B, C]): bool, labels that are unknown and contribute zero loss; None: all are known.
        absent_weight: factor of the loss of classes that an image does not show.
    """
    image_scores = sum_per_image(mil, counts).clamp(1e-6, 1 - 1e-6)  # (B, C)
    # torch raises an unspecific error for NaN, on a GPU one that ends the process. Here, the loss is NaN.
    valid = image_scores.isfinite()
    losses = binary_cross_entropy(image_scores.where(valid, 0.5), labels, reduction="none")  # (B, C)
    losses = losses.where(valid, torch.nan)
    if absent_weight != 1:
        losses = losses.where(labels > 0, absent_weight * losses)
    if unknown is not None:
        losses = losses.masked_fill(unknown, 0)
    losses = losses.mean(dim=1) if reduction == "mean" else losses.sum(dim=1)
    return (losses * (counts > 0).to(losses.device, non_blocking=True)).mean()


class Criterion:
    """All losses of a batch by name, already weighted: the total loss is their sum.

    "mil" always; "refine_1" to "refine_K" with refinement; "regress_classes" and "regress_boxes" with a
    regression branch, or "regress_1" to "regress_K" if each stream regresses boxes; "image" if the model has
    an ImageHead.

    Stream k learns pseudo labels from the scores of stream k - 1, the first stream from the MIL scores. The
    regression branch learns pseudo labels from the last stream, or from the MIL scores without streams.

    A class whose label is unknown for an image has no loss there: no MIL loss, no pseudo labels, and the
    softmax of the streams is over the other classes.

    Args:
        unknown_from, shown_from: of :func:`doubt_missing_tags`; 0: no tag is doubted.
        absent_weight: factor of the losses "mil" and "image" of classes that an image does not show.
    """

    def __init__(
        self,
        refinement: Refinement | None,
        *,
        mil_reduction: Literal["mean", "sum"] = "mean",
        stream_weights: Sequence[float] = (1.0, 1.0, 1.0),
        regression: RegressionLoss | StreamRegressionLoss | None = None,
        unknown_from: float = 0.0,
        shown_from: float = 0.0,
        absent_weight: float = 1.0,
    ) -> None:
        if refinement is None and isinstance(regression, StreamRegressionLoss):
            raise ValueError("StreamRegressionLoss needs refinement streams, but refinement is None")
        self.refinement = refinement
        self.mil_reduction = mil_reduction
        self.stream_weights = tuple(stream_weights) if refinement else ()
        self.regression = regression
        self.unknown_from, self.shown_from = unknown_from or math.inf, shown_from or math.inf
        self.absent_weight = absent_weight

    def __call__(self, outputs: HeadOutputs, batch: Batch) -> dict[str, Tensor]:
        if self.regression is not None and outputs.regression is None:
            raise ValueError("the criterion has a loss for regressed boxes, but the model regresses none")
        mil, background = self._mil_scores(outputs, batch)
        if min(self.unknown_from, self.shown_from) < math.inf:
            if outputs.image_logits is None:
                scores = sum_per_image(mil.detach(), batch.counts)  # (B, C)
            else:
                scores = outputs.image_logits.detach().float().sigmoid()
            batch = doubt_missing_tags(
                batch, scores, unknown_from=self.unknown_from, shown_from=self.shown_from
            )
        losses = {"mil": self._mil_loss(mil, background, batch)}
        outputs = _without_unknown(outputs, batch)
        probs, branch = outputs.refinements, outputs.regression
        if self.refinement is not None:
            sources = torch.cat([outputs.mil[None], probs[:-1, :, 1:]]).detach()  # (K, sum R, C)
            pseudo = self.refinement.clusters(sources, batch)  # (K, sum R)
            losses |= self._weighted("refine", self.refinement.loss(probs, pseudo, batch.counts))
            if branch is not None and isinstance(self.regression, StreamRegressionLoss):
                losses |= self._weighted("regress", self.regression(branch, pseudo, batch))
        if branch is not None and isinstance(self.regression, RegressionLoss):
            last = probs[-1, :, 1:] if len(probs) else outputs.mil  # (sum R, C)
            losses |= self.regression(branch, last.detach(), batch)
        if outputs.image_logits is not None:
            weights = torch.where(batch.labels > 0, 1.0, self.absent_weight)
            weights = weights if batch.unknown is None else weights.masked_fill(batch.unknown, 0)
            logits = outputs.image_logits.float()
            losses["image"] = binary_cross_entropy_with_logits(logits, batch.labels, weight=weights)
        return losses

    def _mil_scores(self, outputs: HeadOutputs, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The scores (sum R, C) that sum to those of the images, and those of the background (sum R, 1)."""
        mil = only_at_objects(outputs.mil, batch)
        background = outputs.mil_background
        if batch.weights is not None:  # the sums are estimates of those over all tiles
            mil = mil * batch.weights[:, None]
            background = None if background is None else background * batch.weights[:, None]
        return mil, background

    def _mil_loss(self, mil: Tensor, background: Tensor | None, batch: Batch) -> Tensor:
        labels, unknown = batch.labels, batch.unknown
        if background is not None:  # a class that is absent from all images
            mil = torch.cat([background, mil], dim=1)
            labels = torch.cat([torch.zeros_like(labels[:, :1]), labels], dim=1)
            if unknown is not None:
                unknown = torch.cat([torch.zeros_like(unknown[:, :1]), unknown], dim=1)
        return mil_loss(mil, labels, batch.counts, self.mil_reduction, unknown, self.absent_weight)

    def _weighted(self, name: str, streams: Tensor) -> dict[str, Tensor]:
        """The weighted losses (K,) of the streams by name."""
        pairs = zip(streams, self.stream_weights, strict=True)
        return {f"{name}_{k}": weight * loss for k, (loss, weight) in enumerate(pairs, start=1)}


def _without_unknown(outputs: HeadOutputs, batch: Batch) -> HeadOutputs:
    """The outputs with the softmax of streams and regression branch over background and the known classes."""
    if batch.unknown is None:
        return outputs
    unknown = batch.unknown[batch.owners]  # (sum R, C)
    unknown = torch.cat([torch.zeros_like(unknown[:, :1]), unknown], dim=1)  # (sum R, C + 1)
    probs = outputs.refinements.masked_fill(unknown, 0)  # (K, sum R, C + 1)
    probs = probs / probs.sum(dim=2, keepdim=True).clamp(min=1e-9)
    branch = outputs.regression
    if branch is not None and branch.logits is not None:
        branch = replace(branch, logits=branch.logits.masked_fill(unknown, -torch.inf))
    return replace(outputs, refinements=probs, regression=branch)
