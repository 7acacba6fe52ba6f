"""The sizes to which torchvision's detectors resize images, and random ones for training."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes


def resized_size(size: Sequence[int], shortest: int, longest: int) -> tuple[int, int]:
    """(height, width) to which an image of `size` is resized, at least a pixel each.

    As in torchvision, the scale is a float64 and the sides are rounded down, so that other arithmetic gives
    other sizes: `exported_student.resized_size` is the same with tensors.

    Args:
        shortest: the length of the shorter side,
        longest: the greatest length of the longer one, which comes first.
    """
    scale = min(shortest / min(size), longest / max(size))
    height, width = (max(1, math.floor(side * scale)) for side in size)
    return height, width


class RandomSizes(GeneralizedRCNNTransform):
    """torchvision's transform, but training draws one size for all images of a batch, and scales it.

    With a size for each, the small images of a batch are padded to the largest one: on photographs a batch
    then has 37 % more pixels, for the same accuracy (docs/RESULTS.md, new views).

    Args:
        sizes: of the shortest side in pixels; training draws one for each batch, testing uses the last.
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
        self._size = 0  # of the batch

    def forward(
        self, images: list[Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> tuple[ImageList, list[dict[str, Tensor]] | None]:
        """As torchvision's: the batch, padded, with its targets resized."""
        if self.training:
            low, high = self.scale_jitter
            size = self.min_size[int(torch.randint(len(self.min_size), ()))]
            self._size = max(1, round(size * (low + (high - low) * float(torch.rand(())))))
        return super().forward(images, targets)

    def resize(
        self, image: Tensor, target: dict[str, Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor] | None]:
        """As torchvision's, but a pixel at least is left of the shorter side of a very thin image."""
        size = image.shape[-2:]
        resized = resized_size(size, self._size if self.training else self.min_size[-1], self.max_size)
        image = F.interpolate(image[None], resized, mode="bilinear")[0]
        if target is not None:
            target["boxes"] = resize_boxes(target["boxes"], list(size), list(resized))
        return image, target
