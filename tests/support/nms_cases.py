"""Test inputs for nms, and comparison with torchvision."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torchvision
from torch import Tensor

from detector.layers import batched_nms, nms, nms_mask

THRESHOLDS = [0.0, 0.3, 0.5, 0.7, 1.0]


def make_set(
    size: int, seed: int = 0, *, side: float = 100, largest: float = 40, dtype=torch.float32, groups: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Random boxes in a square, with scores and groups (some negative), on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(size, 2, generator=generator, dtype=dtype) * side
    sides = torch.rand(size, 2, generator=generator, dtype=dtype) * largest
    scores = torch.rand(size, generator=generator, dtype=dtype)
    idxs = torch.randint(-1, groups - 1, (size,), generator=generator)
    return torch.cat([corner, corner + sides], dim=1), scores, idxs


# ---- difficult cases: each function modifies the boxes and scores of a random set ----


def unchanged(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, scores


def tied_scores(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, (scores * 4).round() / 4 - 0.5


def equal_scores(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, torch.where(scores < 0.5, 0.0, -0.0).to(scores.dtype)  # 0.0 and -0.0 are equal


def infinite_scores(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, ((scores - 0.5) * 4).round() / 0  # -inf, NaN, inf; the caller replaces NaN


def duplicates(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes[torch.arange(len(boxes)) // 3], scores


def on_a_grid(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return (boxes / 10).round() * 10, scores  # touching and empty boxes


def chain(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Each box overlaps its neighbors, so whether it is kept depends on the previous box."""
    left = torch.arange(len(boxes), dtype=boxes.dtype)
    zeros = torch.zeros_like(left)
    return torch.stack([left, zeros, left + 3, zeros + 1], dim=1), -left


def shuffled_chain(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return chain(boxes, scores)[0], scores


def exact_thresholds(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """IoUs are fractions a / b with small a and b, some equal to a threshold."""
    width = 1 + torch.arange(len(boxes)) % 10
    zeros = torch.zeros_like(width)
    return torch.stack([zeros, zeros, width, zeros + 1], dim=1).to(boxes.dtype), scores


def inverted(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    every_other = torch.arange(len(boxes)) % 2 == 0
    return torch.where(every_other[:, None], boxes[:, [2, 1, 0, 3]], boxes), scores


def inverted_both_ways(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes[:, [2, 3, 0, 1]], scores


def empty_boxes(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes[:, [0, 1, 0, 3]], scores


def huge(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes * 2.0**60, scores  # areas overflow in float32


def tiny(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes * 2.0**-72, scores  # areas are subnormal in float32


def infinite(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(boxes > 90, torch.inf, torch.where(boxes < 10, -torch.inf, boxes)), scores


SETS = [
    unchanged, tied_scores, equal_scores, infinite_scores, duplicates, on_a_grid, chain, shuffled_chain,
    exact_thresholds, inverted, inverted_both_ways, empty_boxes, huge, tiny, infinite,
]  # fmt: skip


def hard_sets(make: Callable, sizes: list[int], seeds: range, dtype=torch.float32) -> Iterator[tuple]:
    """Boxes, scores, idxs and a threshold."""
    for size in sizes:
        for seed in seeds:
            boxes, scores, idxs = make_set(size, seed, dtype=dtype)
            boxes, scores = make(boxes, scores)
            yield boxes, scores.nan_to_num(0.25, torch.inf, -torch.inf), idxs, THRESHOLDS[seed % 5]


def expected_batched(boxes: Tensor, scores: Tensor, idxs: Tensor, threshold: float) -> Tensor:
    """torchvision's nms applied to each group, in the order of batched_nms."""
    kept = torch.zeros(len(scores), dtype=torch.bool)
    for group in idxs.unique():
        rows = (idxs == group).nonzero()[:, 0]
        kept[rows[torchvision.ops.nms(boxes[rows], scores[rows], threshold)]] = True
    order = scores.sort(descending=True, stable=True).indices
    return order[kept[order]]


def assert_equals_torchvision(
    boxes: Tensor, scores: Tensor, idxs: Tensor, threshold: float, device: torch.device
) -> None:
    """Compare nms, batched_nms and nms_mask on `device` with torchvision on the CPU."""
    inputs = boxes.to(device), scores.to(device), idxs.to(device)
    expected = torchvision.ops.nms(boxes, scores, threshold)
    found = nms(*inputs[:2], threshold)
    assert found.dtype == torch.int64
    assert torch.equal(found.cpu(), expected)
    assert_mask(nms_mask(*inputs[:2], threshold), expected)
    expected = expected_batched(boxes, scores, idxs, threshold)
    assert torch.equal(batched_nms(*inputs, threshold).cpu(), expected)
    assert_mask(nms_mask(*inputs[:2], threshold, inputs[2]), expected)


def assert_mask(found: tuple[Tensor, Tensor], expected: Tensor) -> None:
    mask, count = found
    assert mask.dtype == torch.bool
    assert count.dtype == torch.int64
    assert count.shape == ()
    assert count == len(expected)
    assert torch.equal(mask.nonzero()[:, 0].cpu(), expected.sort().values)


# ---- functions of tensors only, for the checks of op_contract.py ----


def make_inputs(
    device: torch.device | str, dtype=torch.float32, size: int = 300, seed: int = 0
) -> list[Tensor]:
    return [tensor.to(device, dtype if tensor.is_floating_point() else None)
            for tensor in make_set(size, seed)]  # fmt: skip


nms_at_half = partial(nms, iou_threshold=0.5)
batched_nms_at_half = partial(batched_nms, iou_threshold=0.5)


def mask_at_half(boxes: Tensor, scores: Tensor, idxs: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return nms_mask(boxes, scores, 0.5, idxs)
