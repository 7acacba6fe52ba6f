"""The student of self-training for torch.export: an image of any size in, boxes after NMS out."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from detector.inference.exported import exporting, with_same_padding
from detector.layers import batched_nms
from detector.self_training.build import Student
from detector.self_training.faster_rcnn import PADDED_TO, FasterRCNN, pool_by_level
from detector.self_training.scoring import detection_limits

INPUTS, OUTPUTS = ("image",), ("boxes", "scores", "labels")


class StudentNetwork(nn.Module):
    """A student that resizes, normalizes and pads one image itself, and applies NMS; a subclass finds boxes.

    The steps and settings are those of torchvision's model, written without Python numbers that depend on the
    image: only the sides of the padded image, in cells of 32 pixels, are read from a tensor.
    """

    mean: Tensor  # (3, 1, 1), as `std`
    std: Tensor

    def __init__(self, model: Student) -> None:
        super().__init__()
        self.backbone = with_same_padding(model.backbone, fixed=True)  # as images are padded
        self.limits = detection_limits(model)
        for pyramid in self.backbone.modules():
            if isinstance(pyramid, FeaturePyramidNetwork):
                pyramid.extra_blocks = EverySecondCell()
        self.shortest, self.longest = model.transform.min_size[-1], model.transform.max_size
        for name, values in (("mean", model.transform.image_mean), ("std", model.transform.image_std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        with torch.no_grad():
            maps = self.backbone(torch.zeros(1, 3, 8 * PADDED_TO, 8 * PADDED_TO)).values()
        self.strides = [8 * PADDED_TO // features.shape[-1] for features in maps]

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The objects of an image, best first.

        Args:
            image (Tensor[3, H, W]): uint8 RGB of any size.

        Returns:
            Tensor[D, 4]: boxes xyxy in pixels of the image.
            Tensor[D]: scores.
            Tensor[D]: int64, labels from 0.
        """
        size = torch.stack([torch.scalar_tensor(side, dtype=torch.float64) for side in image.shape[1:]])
        resized = resized_size(size, self.shortest, self.longest)  # (height, width)
        size, resized = size.float(), resized.float()
        maps = list(self.backbone(self.resize(image, size, resized)).values())
        boxes, scores = self.find(maps, resized)
        rows, labels = (scores > self.limits.score_threshold).nonzero().unbind(dim=1)
        boxes, scores = clip(boxes[rows, labels], resized), scores[rows, labels]
        keep = batched_nms(boxes, scores, labels, self.limits.nms_iou)[: self.limits.max_detections]
        return boxes[keep] * (size / resized).flip(0).repeat(2), scores[keep], labels[keep]

    def find(self, maps: Sequence[Tensor], resized: Tensor) -> tuple[Tensor, Tensor]:
        """A box (R, C, 4) for each class and proposal or place, not clipped, and its score (R, C).

        Args:
            maps: feature maps (1, D, H, W).
            resized: (height, width) of the image in pixels, of which the padding is no part.
        """
        raise NotImplementedError

    def resize(self, image: Tensor, size: Tensor, resized: Tensor) -> Tensor:
        """The image (1, 3, H', W') as the backbone takes it: bilinear, normalized, then padded with zeros.

        Args:
            size, resized: (height, width) of the image and of its content in the result.
        """
        counts = (resized / PADDED_TO).ceil().long()
        pixels, inside = image.float(), torch.ones(1)
        for axis in (0, 1):
            cells = counts[axis].item()
            torch._check(cells >= 1)
            torch._check(cells <= 1000)
            places = torch.arange(cells * PADDED_TO, dtype=torch.float32)
            shape = (-1, 1) if axis == 0 else (1, -1)
            source = ((places + 0.5) * (size[axis] / resized[axis]) - 0.5).clamp(min=0)
            first = torch.minimum(source.floor(), size[axis] - 1)
            second = torch.minimum(first + 1, size[axis] - 1)
            weight = (source - first).reshape(shape)
            near, far = (pixels.index_select(axis + 1, rows.long()) for rows in (first, second))
            pixels = near * (1 - weight) + far * weight
            inside = inside * (places < resized[axis]).float().reshape(shape)
        return ((pixels / 255 - self.mean) / self.std * inside)[None]


class FasterRCNNNetwork(StudentNetwork):
    """:class:`StudentNetwork` of a Faster R-CNN."""

    def __init__(self, model: FasterRCNN) -> None:
        super().__init__(model)
        self.rpn, self.heads = copy.deepcopy(model.rpn), model.roi_heads
        self.rpn.anchor_generator.set_cell_anchors(torch.float32, torch.device("cpu"))

    def find(self, maps: Sequence[Tensor], resized: Tensor) -> tuple[Tensor, Tensor]:
        return self.classify(maps, self.propose(maps, resized))

    def propose(self, maps: Sequence[Tensor], resized: Tensor) -> Tensor:
        """The boxes (R, 4) that the region proposal network finds most likely to hold an object."""
        network, count = self.rpn, self.rpn.pre_nms_top_n()
        boxes, logits = [], []
        outputs = zip(maps, *network.head(maps), network.anchor_generator.cell_anchors, strict=True)
        for features, objectness, deltas, shapes in outputs:
            anchors = grid(features, maps[0], self.strides[0], shapes)
            moves = deltas[0].unflatten(0, (-1, 4)).permute(2, 3, 0, 1).reshape(-1, 4)
            likely = objectness[0].permute(1, 2, 0).reshape(-1)
            # Boxes without area, which are dropped below, fill up a map that has too few to choose among.
            filled = (torch.cat([values, torch.zeros(count, 4)]) for values in (moves, anchors))
            best, rows = torch.cat([likely, torch.full((count,), -torch.inf)]).topk(count)
            boxes.append(network.box_coder.decode_single(*(values[rows] for values in filled)))
            logits.append(best)
        found, scores = clip(torch.cat(boxes), resized), torch.cat(logits).sigmoid()
        levels = torch.arange(len(maps)).repeat_interleave(count, output_size=len(found))
        wide = ((found[:, 2:] - found[:, :2]).amin(dim=1) >= network.min_size).nonzero()[:, 0]
        found = found[wide]
        keep = batched_nms(found, scores[wide], levels[wide], network.nms_thresh)
        return found[keep[: network.post_nms_top_n()]]

    def classify(self, maps: Sequence[Tensor], proposals: Tensor) -> tuple[Tensor, Tensor]:
        """A box (R, C, 4) for each class and proposal, not clipped, and its score (R, C)."""
        pool = self.heads.box_roi_pool
        exponents = [stride.bit_length() - 1 for stride in self.strides[: len(pool.featmap_names)]]
        exponents = exponents[: len(maps) - 1]  # the last map is for proposals alone
        rois = torch.cat([torch.zeros_like(proposals[:, :1]), proposals], dim=1)
        pooled, rows = pool_by_level(pool, maps[: len(exponents)], exponents, rois)
        logits, deltas = self.heads.box_predictor(self.heads.box_head(pooled))
        boxes = self.heads.box_coder.decode_single(deltas, proposals[rows])
        return boxes.unflatten(1, (-1, 4))[:, 1:], logits.softmax(dim=1)[:, 1:]


class EverySecondCell(LastLevelMaxPool):
    """The coarsest map as torchvision has it, without a pooling, whose size stops torch.export 2.11."""

    def forward(self, x: list[Tensor], y: list[Tensor], names: list[str]) -> tuple[list[Tensor], list[str]]:
        return [*x, x[-1][:, :, ::2, ::2]], [*names, "pool"]


def resized_size(size: Tensor, shortest: int, longest: int) -> Tensor:
    """`random_sizes.resized_size` of sizes (..., 2), float64, with the same rounding.

    A tensor divides by a tensor: torch computes a number divided by a tensor as the number times the tensor's
    reciprocal, which is rounded twice.
    """
    ratios = size.new_tensor(shortest) / size.amin(-1), size.new_tensor(longest) / size.amax(-1)
    return (size * torch.minimum(*ratios)[..., None]).floor().clamp(min=1)


def hard_sizes(shortest: int, longest: int, count: int = 4) -> list[tuple[int, int]]:
    """Sizes to check an export with: other arithmetic resizes images of these sizes to another size.

    `count` (height, width) each at which float32 does, or the scale as a product with a reciprocal, and sizes
    of which hardly a pixel is left.
    """
    drawn = torch.randint(1, longest + 1, (5000, 2), generator=torch.Generator().manual_seed(0)).double()
    right = resized_size(drawn, shortest, longest)
    scale = torch.minimum(shortest * (1 / drawn.amin(1)), longest * (1 / drawn.amax(1)))
    others = resized_size(drawn.float(), shortest, longest), (drawn * scale[:, None]).floor().clamp(min=1)
    found = torch.cat([drawn[(other != right).any(dim=1)][:count] for other in others]).long()
    return [(1, 1), (2, 2 * longest), (longest, 1), *((height, width) for height, width in found.tolist())]


def grid(features: Tensor, largest: Tensor, least_stride: int, shapes: Tensor) -> Tensor:
    """Anchors (N, 4) of all cells of a feature map, in pixels; `shapes` (A, 4) are those of the first."""
    shifts = []
    for side, longest in zip(features.shape[2:], largest.shape[2:], strict=True):
        stride = longest * least_stride // side  # as torchvision has it: an odd side was rounded up
        shifts.append(torch.arange(side) * stride)
    y, x = torch.meshgrid(*shifts, indexing="ij")
    return (torch.stack([x, y, x, y], dim=-1)[:, :, None] + shapes).reshape(-1, 4)


def clip(boxes: Tensor, size: Tensor) -> Tensor:
    """Boxes (N, 4) clipped to an image whose size (height, width) is a tensor."""
    return torch.minimum(boxes.clamp(min=0), size.flip(0).repeat(2))


def export_student(network: StudentNetwork) -> ExportedProgram:
    """The program of a network for images of any size.

    Raises:
        UserError: torch.export does not support the model; states the reason.
    """
    sides = {1: Dim("height", min=2), 2: Dim("width", min=2)}
    with exporting():
        return torch.export.export(network.eval(), (torch.zeros(3, 96, 128).byte(),), dynamic_shapes=(sides,))
