"""The network for torch.export: tensors in, tensors out, with dynamic sizes."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from detector.structures import decode_boxes
from detector.utils.errors import UserError

INPUTS, OUTPUTS = ("images", "rois", "counts", "sizes"), ("scores", "boxes")
M = TypeVar("M", bound=nn.Module)
LEAST_SIDE = 16  # pixels; smaller images must be padded, as detector/data/loader.py does


class ScoresAndBoxes(nn.Module):
    """A :class:`WeakRCNN` that returns the scores and boxes of one test pass before NMS."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, images: Tensor, rois: Tensor, counts: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the scores and boxes of all proposals.

        Args:
            images (Tensor[B, 3, H, W]): uint8 RGB, padded at the right and the bottom.
            rois (Tensor[sum R, 5]): float32, image index, x1, y1, x2, y2 in pixels; images in order.
            counts (Tensor[B]): int64, proposals per image.
            sizes (Tensor[B, 2]): int64, (height, width) of each image without its padding.

        Returns:
            Tensor[sum R, C]: scores of the foreground classes.
            Tensor[sum R, C, 4]: a box for each class, xyxy in pixels of `images`: the proposal, or the
            regressed box, clipped to its image without padding, if the model has a regression branch.
        """
        outputs = self.model(images, rois, counts, sizes)
        scores = outputs.scores()
        boxes = rois[:, None, 1:]  # (sum R, 1, 4)
        if outputs.deltas is not None:
            limits = sizes[rois[:, 0].long()].flip(1).repeat(1, 2)[:, None]  # (sum R, 1, 4)
            boxes = torch.minimum(decode_boxes(boxes, outputs.deltas).clamp(min=0), limits)
        return scores, boxes.expand(-1, scores.shape[1], 4)


class SamePadding(nn.Module):
    """A convolution with TensorFlow's "same" padding, in a form that torch.export supports.

    timm clamps the padding at 0, although it cannot be negative if the kernel is at least as large as the
    stride. Nested maxima of a dynamic size, one per stage, keep torch.export busy for minutes.

    Args:
        fixed: the sides of the input are multiples of the stride, so that the padding is always the same.
    """

    def __init__(self, conv: nn.Conv2d, fixed: bool) -> None:
        super().__init__()
        self.conv, self.fixed = conv, fixed

    def forward(self, input: Tensor) -> Tensor:
        conv, amounts = self.conv, []
        for axis in (1, 0):  # F.pad starts with the last axis
            size, stride = input.shape[2 + axis], conv.stride[axis]
            reach = (conv.kernel_size[axis] - 1) * conv.dilation[axis] + 1
            total = reach - stride
            if not self.fixed:
                total += (size + stride - 1) // stride * stride - size
            amounts += [total // 2, total - total // 2]
        padded = F.pad(input, amounts)
        return F.conv2d(padded, conv.weight, conv.bias, conv.stride, 0, conv.dilation, conv.groups)


def with_same_padding(model: M, *, fixed: bool = False) -> M:
    """A copy of the model, in eval mode, with another form of timm's Conv2dSame, see :class:`SamePadding`.

    Args:
        fixed: the sides of images are multiples of all strides together, so that the padding of a convolution
            does not depend on the image.
    """
    model = copy.deepcopy(model).eval()
    for module in list(model.modules()):
        for name, child in module.named_children():
            conv: Any = child
            # Recognized by names, since timm need not be installed; the latter is our DepthwiseConv.
            pads = type(conv).__name__ == "Conv2dSame" or getattr(conv, "pads_as_tensorflow", False)
            if pads and min(conv.kernel_size) >= max(conv.stride):
                setattr(module, name, SamePadding(conv, fixed))
    return model


@contextmanager
def exporting() -> Iterator[None]:
    """Run torch.export; an error of it, of whatever type, becomes a UserError with the reason."""
    try:
        with torch.no_grad():
            yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"torch.export does not support this model: {reason}") from error


def export_program(model: nn.Module) -> ExportedProgram:
    """The program of :class:`ScoresAndBoxes` for any number of images and proposals and images of any size.

    Raises:
        UserError: torch.export does not support the model; states the reason.
    """
    # Sizes of 0 and 1 would become constants.
    images, counts = torch.zeros(2, 3, 96, 128, dtype=torch.uint8), torch.tensor([3, 2])
    box = torch.tensor([8.0, 8.0, 80.0, 72.0])
    rois = torch.cat([torch.tensor([[0.0], [0], [0], [1], [1]]), box.expand(5, 4)], dim=1)
    image_sizes = torch.tensor([[96, 128], [96, 120]])
    batch, proposals = Dim("batch"), Dim("proposals")
    sizes = {2: Dim("height", min=LEAST_SIDE), 3: Dim("width", min=LEAST_SIDE)}
    with exporting():
        return torch.export.export(
            ScoresAndBoxes(with_same_padding(model)),
            (images, rois, counts, image_sizes),
            dynamic_shapes=({0: batch, **sizes}, {0: proposals}, {0: batch}, {0: batch}),
            # Padding that depends on the image size (timm's "same") is checked when the program runs.
            prefer_deferred_runtime_asserts_over_guards=True,
        )
