"""nms, batched_nms and nms_mask: the same indices as torchvision on the CPU."""

from collections.abc import Callable

import pytest
import torch
import torchvision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nms_cases import (
    SETS,
    assert_equals_torchvision,
    assert_mask,
    duplicates,
    hard_sets,
    make_set,
    on_a_grid,
    shuffled_chain,
    tied_scores,
    unchanged,
)

from detector.layers import batched_nms, nms, nms_mask


def test_by_hand(device: torch.device) -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5], [1, 0, 11, 10], [20, 0, 30, 10]], device=device)
    scores = torch.tensor([0.8, 0.9, 0.7, 0.9], device=device)
    idxs = torch.tensor([2, 2, -5, 2], device=device)
    assert nms(boxes, scores, 0.5).tolist() == [1, 3, 0]  # an IoU equal to the threshold does not suppress
    assert nms(boxes, scores, 0.49).tolist() == [1, 3, 2]  # box 0 is suppressed and suppresses none
    assert batched_nms(boxes, scores, idxs, 0.49).tolist() == [1, 3, 2]
    assert batched_nms(boxes, scores, idxs, 0.5).tolist() == [1, 3, 0, 2]
    fractions = torch.tensor([0.2, 0.2, 0.1, 0.2], device=device)  # groups by value: not truncated
    assert batched_nms(boxes, scores, fractions, 0.5).tolist() == [1, 3, 0, 2]
    mask, count = nms_mask(boxes, scores, 0.49)
    assert mask.tolist() == [False, True, True, True]
    assert count == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", SETS)
def test_indices_equal_torchvision(make: Callable, dtype: torch.dtype, device: torch.device) -> None:
    """1,500 sets on the CPU and 600 on a GPU, each with and without groups."""
    sizes, seeds = ([1, 2, 9, 40, 70], range(10)) if device.type == "cpu" else ([2, 70, 600, 1100], range(5))
    for boxes, scores, idxs, threshold in hard_sets(make, sizes, seeds, dtype):
        assert_equals_torchvision(boxes, scores, idxs, threshold, device)


@pytest.mark.parametrize("make", [unchanged, tied_scores, duplicates, on_a_grid, shuffled_chain])
@pytest.mark.parametrize("size", [127, 129, 511, 512, 513, 1025, 3000])
def test_sizes_at_band_and_chunk_boundaries(size: int, make: Callable, device: torch.device) -> None:
    for boxes, scores, idxs, _ in hard_sets(make, [size], range(1)):
        assert_equals_torchvision(boxes, scores, idxs, 0.5, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    for boxes, scores, idxs, threshold in hard_sets(unchanged, [300], range(5)):
        boxes, scores = boxes.to(device, dtype), scores.to(device, dtype)
        found = batched_nms(boxes, scores, idxs.to(device), threshold)
        assert torch.equal(found, batched_nms(boxes.float(), scores.float(), idxs.to(device), threshold))


@pytest.mark.parametrize("threshold", [0.1, 1 / 3, 0.7])
def test_threshold_is_not_rounded_to_float32(threshold: float, device: torch.device) -> None:
    """An IoU equal to the threshold rounded to float32 must be compared with the unrounded threshold."""
    rounded = torch.tensor(threshold)
    steps = torch.arange(-4, 5) * 2.0**-25
    ious = []
    for width in rounded + steps:
        boxes = torch.tensor([[0.0, 0, 1, 1], [0, 0, width, 1]])
        iou = width / (1 + width - width)
        found = nms(boxes.to(device), torch.tensor([2.0, 1], device=device), threshold)
        assert len(found) == (1 if iou.item() > threshold else 2)
        ious.append(iou)
    assert rounded in ious


def test_batched_nms_equals_torchvision(device: torch.device) -> None:
    """Without ties, so the order is defined; above 1,000 boxes torchvision uses no offsets on the CPU."""
    boxes, scores, idxs = make_set(1500, largest=30, groups=5)
    expected = torchvision.ops.batched_nms(boxes, scores, idxs, 0.4)
    actual = batched_nms(boxes.to(device), scores.to(device), idxs.to(device), 0.4)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("groups", [1, 2, 40, 5000])
def test_group_sizes(groups: int, device: torch.device) -> None:
    """Many groups per chunk of the kernel, many chunks per group, and one group much larger than the rest."""
    boxes, scores, idxs = make_set(2500, groups=groups)
    assert_equals_torchvision(boxes, scores, idxs, 0.3, device)
    idxs[scores < 0.8] = 7
    assert_equals_torchvision(boxes, scores, idxs, 0.3, device)


def test_group_indices_are_arbitrary_integers(device: torch.device) -> None:
    boxes, scores, idxs = make_set(200, groups=4)
    expected = batched_nms(boxes, scores, idxs, 0.3)
    numbers = torch.tensor([torch.iinfo(torch.int64).min, -1, 2**40, torch.iinfo(torch.int64).max])
    found = batched_nms(boxes.to(device), scores.to(device), numbers[idxs + 1].to(device), 0.3)
    assert torch.equal(found.cpu(), expected)
    for dtype in (torch.int32, torch.int8):
        found = batched_nms(boxes.to(device), scores.to(device), idxs.to(device, dtype), 0.3)
        assert torch.equal(found.cpu(), expected)


def test_large_group_indices_lose_no_precision(device: torch.device) -> None:
    """Coordinate offsets would round the IoU of these two boxes, which is just above the threshold."""
    boxes = torch.tensor([[0.0, 0, 1, 1], [0, 0, 0.5 + 2**-20, 1], [5e5, 0, 1e6, 1]], device=device)
    scores = torch.tensor([0.9, 0.8, 0.7], device=device)
    idxs = torch.tensor([2**20, 2**20, 0], device=device)
    assert batched_nms(boxes, scores, idxs, 0.5).tolist() == [0, 2]


def test_empty(device: torch.device) -> None:
    boxes, scores = torch.zeros(0, 4, device=device), torch.zeros(0, device=device)
    idxs = torch.zeros(0, dtype=torch.int64, device=device)
    for found in (nms(boxes, scores, 0.5), batched_nms(boxes, scores, idxs, 0.5)):
        assert found.shape == (0,)
        assert found.dtype == torch.int64
        assert found.device == boxes.device
    assert_mask(nms_mask(boxes, scores, 0.5), torch.zeros(0, dtype=torch.int64))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    corners=st.lists(st.tuples(*[st.integers(-3, 6)] * 4), max_size=40),
    levels=st.integers(1, 5),
    groups=st.integers(1, 4),
    threshold=st.sampled_from([0.0, 0.2, 1 / 3, 0.5, 1.0]) | st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_random_sets_equal_torchvision(
    corners: list, levels: int, groups: int, threshold: float, seed: int, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)
    scores = torch.randint(levels, (len(boxes),), generator=generator).float()
    idxs = torch.randint(groups, (len(boxes),), generator=generator)
    assert_equals_torchvision(boxes, scores, idxs, threshold, device)
