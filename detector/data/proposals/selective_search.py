"""Selective search of an image of any size, on a reduced copy."""

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from detector.layers.selective_search import FAST, QUALITY, selective_search

Mode = Literal["fast", "quality"]


def search_image(
    image: np.ndarray, *, mode: Mode = "quality", longest_side: int = 300, min_region: int = 100
) -> np.ndarray:
    """Proposals (R, 4) float32 of an image, half-open xyxy in its pixels, best first, no two the same.

    The same image gives the same boxes on every machine. An image of uniform color gives one box.

    Args:
        image: (H, W, 3) uint8 RGB.
        mode: "quality" makes 16 segmentations, "fast" 6, with a third of the time and of the boxes.
        longest_side: larger images are searched on a copy reduced to so many pixels. Time and number of boxes
            grow with the pixels, the share of objects found hardly does.
        min_region: size of the smallest region of the initial segmentation in pixels of the copy.
    """
    height, width = image.shape[:2]
    reduced = torch.from_numpy(image).permute(2, 0, 1)  # (3, H, W)
    shrink = longest_side / max(height, width)
    if shrink < 1:
        size = [max(1, round(height * shrink)), max(1, round(width * shrink))]
        reduced = torch.cat([_resize(plane, size) for plane in reduced])  # float32: one at a time
    _, reduced_height, reduced_width = reduced.shape
    strategies = FAST if mode == "fast" else QUALITY
    [boxes] = selective_search([reduced], strategies, min_size=min_region)
    scale = np.array([width / reduced_width, height / reduced_height] * 2)
    return (boxes.numpy() * scale).clip(max=[width, height] * 2).astype(np.float32)


def _resize(plane: Tensor, size: list[int]) -> Tensor:
    """(H, W) uint8 to (1, *size), as torchvision's resize, the import of which takes every worker seconds."""
    resized = interpolate(plane[None, None].float(), size, mode="bicubic", antialias=True)
    return resized[0].clamp(0, 255).round().byte()
