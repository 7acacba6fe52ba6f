"""Selective search for object proposals. Kernel: csrc/cpu/selective_search."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from detector.layers._extension import load_extension

_C = load_extension()

COLOR_SPACES = ("rgb", "hsv", "lab", "opponent")
MEASURES = ("color", "texture", "size", "fill")


class SearchStrategy(NamedTuple):
    """One hierarchy of regions of :func:`selective_search`.

    Attributes:
        color_space: "rgb", "hsv", "lab" (CIE L*a*b*) or "opponent" (intensity, red-green, yellow-blue).
        k: scale of the initial segmentation in gray levels: a larger k gives larger regions.
        measures: similarities that are added up: "color", "texture", "size" and "fill".
    """

    color_space: str
    k: int
    measures: tuple[str, ...] = MEASURES


# Chosen on photographs and drawings by recall, time, and the share of boxes that lie on objects, from which
# weak supervision learns (docs/proposals.md). A color space takes a third of the time of FAST, another k a
# seventh of that, and other measures hardly anything.
_MEASURES = (MEASURES, ("texture", "size", "fill"), ("size", "fill"))


def _strategies(color_spaces: Sequence[str], ks: Sequence[int]) -> tuple[SearchStrategy, ...]:
    return tuple(
        SearchStrategy(color_space, k, measures)
        for color_space in color_spaces
        for k in ks
        for measures in _MEASURES
    )


FAST = _strategies(("hsv", "lab"), (150, 300, 450))
QUALITY = _strategies(COLOR_SPACES, (100, 150, 300, 450))


def selective_search(
    images: Sequence[Tensor],
    strategies: Sequence[SearchStrategy] = QUALITY,
    *,
    min_size: int = 100,
    max_boxes: int | None = None,
    seed: int = 0,
) -> list[Tensor]:
    """Object proposals by hierarchical grouping of regions (Uijlings et al., Selective Search for Object
    Recognition, IJCV 2013).

    For each strategy, the image is converted to the color space, smoothed by a Gaussian of 0.8 pixels, and
    segmented (Felzenszwalb and Huttenlocher, Efficient Graph-Based Image Segmentation, IJCV 2004): pixels are
    linked to their 8 neighbors by edges that weigh the Euclidean distance of the colors. In order of
    weight, an edge merges two regions if it weighs at most w + k / size for both of them, where w is the
    heaviest edge inside the region. Then regions smaller than `min_size` are merged. From there on, the two
    most similar neighbors merge until one region is left, and the box of every region is a proposal.

    The similarity is the sum, over `measures`, of: the intersections of the color histograms (25 bins a
    channel) and of the texture histograms (a channel's derivatives in 4 directions, each of both signs, and
    what remains to the largest), each averaged over the channels; 1 - size / area of the image; and 1 - the
    share of the image that the box of both regions covers beyond them. The paper's texture is that of
    Gaussian derivatives in 8 directions, by histograms of 10 bins.

    As in the paper, the boxes of all strategies are sorted by a random number times the position in the
    hierarchy, where the whole image is at position 1, and only the first of equal boxes is kept: the first
    N are a fair choice of all N. Colors, weights and histograms are integers and the rest is in IEEE
    arithmetic, so that every machine and number of threads returns the same boxes.

    The images are shared among torch's threads. Time and memory are linear in the pixels: about 22 ms for
    300 x 225 pixels with `QUALITY`, and 100 bytes per pixel and thread. A thread keeps up to 32 MiB for its
    next image. Not differentiable.

    Args:
        images (Tensor[3, H, W]): uint8 RGB on the CPU, or gray (1, H, W), of any sizes and strides, with at
            most 2^24 pixels. Search a reduced copy of a photograph, with about 300 pixels on the longest
            side, and scale the boxes: more cost time and hardly find more.
        strategies: whose boxes are joined; `FAST` and `QUALITY` were chosen for photographs.
        min_size: minimum size of the regions of the initial segmentation in pixels.
        max_boxes: maximum number of boxes of an image, at least 1; None: all.
        seed: for the random numbers of the order.

    Returns:
        Tensor[R, 4] of each image: float32, half-open xyxy in pixels of the image, integers.

    Raises:
        ValueError: for an unknown color space or measure.
        RuntimeError: for a wrong dtype, shape or device, or a number out of range.
    """
    if max_boxes is not None and max_boxes < 1:  # 0 is the number for all in csrc
        raise RuntimeError(f"selective_search: max_boxes is {max_boxes}, expected None or at least 1")
    for i, image in enumerate(images):
        if not image.is_cpu:
            raise RuntimeError(f"selective_search: images[{i}] is on {image.device}, expected the CPU")
    rgb = [image.expand(3, -1, -1) if image.dim() == 3 and len(image) == 1 else image for image in images]
    numbers = [number for strategy in strategies for number in _encode(SearchStrategy(*strategy))]
    return _C.selective_search(rgb, numbers, min_size, max_boxes or 0, seed) if rgb else []


def _encode(strategy: SearchStrategy) -> tuple[int, int, int]:
    """The numbers of csrc: color space, k, and the set of measures as bits."""
    unknown = [name for name in strategy.measures if name not in MEASURES]
    if strategy.color_space not in COLOR_SPACES or unknown:
        expected = f"a color space of {COLOR_SPACES} and measures of {MEASURES}"
        raise ValueError(f"selective_search: {strategy}, expected {expected}")
    bits = sum(1 << MEASURES.index(name) for name in set(strategy.measures))
    return COLOR_SPACES.index(strategy.color_space), strategy.k, bits


@torch.library.register_fake("detector::selective_search")
def _fake_selective_search(images, strategies, min_size, max_boxes, seed):
    num_boxes = [torch.library.get_ctx().new_dynamic_size() for _ in images]
    return [
        image.new_empty((num, 4), dtype=torch.float32) for image, num in zip(images, num_boxes, strict=True)
    ]
