"""Conversion of the boxes of roi_pool and roi_align."""

import torch
from torch import Tensor

# torch.jit.script knows list and tuple, but not Sequence.
Boxes = Tensor | list[Tensor]


class BoxesShapeError(AssertionError, RuntimeError, ValueError):
    """Boxes of a wrong shape. torchvision raises AssertionError for them, and other ops RuntimeError."""


def as_rois(boxes: Boxes, input: Tensor) -> Tensor:
    """Convert boxes (R, 5), or a list of (L, 4) per image, to (R, 5) in the dtype for coordinates."""
    if not torch.jit.is_scripting():
        _check_boxes(boxes)
    rois = boxes if isinstance(boxes, Tensor) else _concatenate(boxes, input)
    if rois.is_floating_point():
        rois = rois.to(torch.float64 if input.dtype == torch.float64 else torch.float32)
    return rois


def _check_boxes(boxes: object) -> None:
    if isinstance(boxes, Tensor):
        if boxes.dim() != 2 or boxes.shape[1] != 5:
            raise BoxesShapeError(f"boxes has shape {tuple(boxes.shape)}, expected (R, 5)")
        return
    if not isinstance(boxes, list | tuple):
        raise TypeError(f"boxes is {type(boxes).__name__}, expected a Tensor or a list of Tensors")
    for i, image_boxes in enumerate(boxes):
        if not isinstance(image_boxes, Tensor):
            raise TypeError(f"boxes[{i}] is {type(image_boxes).__name__}, expected a Tensor")
        if image_boxes.dim() != 2 or image_boxes.shape[1] != 4:
            raise BoxesShapeError(f"boxes[{i}] has shape {tuple(image_boxes.shape)}, expected (L, 4)")
        if image_boxes.device != boxes[0].device:  # the op checks the device of all of them
            raise RuntimeError(f"boxes[{i}] is on {image_boxes.device}, but boxes[0] is on {boxes[0].device}")


def _concatenate(boxes: list[Tensor], input: Tensor) -> Tensor:
    if len(boxes) == 0:
        return input.new_zeros([0, 5])
    # Half precision cannot represent all image indices; coordinates are converted to float32 later anyway.
    wide = [b.float() if b.dtype == torch.float16 or b.dtype == torch.bfloat16 else b for b in boxes]
    images = [b.new_full([b.shape[0], 1], i) for i, b in enumerate(wide)]
    return torch.cat([torch.cat(images), torch.cat(wide)], dim=1)
