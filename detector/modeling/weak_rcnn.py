"""The detector: backbone, RoI features, head."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from detector.modeling.head import HeadOutputs


class WeakRCNN(nn.Module):
    """A Fast R-CNN that scores given proposals, and moves them if it has a regression branch; takes its parts
    ready made.

    Args:
        recompute_backbone: keep none of the backbone's activations, but compute them anew for the gradient.
    """

    def __init__(
        self,
        backbone: nn.Module,
        box_features: nn.Module,
        head: nn.Module,
        image_head: nn.Module | None = None,
        regression: nn.Module | None = None,
        *,
        recompute_backbone: bool = False,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.box_features = box_features
        self.head = head
        self.image_head = image_head
        self.regression = regression
        self.recompute_backbone = recompute_backbone

    def forward(self, images: Tensor, rois: Tensor, counts: Tensor) -> HeadOutputs:
        """Score the proposals of a batch.

        Args:
            images (Tensor[B, 3, H, W]): normalized images.
            rois (Tensor[sum R, 5]): image index, x1, y1, x2, y2 in pixels; images in order.
            counts (Tensor[B]): proposals per image, int64, on the CPU.
        """
        features = self._features(images)  # (B, D, H / stride, W / stride)
        box_features = self.box_features(features, rois)  # (sum R, F)
        return replace(
            self.head(box_features, counts, self.box_features.context_features(features, rois)),
            image_logits=self.image_head(features) if self.image_head is not None else None,
            regression=self.regression(box_features) if self.regression is not None else None,
        )

    def _features(self, images: Tensor) -> Tensor:
        if self.recompute_backbone and torch.is_grad_enabled():
            return checkpoint(self.backbone, images, use_reentrant=False)
        return self.backbone(images)
