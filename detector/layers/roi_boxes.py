"""Argument conversion and output shapes shared by roi_pool and roi_align."""

from collections.abc import Sequence

import torch
from torch import Tensor


def as_rois(boxes: Tensor | Sequence[Tensor], input: Tensor) -> Tensor:
    """Convert boxes (R, 5), or a list of (L, 4) per image, to (R, 5) in the dtype for coordinates."""
    if not isinstance(boxes, Tensor):
        boxes = _concatenate(boxes, input)
    if boxes.is_floating_point():
        boxes = boxes.to(torch.float64 if input.dtype == torch.float64 else torch.float32)
    return boxes


def _concatenate(boxes: Sequence[Tensor], input: Tensor) -> Tensor:
    if not isinstance(boxes, (list, tuple)):
        raise TypeError(f"boxes is {type(boxes).__name__}, expected a Tensor or a list of Tensors")
    for i, image_boxes in enumerate(boxes):
        if image_boxes.dim() != 2 or image_boxes.shape[1] != 4:
            raise ValueError(f"boxes[{i}] has shape {tuple(image_boxes.shape)}, expected (L, 4)")
    if not boxes:
        return input.new_zeros(0, 5)
    # Half precision cannot represent all image indices; coordinates are converted to float32 later anyway.
    wide = [b.float() if b.dtype in (torch.float16, torch.bfloat16) else b for b in boxes]
    images = [b.new_full((b.shape[0], 1), i) for i, b in enumerate(wide)]
    return torch.cat([torch.cat(images), torch.cat(wide)], dim=1)


def as_pair(output_size: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) of the pooled grid, from a pair or one number for both."""
    if isinstance(output_size, int):
        return output_size, output_size
    if len(output_size) != 2:
        raise ValueError(f"output_size is {output_size}, expected a number or (height, width)")
    height, width = output_size
    return int(height), int(width)


def is_channels_last(input: Tensor) -> bool:
    """Whether the input is channels_last, in which case the pooled values are (R, PH, PW, C) in memory."""
    return (
        input.dim() == 4
        and input.is_contiguous(memory_format=torch.channels_last)
        and not input.is_contiguous()
    )


def new_pooled(input: Tensor, boxes: Tensor, height: int, width: int, channels_last: bool) -> Tensor:
    """An empty output of a forward op: (R, C, PH, PW), or (R, PH, PW, C) with `channels_last`."""
    number, channels = boxes.shape[0], input.shape[1]
    if channels_last:
        return input.new_empty(number, height, width, channels)
    return input.new_empty(number, channels, height, width)


def new_features(grad: Tensor, images: int, height: int, width: int, channels_last: bool) -> Tensor:
    """An empty output of a backward op: (N, C, H, W), or (N, H, W, C) with `channels_last`."""
    if channels_last:
        return grad.new_empty(images, height, width, grad.shape[3])
    return grad.new_empty(images, grad.shape[1], height, width)


def to_nchw(result: Tensor, channels_last: bool) -> Tensor:
    """View the output of an op as (N, C, H, W) or (R, C, PH, PW)."""
    return result.permute(0, 3, 1, 2) if channels_last else result
