"""Tags that may be wrong: from the probability that an image shows a class to that of its tag, and back."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from detector.structures import Batch


@dataclass(frozen=True)
class TagNoise:
    """How often tags are wrong: for all images, or (B, 1) for each.

    Losses compare the tag with the probability of the tag, not of the class, so that their minimum is where
    it is with right tags (forward correction: Patrini et al., Making Deep Neural Networks Robust to Label
    Noise, CVPR 2017, arXiv 1609.03683). A missing or false tag then has a bounded loss.

    Args:
        missing: share of the images that show a class without its tag.
        false: share of the images that do not show a class, and have its tag.
    """

    missing: float | Tensor = 0.0
    false: float | Tensor = 0.0

    def of(self, batch: Batch) -> "TagNoise":
        """The same with right tags for images whose objects a person has all reviewed."""
        if not batch.reviewed:
            return self
        complete = [[boxes is not None and boxes.complete] for boxes in batch.reviewed]
        doubtful = 1 - torch.tensor(complete).to(batch.labels, non_blocking=True)  # (B, 1)
        return TagNoise(self.missing * doubtful, self.false * doubtful)

    def tagged(self, shown: Tensor) -> Tensor:
        """The probability (B, C) of a tag, from that (B, C) of an image to show the class."""
        return self.false + (1 - self.missing - self.false) * shown

    def shown(self, tags: Tensor, prior: Tensor) -> Tensor:
        """The probability (B, C) that an image shows a class: `prior`, once its tag, 0 or 1, is known."""
        tagged = tags > 0
        of_shown = torch.where(tagged, 1 - self.missing, self.missing) * prior
        of_others = torch.where(tagged, self.false, 1 - self.false) * (1 - prior)
        return of_shown / (of_shown + of_others).clamp(min=1e-9)

    def likely(self, tags: Tensor, prior: Tensor) -> Tensor:
        """The tags (B, C), 0 or 1, that are more likely than not; an image keeps the best of its own."""
        shown = self.shown(tags, prior)
        own = shown.masked_fill(tags == 0, -1.0)
        best = (tags > 0) & (own == own.amax(dim=1, keepdim=True))
        return ((shown > 0.5) | best).to(tags.dtype)


def with_likely_tags(batch: Batch, noise: TagNoise, prior: Tensor) -> Batch:
    """The batch with its likely tags, of :meth:`TagNoise.likely`; unknown tags stay unknown."""
    labels = noise.of(batch).likely(batch.labels, prior)
    if batch.unknown is not None:
        labels = labels.masked_fill(batch.unknown, 0)
    return replace(batch, labels=labels)
