"""Selective search of an image of any size, on a reduced copy."""

from typing import Literal

import numpy as np
import torch
from torchvision.transforms.functional import InterpolationMode, resize

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
        # One plane at a time: torch converts what it resizes to float32.
        planes = [resize(plane[None], size, InterpolationMode.BICUBIC, antialias=True) for plane in reduced]
        reduced = torch.cat(planes)
    _, reduced_height, reduced_width = reduced.shape
    strategies = FAST if mode == "fast" else QUALITY
    [boxes] = selective_search([reduced], strategies, min_size=min_region)
    scale = np.array([width / reduced_width, height / reduced_height] * 2)
    return (boxes.numpy() * scale).clip(max=[width, height] * 2).astype(np.float32)
