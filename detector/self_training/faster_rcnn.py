"""torchvision's Faster R-CNN on a feature pyramid, for training on boxes (Ren et al., arXiv 1506.01497)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import (
    RegionProposalNetwork,
    RPNHead,
    concat_box_prediction_layers,
)
from torchvision.ops import MultiScaleRoIAlign, clip_boxes_to_image

from detector.layers import batched_nms, roi_align
from detector.self_training.box_weights import WeightedRoIHeads, anchor_weights, weighs, weighted_losses
from detector.self_training.random_sizes import RandomSizes
from detector.structures import box_area, boxes_to_rois, clip_boxes, scale_boxes
from detector.utils.errors import UserError

PADDED_TO = 32  # pixels: the sides of batches are multiples of it
SCORE_THRESHOLD, NMS_IOU = 1e-3, 0.5  # of detections: torchvision's NMS, and a lower score for AP


class NonFiniteFeatures(UserError, FloatingPointError):
    """The features of images are NaN or infinite; the network would drop their proposals silently."""


def check_features(features: Mapping[str, Tensor]) -> None:
    """Raise NonFiniteFeatures where a feature map is not finite."""
    if not torch.stack([values.isfinite().all() for values in features.values()]).all():
        raise NonFiniteFeatures("the features are not finite: take PRECISION bf16 or float32")


class FasterRCNN(GeneralizedRCNN):
    """torchvision's model, which can also tell the scores of its proposals before any threshold."""

    kind = "Faster R-CNN"

    def scores(self, images: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each image, a box of each class for each of its R proposals, and its score; in eval mode.

        Args:
            images: (3, H, W) float32 in [0, 1], each.

        Yields:
            boxes (R, C, 4) float32 xyxy in pixels of the image, and probabilities (R, C) float32 of the
            foreground classes.

        Raises:
            NonFiniteFeatures: float16 overflows, or a weight is not finite.
        """
        batch, _ = self.transform(list(images))
        features = self.backbone(batch.tensors)
        check_features(features)
        proposals, _ = self.rpn(batch, features)
        heads = self.roi_heads
        pooled = heads.box_roi_pool(features, proposals, batch.image_sizes)
        logits, deltas = heads.box_predictor(heads.box_head(pooled))
        boxes = heads.box_coder.decode_single(deltas.float(), torch.cat(proposals))  # (sum R, 4 (C + 1))
        boxes = boxes.unflatten(1, (-1, 4))[:, 1:]  # (sum R, C, 4)
        probabilities = logits.float().softmax(dim=1)[:, 1:]  # (sum R, C)
        counts = [len(image_proposals) for image_proposals in proposals]
        found = zip(images, batch.image_sizes, boxes.split(counts), probabilities.split(counts), strict=True)
        for image, resized, image_boxes, image_scores in found:
            scale_y, scale_x = (old / new for old, new in zip(image.shape[-2:], resized, strict=True))
            yield scale_boxes(clip_boxes(image_boxes, *resized), scale_x, scale_y), image_scores


class HeadSize(NamedTuple):
    """What classifies proposals, and how many there are."""

    cells: int  # side of the grid that is pooled
    width: int  # units of both fully connected layers
    proposals: int  # of an image in training, before and after NMS


TORCHVISION_SIZE, SMALL_SIZE = HeadSize(7, 1024, 2000), HeadSize(5, 256, 500)


def faster_rcnn(
    backbone: nn.Module,
    num_classes: int,
    transform: RandomSizes,
    *,
    size: HeadSize = TORCHVISION_SIZE,
    rois: int = 512,
    test_proposals: int = 1000,
    pseudo_weight: float = 1.0,
    score_threshold: float = SCORE_THRESHOLD,
    max_detections: int = 100,
) -> FasterRCNN:
    """A detector of `num_classes` foreground classes; it labels them from 1.

    In training mode it maps (images, targets) to losses, in eval mode images to boxes, labels and scores.

    Args:
        backbone: maps images (B, 3, H, W) to an ordered mapping of feature maps; it has `out_channels` and
            `anchors`, the sides of the anchors of each map, in pixels of the resized image.
        transform: from images to their batch, resized and normalized.
        size: of what classifies the proposals.
        rois: proposals of an image that it learns from, a quarter of them objects if there are so many.
        test_proposals: most proposals of an image that are classified in testing.
        pseudo_weight: of the losses at boxes, and in the background, that are a guess, see box_weights.py.
            With less than 1, targets have `reviewed` and `complete`.
    """
    channels, sides = int(backbone.out_channels), tuple(backbone.anchors)  # type: ignore[arg-type]
    anchors = AnchorGenerator(sides, ((0.5, 1.0, 2.0),) * len(sides))
    rpn = ProposalNetwork(
        anchors,
        RPNHead(channels, anchors.num_anchors_per_location()[0]),
        fg_iou_thresh=0.7,
        bg_iou_thresh=0.3,
        batch_size_per_image=256,
        positive_fraction=0.5,
        pre_nms_top_n={"training": size.proposals, "testing": 1000},
        post_nms_top_n={"training": size.proposals, "testing": test_proposals},
        nms_thresh=0.7,
    )
    heads = WeightedRoIHeads(
        PyramidRoIAlign(["0", "1", "2", "3"], output_size=size.cells, sampling_ratio=2),
        TwoMLPHead(channels * size.cells**2, size.width),
        FastRCNNPredictor(size.width, num_classes + 1),
        fg_iou_thresh=0.5,
        bg_iou_thresh=0.5,
        batch_size_per_image=rois,
        positive_fraction=0.25,
        bbox_reg_weights=None,
        score_thresh=score_threshold,
        nms_thresh=NMS_IOU,
        detections_per_img=max_detections,
    )
    rpn.pseudo_weight = heads.pseudo_weight = pseudo_weight
    return FasterRCNN(backbone, rpn, heads, transform)


class ProposalNetwork(RegionProposalNetwork):
    """torchvision's region proposal network with detector.layers.batched_nms and weights of boxes.

    torchvision's NMS took 28 % of the GPU time of a step on 8 Doom images. The results are the same, except
    that torchvision separates levels by an offset, which rounds coordinates.
    """

    pseudo_weight = 1.0

    def forward(
        self, images: ImageList, features: dict[str, Tensor], targets: list[dict[str, Tensor]] | None = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """As torchvision's; its losses have no weights, so those with weights repeat what it does."""
        if not self.training or targets is None or not weighs(targets, self.pseudo_weight):
            return super().forward(images, features, targets)
        maps = list(features.values())
        logits_of, deltas_of = self.head(maps)
        anchors = self.anchor_generator(images, maps)
        counts = [logits[0].numel() for logits in logits_of]  # anchors of each level
        logits, deltas = concat_box_prediction_layers(logits_of, deltas_of)  # (B * A, 1), (B * A, 4)
        decoded = self.box_coder.decode(deltas.detach(), anchors).view(len(anchors), -1, 4)
        boxes, _ = self.filter_proposals(decoded, logits, images.image_sizes, counts)
        labels, matched_boxes = self.assign_targets_to_anchors(anchors, targets)
        expected = self.box_coder.encode(matched_boxes, anchors)
        masks = self.fg_bg_sampler(labels)
        positive, negative = (torch.cat(mask).nonzero()[:, 0] for mask in masks)
        sampled = torch.cat([positive, negative])
        weights = anchor_weights(anchors, labels, targets, self.pseudo_weight)[sampled]
        losses = F.binary_cross_entropy_with_logits(
            logits.flatten()[sampled], torch.cat(labels)[sampled], reduction="none"
        )
        first = torch.arange(len(positive), device=sampled.device)
        objectness, regression = weighted_losses(
            losses, deltas[positive], torch.cat(expected)[positive], weights, first
        )
        return boxes, {"loss_objectness": objectness, "loss_rpn_box_reg": regression}

    def filter_proposals(
        self,
        proposals: Tensor,
        objectness: Tensor,
        image_shapes: list[tuple[int, int]],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The best boxes (at most post_nms_top_n, 4) of each image and their scores, best first.

        Args:
            proposals: (B, A, 4) boxes xyxy in pixels of all anchors, level by level.
            objectness: (B * A, 1) logits.
            image_shapes: (height, width) of each image without padding.
            num_anchors_per_level: their sum is A.
        """
        logits = objectness.detach().reshape(len(proposals), -1)
        anchors = torch.tensor(num_anchors_per_level, device=logits.device)
        level = torch.arange(len(anchors), device=logits.device).repeat_interleave(
            anchors, output_size=logits.shape[1]
        )
        best = self._get_top_n_idx(logits, num_anchors_per_level)  # (B, levels * pre_nms_top_n) at most
        boxes_of, scores_of = [], []
        for all_boxes, all_logits, rows, shape in zip(proposals, logits, best, image_shapes, strict=True):
            boxes, scores = clip_boxes_to_image(all_boxes[rows], shape), all_logits[rows].sigmoid()
            wide = (boxes[:, 2:] - boxes[:, :2]).amin(dim=1) >= self.min_size
            likely = wide & (scores >= self.score_thresh)
            boxes, scores, rows = boxes[likely], scores[likely], rows[likely]
            keep = batched_nms(boxes, scores, level[rows], self.nms_thresh)[: self.post_nms_top_n()]
            boxes_of.append(boxes[keep])
            scores_of.append(scores[keep])
        return boxes_of, scores_of


class PyramidRoIAlign(MultiScaleRoIAlign):
    """torchvision's pooling of each box from a map that depends on its size, with detector.layers.roi_align.

    The results are the same, and bitwise reproducible on a GPU, for which torchvision has only a slow path.
    """

    def forward(
        self, x: dict[str, Tensor], boxes: list[Tensor], image_shapes: list[tuple[int, int]]
    ) -> Tensor:
        """Features (sum R, C, S, S) of the boxes (R_i, 4) of images with the given (height, width)."""
        maps = [x[name] for name in self.featmap_names if name in x]
        # torchvision forgets the padding, and takes another stride for images of a few pixels' height.
        tallest = math.ceil(max(height for height, _ in image_shapes) / PADDED_TO) * PADDED_TO
        exponents = [round(math.log2(tallest / features.shape[2])) for features in maps]  # of the strides
        rois = boxes_to_rois(boxes)  # (sum R, 5)
        pooled, rows = pool_by_level(self, maps, exponents, rois)
        return pooled[rows.argsort()]


def pool_by_level(
    pool: MultiScaleRoIAlign, maps: Sequence[Tensor], exponents: Sequence[int], rois: Tensor
) -> tuple[Tensor, Tensor]:
    """Features (R, C, S, S) of RoIs (R, 5), map by map, and the rows (R,) of these RoIs.

    Stride 16 is for boxes from 224 pixels on (FPN, arXiv 1612.03144, equation 1).

    Args:
        pool: for its options.
        exponents: of the strides of the maps, powers of two. As in torchvision, the first and the last bound
            the level of a box, which then counts from the first map, even where two maps have one stride.
    """
    level = torch.floor(4 + torch.log2(box_area(rois[:, 1:]).sqrt() / 224) + 1e-6)
    index = level.clamp(exponents[0], exponents[-1]) - exponents[0]
    rows = [(index == i).nonzero()[:, 0] for i in range(len(maps))]  # synchronizes with the host
    pooled = [
        roi_align(features, rois[some], pool.output_size, 2.0**-exponent, pool.sampling_ratio)
        for features, some, exponent in zip(maps, rows, exponents, strict=True)
    ]
    return torch.cat(pooled), torch.cat(rows)
