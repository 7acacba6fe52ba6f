"""The student of self-training for torch.export: images of any sizes in, boxes after NMS out."""

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

INPUTS, OUTPUTS = ("images", "sizes"), ("boxes", "scores", "labels", "image_index")


class StudentNetwork(nn.Module):
    """A student that resizes, normalizes and pads images itself, and applies NMS; a subclass finds boxes.

    The steps and settings are those of torchvision's model, written without Python numbers that depend on the
    images: only the sides of the padded batch, in cells of 32 pixels, are read from a tensor. torchvision
    loops over a list of images; here the boxes of all images are in one tensor, with the index of the image.
    """

    mean: Tensor  # (3,), as `std`
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
            self.register_buffer(name, torch.tensor(values), persistent=False)
        with torch.no_grad():
            maps = self.backbone(torch.zeros(1, 3, 8 * PADDED_TO, 8 * PADDED_TO)).values()
        self.strides = [8 * PADDED_TO // features.shape[-1] for features in maps]

    def forward(self, images: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The objects of all images, best first.

        Args:
            images (Tensor[B, 3, H, W]): uint8 RGB of any sizes, padded at the right and the bottom.
            sizes (Tensor[B, 2]): int64, (height, width) of each image without its padding, at least 1.

        Returns:
            Tensor[D, 4]: boxes xyxy in pixels of their image.
            Tensor[D]: scores.
            Tensor[D]: int64, labels from 0.
            Tensor[D]: int64, the image of each box, from 0.
        """
        resized = resized_size(sizes.double(), self.shortest, self.longest).float()  # (B, 2)
        maps = list(self.backbone(self.resize(images, sizes.float(), resized)).values())
        boxes, scores, of = self.find(maps, resized)
        rows, labels = (scores > self.limits.score_threshold).nonzero().unbind(dim=1)
        index, group = of[rows], of[rows] * scores.shape[1] + labels
        boxes, scores = clip(boxes[rows, labels], resized[index]), scores[rows, labels]
        keep = batched_nms(boxes, scores, group, self.limits.nms_iou)
        keep = keep[rank_in_image(index[keep], images.shape[0]) < self.limits.max_detections]
        index, scale = index[keep], (sizes / resized).flip(1).repeat(1, 2)  # (D,), (B, 4)
        return boxes[keep] * scale[index], scores[keep], labels[keep], index

    def find(self, maps: Sequence[Tensor], resized: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A box (R, C, 4) for each class and proposal or place, not clipped, its score (R, C) and image (R,).

        Args:
            maps: feature maps (B, D, H, W).
            resized: (B, 2), (height, width) of each image in pixels, of which the padding is no part.
        """
        raise NotImplementedError

    def resize(self, images: Tensor, sizes: Tensor, resized: Tensor) -> Tensor:
        """The images (B, 3, H', W') as the backbone takes them: bilinear, normalized, then padded with zeros.

        Args:
            sizes, resized: (B, 2), (height, width) of each image and of its content in the result.
        """
        counts = (resized / PADDED_TO).ceil().amax(dim=0).long()
        pixels = images.float().permute(0, 2, 3, 1)  # (B, H, W, 3)
        inside = []
        for axis in (0, 1):
            cells = counts[axis].item()
            torch._check(cells >= 1)
            torch._check(cells <= 1000)
            places = torch.arange(cells * PADDED_TO, dtype=torch.float32)  # (P,)
            size, content = sizes[:, axis, None], resized[:, axis, None]  # (B, 1)
            source = ((places + 0.5) * (size / content) - 0.5).clamp(min=0)  # (B, P)
            first = torch.minimum(source.floor(), size - 1)
            second = torch.minimum(first + 1, size - 1)
            weight = (source - first)[:, :, None, None]
            near, far = (take_rows(pixels, rows.long()) for rows in (first, second))
            pixels = (near * (1 - weight) + far * weight).transpose(
                1, 2
            )  # (B, W, P, 3): the other axis is next
            inside.append((places < content).float())
        normalized = (pixels / 255 - self.mean) / self.std
        return (normalized * inside[0][:, :, None, None] * inside[1][:, None, :, None]).permute(0, 3, 1, 2)


class FasterRCNNNetwork(StudentNetwork):
    """:class:`StudentNetwork` of a Faster R-CNN."""

    def __init__(self, model: FasterRCNN) -> None:
        super().__init__(model)
        self.rpn, self.heads = copy.deepcopy(model.rpn), model.roi_heads
        self.rpn.anchor_generator.set_cell_anchors(torch.float32, torch.device("cpu"))

    def find(self, maps: Sequence[Tensor], resized: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.classify(maps, self.propose(maps, resized))

    def propose(self, maps: Sequence[Tensor], resized: Tensor) -> Tensor:
        """The RoIs (R, 5) that the region proposal network finds most likely to hold an object."""
        network, count, batch = self.rpn, self.rpn.pre_nms_top_n(), resized.shape[0]
        boxes, logits = [], []
        outputs = zip(maps, *network.head(maps), network.anchor_generator.cell_anchors, strict=True)
        for features, objectness, deltas, shapes in outputs:
            anchors = grid(features, maps[0], self.strides[0], shapes)  # (A, 4)
            moves = deltas.unflatten(1, (-1, 4)).permute(0, 3, 4, 1, 2).flatten(1, 3)  # (B, A, 4)
            likely = objectness.permute(0, 2, 3, 1).flatten(1)  # (B, A)
            # Boxes without area, which are dropped below, fill up a map that has too few to choose among.
            best, rows = append(likely, count, -torch.inf).topk(count, dim=1)  # (B, N)
            moves, anchors = take_rows(append(moves, count), rows), append(anchors[None], count)[0, rows]
            boxes.append(network.box_coder.decode_single(moves.flatten(0, 1), anchors.flatten(0, 1)))
            logits.append(best)
        found = torch.stack([of_map.unflatten(0, (-1, count)) for of_map in boxes], dim=1)  # (B, L, N, 4)
        group = torch.arange(batch * len(maps)).repeat_interleave(count)  # of each image and map
        index = torch.arange(batch).repeat_interleave(len(maps) * count)
        found, scores = (
            clip(found.flatten(0, 2), resized[index]),
            torch.stack(logits, dim=1).flatten().sigmoid(),
        )
        wide = ((found[:, 2:] - found[:, :2]).amin(dim=1) >= network.min_size).nonzero()[:, 0]
        found, index = found[wide], index[wide]
        keep = batched_nms(found, scores[wide], group[wide], network.nms_thresh)
        keep = keep[rank_in_image(index[keep], batch) < network.post_nms_top_n()]
        return torch.cat([index[keep, None].float(), found[keep]], dim=1)

    def classify(self, maps: Sequence[Tensor], rois: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A box (R, C, 4) for each class and RoI, not clipped, its score (R, C), and its image (R,)."""
        pool = self.heads.box_roi_pool
        exponents = [stride.bit_length() - 1 for stride in self.strides[: len(pool.featmap_names)]]
        exponents = exponents[: len(maps) - 1]  # the last map is for proposals alone
        pooled, rows = pool_by_level(pool, maps[: len(exponents)], exponents, rois)
        logits, deltas = self.heads.box_predictor(self.heads.box_head(pooled))
        boxes = self.heads.box_coder.decode_single(deltas, rois[rows, 1:])
        return boxes.unflatten(1, (-1, 4))[:, 1:], logits.softmax(dim=1)[:, 1:], rois[rows, 0].long()


def pad_images(images: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """What the network takes: images (3, H, W) uint8 as one batch, and their sizes."""
    sizes = torch.tensor([image.shape[1:] for image in images])  # (B, 2)
    height, width = sizes.amax(dim=0).tolist()
    padded = torch.zeros(len(images), 3, height, width, dtype=torch.uint8)
    for row, image in zip(padded, images, strict=True):
        row[:, : image.shape[1], : image.shape[2]] = image
    return padded, sizes


def append(values: Tensor, count: int, filled: float = 0.0) -> Tensor:
    """(B, N + count, ...): values (B, N, ...) and `count` more of each image."""
    return torch.cat([values, values.new_full((values.shape[0], count, *values.shape[2:]), filled)], dim=1)


def take_rows(values: Tensor, rows: Tensor) -> Tensor:
    """(B, P, ...): of each image of `values` (B, N, ...) the rows (B, P) int64."""
    starts = torch.arange(values.shape[0])[:, None] * values.shape[1]
    return values.flatten(0, 1).index_select(0, (rows + starts).flatten()).unflatten(0, (-1, rows.shape[1]))


def rank_in_image(index: Tensor, batch: int) -> Tensor:
    """(K,): how many earlier boxes are of the same image, of the images (K,) of boxes, in 0 to batch - 1."""
    same = (index[:, None] == torch.arange(batch)).long()  # (K, B)
    return (same.cumsum(dim=0) * same).sum(dim=1) - 1


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


def clip(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Boxes (N, 4) clipped, each to an image of its size (N, 2), (height, width)."""
    return torch.minimum(boxes.clamp(min=0), sizes.flip(1).repeat(1, 2))


def export_student(network: StudentNetwork) -> ExportedProgram:
    """The program of a network for any number of images of any sizes.

    Raises:
        UserError: torch.export does not support the model; states the reason.
    """
    # Sizes of 0 and 1 would become constants.
    images, sizes = torch.zeros(2, 3, 96, 128, dtype=torch.uint8), torch.tensor([[96, 128], [90, 128]])
    batch = Dim("batch")
    dynamic = {0: batch, 2: Dim("height", min=2), 3: Dim("width", min=2)}
    with exporting():
        return torch.export.export(network.eval(), (images, sizes), dynamic_shapes=(dynamic, {0: batch}))
