"""The detector: backbone, RoI features, head."""

from dataclasses import replace

from torch import Tensor, nn

from detector.modeling.head import HeadOutputs


class WeakRCNN(nn.Module):
    """A Fast R-CNN without box regression that scores given proposals; takes its parts ready made."""

    def __init__(
        self,
        backbone: nn.Module,
        box_features: nn.Module,
        head: nn.Module,
        image_head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.box_features = box_features
        self.head = head
        self.image_head = image_head

    def forward(self, images: Tensor, rois: Tensor, counts: Tensor) -> HeadOutputs:
        """Score the proposals of a batch.

        Args:
            images (Tensor[B, 3, H, W]): normalised images.
            rois (Tensor[sum R, 5]): image index, x1, y1, x2, y2 in pixels; images in order.
            counts (Tensor[B]): proposals per image, int64, on the CPU.
        """
        features = self.backbone(images)  # (B, D, H / stride, W / stride)
        outputs = self.head(self.box_features(features, rois), counts)
        if self.image_head is None:
            return outputs
        return replace(outputs, image_logits=self.image_head(features))
