"""Random sizes of the training images of torchvision's detectors."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform, resize_boxes


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
        least = max(size) // self.max_size + 1
        if min(size) < least:
            thicker = max(size[0], least), max(size[1], least)
            image = F.interpolate(image[None], thicker, mode="bilinear")[0]
            if target is not None:
                target["boxes"] = resize_boxes(target["boxes"], list(size), list(thicker))
        return super().resize(image, target)

    def torch_choice(self, k: Sequence[int]) -> int:
        """The size of the batch; torchvision asks for each image, in training alone."""
        return self._size
