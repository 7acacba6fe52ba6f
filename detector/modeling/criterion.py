"""The losses of a weakly supervised detector."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from detector.modeling.head import HeadOutputs
from detector.modeling.per_image import sum_per_image
from detector.modeling.refinement import Refinement
from detector.modeling.regression import RegressionLoss, StreamRegressionLoss
from detector.modeling.reviewed import only_at_objects
from detector.modeling.tag_noise import TagNoise, with_likely_tags
from detector.structures import Batch


def mil_loss(
    mil: Tensor,
    labels: Tensor,
    counts: Tensor,
    reduction: Literal["mean", "sum"] = "mean",
    unknown: Tensor | None = None,
    noise: TagNoise | None = None,
) -> Tensor:
    """Binary cross-entropy of image scores, mean over images (Bilen and Vedaldi, arXiv 1511.02853, eq. 2).

    The score of an image is the sum of mil (sum R, C) over its proposals, clamped to [1e-6, 1 - 1e-6]. An
    image without proposals contributes zero loss. Scores that are NaN give a loss that is NaN.

    Args:
        labels (Tensor[B, C]): 1 where the image shows the class, else 0.
        counts (Tensor[B]): proposals per image, int64, on the CPU.
        reduction: over classes: "mean", or "sum" as the paper writes it.
        unknown (Tensor[B, C]): bool, labels that are unknown and contribute zero loss; None: all are known.
        noise: how often labels are wrong; None: never.
    """
    image_scores = sum_per_image(mil, counts).clamp(1e-6, 1 - 1e-6)  # (B, C)
    if noise is not None:
        image_scores = noise.tagged(image_scores)
    # torch raises an unspecific error for NaN, on a GPU one that ends the process. Here, the loss is NaN.
    valid = image_scores.isfinite()
    losses = binary_cross_entropy(image_scores.where(valid, 0.5), labels, reduction="none")  # (B, C)
    losses = losses.where(valid, torch.nan)
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
        noise: how often tags are wrong. "mil" and "image" then compare tags with their probability, and
            pseudo labels are of the likely tags; None: tags are right.
    """

    def __init__(
        self,
        refinement: Refinement | None,
        *,
        mil_reduction: Literal["mean", "sum"] = "mean",
        stream_weights: Sequence[float] = (1.0, 1.0, 1.0),
        regression: RegressionLoss | StreamRegressionLoss | None = None,
        noise: TagNoise | None = None,
    ) -> None:
        if refinement is None and isinstance(regression, StreamRegressionLoss):
            raise ValueError("StreamRegressionLoss needs refinement streams, but refinement is None")
        self.refinement = refinement
        self.mil_reduction = mil_reduction
        self.stream_weights = tuple(stream_weights) if refinement else ()
        self.regression = regression
        self.noise = noise

    def __call__(self, outputs: HeadOutputs, batch: Batch) -> dict[str, Tensor]:
        if self.regression is not None and outputs.regression is None:
            raise ValueError("the criterion has a loss for regressed boxes, but the model regresses none")
        losses = {"mil": self._mil_loss(outputs, batch)}
        tagged = batch
        if self.noise is not None:
            batch = with_likely_tags(batch, self.noise, _shown(outputs, batch))
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
            losses["image"] = self._image_loss(outputs.image_logits, tagged)
        return losses

    def _image_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        known = None if batch.unknown is None else (~batch.unknown).float()
        if self.noise is None:
            return binary_cross_entropy_with_logits(logits.float(), batch.labels, weight=known)
        tagged = self.noise.of(batch).tagged(logits.float().sigmoid().clamp(1e-6, 1 - 1e-6))
        losses = -torch.where(batch.labels > 0, tagged, 1 - tagged).log()  # with NaN torch's would raise
        return (losses if known is None else losses * known).mean()

    def _mil_loss(self, outputs: HeadOutputs, batch: Batch) -> Tensor:
        mil = only_at_objects(outputs.mil, batch)
        background = outputs.mil_background
        if batch.weights is not None:  # the sums are estimates of those over all tiles
            mil = mil * batch.weights[:, None]
            background = None if background is None else background * batch.weights[:, None]
        labels, unknown = batch.labels, batch.unknown
        if background is not None:  # a class that is absent from all images
            mil = torch.cat([background, mil], dim=1)
            labels = torch.cat([torch.zeros_like(labels[:, :1]), labels], dim=1)
            if unknown is not None:
                unknown = torch.cat([torch.zeros_like(unknown[:, :1]), unknown], dim=1)
        noise = None if self.noise is None else self.noise.of(batch)
        return mil_loss(mil, labels, batch.counts, self.mil_reduction, unknown, noise)

    def _weighted(self, name: str, streams: Tensor) -> dict[str, Tensor]:
        """The weighted losses (K,) of the streams by name."""
        pairs = zip(streams, self.stream_weights, strict=True)
        return {f"{name}_{k}": weight * loss for k, (loss, weight) in enumerate(pairs, start=1)}


@torch.no_grad()
def _shown(outputs: HeadOutputs, batch: Batch) -> Tensor:
    """The probability (B, C) that an image shows a class: of the image head, where there is one."""
    if outputs.image_logits is not None:
        return outputs.image_logits.float().sigmoid()
    mil = outputs.mil if batch.weights is None else outputs.mil * batch.weights[:, None]
    return sum_per_image(mil, batch.counts).clamp(0, 1)


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
