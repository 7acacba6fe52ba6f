"""Random sizes of the training images of torchvision's detectors."""

from collections.abc import Sequence

import torch
from torchvision.models.detection.transform import GeneralizedRCNNTransform


class RandomSizes(GeneralizedRCNNTransform):
    """torchvision's transform, whose training also scales each size that it draws by a random factor.

    Args:
        sizes: of the shortest side in pixels; training draws one for each image, testing uses the last.
        max_size: maximum length of the longer side, whatever the factor.
        mean, std: of red, green and blue in [0, 1].
        scale_jitter: least and most of the factor, which is drawn evenly; (1, 1): none.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        max_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        scale_jitter: Sequence[float] = (1.0, 1.0),
    ):
        super().__init__(tuple(sizes), max_size, list(mean), list(std))  # type: ignore[arg-type]
        self.scale_jitter = tuple(scale_jitter)

    def torch_choice(self, k: Sequence[int]) -> int:
        """One of the sizes `k`, scaled; torchvision calls this in training alone."""
        if self.scale_jitter == (1.0, 1.0):
            return super().torch_choice(k)  # type: ignore[arg-type]
        low, high = self.scale_jitter
        size = k[int(torch.randint(len(k), ()))]
        return max(1, round(size * (low + (high - low) * float(torch.rand(())))))
