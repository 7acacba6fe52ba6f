"""The detector: backbone, RoI features, head."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from detector.modeling.backbones import Backbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.head import HeadOutputs


class WeakRCNN(nn.Module):
    """A Fast R-CNN that scores given proposals, and regresses boxes if it has a regression branch.

    Args:
        pixel_mean, pixel_std: of red, green and blue in [0, 1]; the backbone gets (image / 255 - mean) / std.
        recompute_backbone: recompute the activations of the backbone in the backward pass to save memory.
    """

    pixel_mean: Tensor
    pixel_std: Tensor

    def __init__(
        self,
        backbone: Backbone,
        box_features: BoxFeatures,
        head: nn.Module,
        image_head: nn.Module | None = None,
        regression: nn.Module | None = None,
        *,
        pixel_mean: Sequence[float],
        pixel_std: Sequence[float],
        recompute_backbone: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.box_features = box_features
        self.head = head
        self.image_head = image_head
        self.regression = regression
        self.recompute_backbone = recompute_backbone
        # Not in the state dict, as they are settings: INPUT.MEAN and INPUT.STD.
        self.register_buffer("pixel_mean", torch.tensor(pixel_mean), persistent=False)
        self.register_buffer("pixel_std", torch.tensor(pixel_std), persistent=False)

    def forward(
        self,
        images: Tensor,
        rois: Tensor,
        counts: Tensor,
        sizes: Tensor | None = None,
        tiles: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> HeadOutputs:
        """Score the proposals of a batch.

        Args:
            images (Tensor[B, 3, H, W]): RGB in 0 to 255, uint8 or float; padded at the right and the bottom.
            rois (Tensor[sum R, 5]): image index, x1, y1, x2, y2 in pixels; images in order.
            counts (Tensor[B]): proposals per image, int64, on the CPU.
            sizes (Tensor[B, 2]): (height, width) of each image without its padding; None: there is none.
            tiles (Tensor[B]): number of tiles of each image, int64, on the CPU; None: `images` are whole.
            weights (Tensor[sum R]): how many proposals of its image each represents; None: itself.
        """
        features = self.features(images, sizes)  # (B, D, H / stride, W / stride)
        box_features = self.box_features(features, rois)  # (sum R, F)
        return replace(
            self.head(box_features, counts, self.box_features.context_features(features, rois), weights),
            image_logits=self.image_head(features, tiles) if self.image_head is not None else None,
            regression=self.regression(box_features) if self.regression is not None else None,
        )

    def _normalize(self, images: Tensor, sizes: Tensor | None) -> Tensor:
        """Normalized images, float32; the padding becomes 0, the mean color."""
        scale, shift = self.pixel_std * 255, self.pixel_mean / self.pixel_std  # (3,) each
        images = images / scale[:, None, None] - shift[:, None, None]  # (B, 3, H, W)
        if sizes is None:
            return images
        height, width = (torch.arange(side, device=images.device) for side in images.shape[2:])
        inside = (height < sizes[:, :1])[:, :, None] & (width < sizes[:, 1:])[:, None, :]  # (B, H, W)
        return torch.where(inside[:, None], images, 0.0)

    def features(self, images: Tensor, sizes: Tensor | None = None) -> Tensor:
        """Features (B, D, H / stride, W / stride) of the backbone; arguments as for a call."""
        images = self._normalize(images, sizes)
        if self.recompute_backbone and torch.is_grad_enabled():
            return checkpoint(self.backbone, images, use_reentrant=False)
        return self.backbone(images)


def compile_model(model: WeakRCNN, backend: str | Callable = "inductor") -> None:
    """Compile the backbone and the fully connected layers at their first call; state_dict keys are unchanged.

    Image sizes and numbers of proposals are symbolic, so a new size does not recompile. There is one
    compilation for training and one for testing, and one for a single image and one for several (for each
    number of images if VGG16 runs them one by one). The other parts are not compiled: our ops are compiled
    already, and the head splits proposals by `counts`, which are values on the host.
    """
    # torch.compile specializes sizes of 1, and features of some sizes, beyond the default limit.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 16)
    model.backbone.compile(dynamic=True, backend=backend)
    model.box_features.layers.compile(dynamic=True, backend=backend)
