"""torchvision's FCOS on a feature pyramid, a student of one stage (Tian et al., arXiv 1904.01355).

It scores each place of the maps, with no proposals and no pooling. Two things differ from torchvision's, for
higher AP (benchmarks/results/one_stage_variants_toybox.json): the branch of the centerness learns the IoU of
the box with its object (as in arXiv 1912.05992), and boxes are not empty before training.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection import fcos as torchvision_fcos
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.ops import generalized_box_iou_loss, sigmoid_focal_loss

from detector.self_training.box_weights import sample_weights, weighs
from detector.self_training.faster_rcnn import NMS_IOU, SCORE_THRESHOLD, check_features
from detector.self_training.random_sizes import RandomSizes
from detector.structures import box_area, clip_boxes, scale_boxes

_FIRST_SIDES = 3.0  # strides from a place to each side of its box, before training


class FCOS(torchvision_fcos.FCOS):
    """torchvision's model, which can also tell the scores of its places before any threshold."""

    kind = "FCOS"

    def scores(self, images: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each image, the boxes of the R places with the highest scores; in eval mode.

        Args:
            images: (3, H, W) float32 in [0, 1], each.

        Yields:
            boxes (R, C, 4) float32 xyxy in pixels of the image, equal for all classes, and scores (R, C)
            float32 of the foreground classes, in [0, 1].

        Raises:
            NonFiniteFeatures: float16 overflows, or a weight is not finite.
        """
        batch, _ = self.transform(list(images))
        features = self.backbone(batch.tensors)
        check_features(features)
        maps = list(features.values())
        found = {name: output.float() for name, output in self.head(maps).items()}
        anchors = torch.stack(self.anchor_generator(batch, maps))  # (B, A, 4)
        boxes, scores = self.box_coder.decode(found["bbox_regression"], anchors), place_scores(found)
        found_in = zip(images, batch.image_sizes, anchors, boxes, scores, strict=True)
        for image, resized, image_anchors, image_boxes, image_scores in found_in:
            image_scores = image_scores * in_image(image_anchors, image_scores.new_tensor(resized))[:, None]
            best = image_scores.amax(dim=1).topk(min(self.topk_candidates, len(image_scores))).indices
            scale_y, scale_x = (old / new for old, new in zip(image.shape[-2:], resized, strict=True))
            kept = scale_boxes(clip_boxes(image_boxes[best], *resized), scale_x, scale_y)  # (R, 4)
            yield kept[:, None].repeat(1, image_scores.shape[1], 1), image_scores[best]


def place_scores(found: dict[str, Tensor]) -> Tensor:
    """Scores (B, A, C) of the foreground classes from the outputs of a head, float32: as torchvision's."""
    return (found["cls_logits"].sigmoid() * found["bbox_ctrness"].sigmoid()).sqrt()[..., 1:]


def in_image(anchors: Tensor, size: Tensor) -> Tensor:
    """Whether centers of anchors (A, 4) are in an image, not in padding: (A,).

    Args:
        size: (2,), height and width of the image; or (B, 1, 2) for (B, A).
    """
    return ((anchors[:, :2] + anchors[:, 2:]) / 2 < size.flip(-1)).all(dim=-1)


class WeightedHead(torchvision_fcos.FCOSHead):
    """torchvision's head, whose losses weight each place as box_weights.py says.

    `bbox_ctrness` tells how good a box is: its IoU with the object.
    """

    pseudo_weight = 1.0

    def __init__(self, channels: int, num_classes: int, convs: int) -> None:
        super().__init__(channels, 1, num_classes, convs)
        # From 0, where torchvision begins, the ReLU cuts half of the sides off, without a gradient.
        nn.init.constant_(self.regression_head.bbox_reg.bias, _FIRST_SIDES)

    def compute_loss(
        self,
        targets: list[dict[str, Tensor]],
        head_outputs: dict[str, Tensor],
        anchors: list[Tensor],
        matched_idxs: list[Tensor],
    ) -> dict[str, Tensor]:
        """The losses, each a sum over places divided by the number of those that are to find a box.

        Args:
            anchors: (A, 4) of each image.
            matched_idxs: (A,) int64 each, the box that a place is to find, -1: none.
        """
        found = {name: output.float() for name, output in head_outputs.items()}
        matched = torch.stack(matched_idxs)  # (B, A)
        foreground = matched >= 0
        pairs = list(zip(targets, matched_idxs, strict=True))
        expected = torch.cat([target["boxes"][rows[rows >= 0]] for target, rows in pairs])  # (P, 4)
        labels = torch.cat([target["labels"][rows[rows >= 0]] for target, rows in pairs])  # (P,)
        classes = torch.zeros_like(found["cls_logits"])  # (B, A, C + 1); 0, the background, is never expected
        classes[(*foreground.nonzero(as_tuple=True), labels)] = 1.0
        weights = torch.ones_like(matched, dtype=torch.float32)  # (B, A)
        if weighs(targets, self.pseudo_weight):
            weights = torch.stack(
                [
                    sample_weights(rows >= 0, rows.clip(min=0), target, self.pseudo_weight)
                    for target, rows in pairs
                ]
            )
        places = torch.stack(anchors)[foreground]  # (P, 4)
        boxes = self.box_coder.decode(found["bbox_regression"][foreground], places)
        focal = sigmoid_focal_loss(found["cls_logits"], classes).sum(dim=2)  # (B, A)
        of_boxes = {
            "bbox_regression": generalized_box_iou_loss(boxes, expected),
            "bbox_ctrness": F.binary_cross_entropy_with_logits(
                found["bbox_ctrness"][foreground][:, 0],
                paired_iou(boxes.detach(), expected),
                reduction="none",
            ),
        }
        sums = {name: (loss * weights[foreground]).sum() for name, loss in of_boxes.items()}
        sums = {"classification": (focal * weights).sum()} | sums
        return {name: total / max(1, len(expected)) for name, total in sums.items()}


def paired_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """IoU (P,) of boxes (P, 4) and others (P, 4), row by row; the others are not empty."""
    sides = torch.minimum(boxes[:, 2:], others[:, 2:]) - torch.maximum(boxes[:, :2], others[:, :2])  # (P, 2)
    inside = sides.clamp(min=0).prod(dim=1)
    return inside / (box_area(boxes) + box_area(others) - inside)


def fcos(
    backbone: nn.Module,
    num_classes: int,
    transform: RandomSizes,
    *,
    convs: int = 4,
    test_places: int = 1000,
    pseudo_weight: float = 1.0,
    score_threshold: float = SCORE_THRESHOLD,
    max_detections: int = 100,
) -> FCOS:
    """A detector of `num_classes` foreground classes; it labels them from 1.

    In training mode it maps (images, targets) to losses, in eval mode images to boxes, labels and scores.

    Args:
        backbone: maps images (B, 3, H, W) to an ordered mapping of feature maps; it has `out_channels`, a
            multiple of 32 from 64 on, and `strides`, of each map in pixels.
        transform: from images to their batch, resized and normalized.
        convs: of each of the two towers that follow each map.
        test_places: most places of an image that testing keeps, those with the highest scores.
        pseudo_weight: as of :func:`faster_rcnn`.
    """
    channels, strides = int(backbone.out_channels), tuple(backbone.strides)  # type: ignore[arg-type]
    head = WeightedHead(channels, num_classes + 1, convs)
    head.pseudo_weight = pseudo_weight
    model = FCOS(
        backbone,
        num_classes + 1,
        anchor_generator=AnchorGenerator(tuple((stride,) for stride in strides), ((1.0,),) * len(strides)),
        head=head,
        score_thresh=score_threshold,
        nms_thresh=NMS_IOU,
        detections_per_img=max_detections,
        topk_candidates=test_places,
    )
    model.transform = transform
    return model
