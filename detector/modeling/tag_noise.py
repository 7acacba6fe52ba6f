"""Tags that may be wrong: from the probability that an image shows a class to that of its tag, and back."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from detector.structures import Batch


@dataclass(frozen=True)
class TagNoise:
    """How often tags are wrong, the same for all classes and images.

    Losses compare the tag with the probability of the tag, not of the class, so that their minimum is where
    it is with right tags (forward correction: Patrini et al., Making Deep Neural Networks Robust to Label
    Noise, CVPR 2017, arXiv 1609.03683). A missing or false tag then has a bounded loss.

    Args:
        missing: share of the images that show a class without its tag.
        false: share of the images that do not show a class, and have its tag.
    """

    missing: float = 0.0
    false: float = 0.0

    def __bool__(self) -> bool:
        return self.missing > 0 or self.false > 0

    def tagged(self, shown: Tensor) -> Tensor:
        """The probability of a tag, from the probability that the image shows the class."""
        return self.false + (1 - self.missing - self.false) * shown

    def shown_given(self, tags: Tensor, shown: Tensor) -> Tensor:
        """The probability (...) that an image shows a class, once its tags (...), 0 or 1, are known, too."""
        of_shown, of_others = (
            torch.where(tags > 0, rate, 1 - rate) for rate in (1 - self.missing, self.false)
        )
        joint = of_shown * shown
        return joint / (joint + of_others * (1 - shown)).clamp(min=1e-9)

    def likely_tags(self, batch: Batch, shown: Tensor) -> Batch:
        """The batch with the tags that are more likely than not, given the probabilities `shown` (B, C).

        Unknown tags stay unknown, and an image keeps the most likely of its tags.
        """
        likely = self.shown_given(batch.labels, shown)  # (B, C)
        best = likely == likely.amax(dim=1, keepdim=True)
        labels = (likely > 0.5) | (best & (batch.labels > 0))
        if batch.unknown is not None:
            labels &= ~batch.unknown
        return replace(batch, labels=labels.to(batch.labels.dtype))
