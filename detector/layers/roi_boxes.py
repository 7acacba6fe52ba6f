"""What roi_pool and roi_align share: the forms that boxes and sizes may come in, and those of the results."""

from collections.abc import Sequence

import torch
from torch import Tensor


def rois_of(boxes: Tensor | Sequence[Tensor], input: Tensor) -> Tensor:
    """Boxes (R, 5), or a list with (L, 4) for each image, as (R, 5) in the type to compute coordinates in."""
    if not isinstance(boxes, Tensor):
        boxes = _with_image(boxes, input)
    if boxes.is_floating_point():
        boxes = boxes.to(torch.float64 if input.dtype == torch.float64 else torch.float32)
    return boxes


def _with_image(boxes: Sequence[Tensor], input: Tensor) -> Tensor:
    if not isinstance(boxes, (list, tuple)):
        raise TypeError(f"boxes is {type(boxes).__name__}, expected a Tensor or a list of them")
    for i, of_image in enumerate(boxes):
        if of_image.dim() != 2 or of_image.shape[1] != 4:
            raise ValueError(f"boxes[{i}] has shape {tuple(of_image.shape)}, expected (L, 4)")
    if not boxes:
        return input.new_zeros(0, 5)
    # Numbers of images are exact in float32, to which half precision is converted in any case.
    wide = [b.float() if b.dtype in (torch.float16, torch.bfloat16) else b for b in boxes]
    images = [b.new_full((b.shape[0], 1), i) for i, b in enumerate(wide)]
    return torch.cat([torch.cat(images), torch.cat(wide)], dim=1)


def pair_of(output_size: int | Sequence[int]) -> tuple[int, int]:
    """(height, width) of the pooled grid; one number stands for both."""
    if isinstance(output_size, int):
        return output_size, output_size
    if len(output_size) != 2:
        raise ValueError(f"output_size is {output_size}, expected a number or (height, width)")
    height, width = output_size
    return int(height), int(width)


def is_channels_last(input: Tensor) -> bool:
    """Whether the pooled values take the layout (R, PH, PW, C) in memory, as the input does."""
    return (
        input.dim() == 4
        and input.is_contiguous(memory_format=torch.channels_last)
        and not input.is_contiguous()
    )


def new_pooled(input: Tensor, boxes: Tensor, height: int, width: int, channels_last: bool) -> Tensor:
    """What a forward op gives: (R, C, PH, PW), or (R, PH, PW, C) with `channels_last`."""
    number, channels = boxes.shape[0], input.shape[1]
    if channels_last:
        return input.new_empty(number, height, width, channels)
    return input.new_empty(number, channels, height, width)


def new_features(grad: Tensor, images: int, height: int, width: int, channels_last: bool) -> Tensor:
    """What a backward op gives: (N, C, H, W), or (N, H, W, C) with `channels_last`."""
    if channels_last:
        return grad.new_empty(images, height, width, grad.shape[3])
    return grad.new_empty(images, grad.shape[1], height, width)


def channels_second(result: Tensor, channels_last: bool) -> Tensor:
    """What an op gave, seen as (N, C, H, W) or (R, C, PH, PW)."""
    return result.permute(0, 3, 1, 2) if channels_last else result
