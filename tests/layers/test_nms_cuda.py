"""nms, batched_nms and nms_mask on a GPU: the same results as on the CPU, streams, graphs."""

from collections.abc import Callable

import op_contract
import pytest
import torch
from nms_cases import (
    assert_mask,
    chain,
    duplicates,
    make_inputs,
    make_set,
    mask_at_half,
    nms_at_half,
    on_a_grid,
    shuffled_chain,
    tied_scores,
    unchanged,
)
from op_contract import DTYPES

from detector.layers import batched_nms, nms, nms_mask

cuda = torch.device("cuda")
pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("size", [20, 9000])
def test_cuda_nan_without_validation(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box with a NaN is kept and suppresses none; a NaN score of either sign ranks first."""
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    boxes = torch.tensor([[0.0, 0, 1, 1]], device=cuda).repeat(size, 1)
    scores = torch.linspace(1, 2, size, device=cuda)
    boxes[4, 2] = torch.nan
    assert nms(boxes, scores, 0.5).tolist() == [size - 1, 4]
    scores[7], scores[9] = -torch.tensor(torch.nan), torch.nan
    assert nms(boxes, scores, 0.5).tolist() == [7, 4]
    assert nms_mask(boxes, scores, 0.5)[0].nonzero()[:, 0].tolist() == [4, 7]


@pytest.mark.parametrize("size", [100, 9000])
def test_cuda_result_has_no_memory_of_other_boxes(size: int) -> None:
    """torch.save writes all of a storage."""
    boxes, scores = (tensor.cuda() for tensor in make_set(size)[:2])
    for kept in (nms_at_half(boxes, scores), batched_nms(boxes, scores, torch.arange(size).cuda() % 3, 0.5)):
        assert kept.untyped_storage().nbytes() == 8 * len(kept) < 8 * size


@pytest.mark.parametrize("make", [unchanged, tied_scores, duplicates, on_a_grid, shuffled_chain, chain])
@pytest.mark.parametrize("size", [4096, 4097, 30_000])
def test_cuda_equals_cpu(size: int, make: Callable) -> None:
    """torchvision itself would take minutes; the CPU kernels have been compared with it."""
    for seed, (side, groups) in enumerate([(1000, 1), (1000, 20), (100, 2), (1000, 9000)]):
        boxes, scores, idxs = make_set(size, seed, side=side, largest=side / 8, groups=groups)
        boxes, scores = make(boxes, scores)
        there = boxes.to(cuda), scores.to(cuda), idxs.to(cuda)
        assert torch.equal(nms(*there[:2], 0.4).cpu(), nms(boxes, scores, 0.4))
        expected = batched_nms(boxes, scores, idxs, 0.4)
        assert torch.equal(batched_nms(*there, 0.4).cpu(), expected)
        assert_mask(nms_mask(*there[:2], 0.4, there[2]), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 4096, 4097, 8192, 8193, 65_536, 65_537, 600_000])
def test_cuda_sort_order_at_run_and_merge_boundaries(size: int, dtype: torch.dtype) -> None:
    """Of equal boxes of a group the first is kept, so the result reveals the sort order, ties included."""
    generator = torch.Generator().manual_seed(size)
    kinds = torch.randint(50, (size,), generator=generator)
    numbers = torch.randint(1 + size // 100, (size,), generator=generator)
    idxs = numbers * (2**62 // (1 + size // 100)) * (1 - 2 * (numbers % 2))
    scores = torch.randn(size, generator=generator, dtype=dtype).mul(size / 10).round()
    scores[::1000] = torch.nan
    for groups in (torch.zeros_like(idxs), idxs):
        order = scores.nan_to_num(torch.inf).sort(descending=True, stable=True).indices
        pairs = (numbers * 50 * (groups != 0) + kinds)[order]
        first_of_pair = torch.full((50 * (1 + size // 100),), size).scatter_reduce(
            0, pairs, torch.arange(size), "amin"
        )
        expected = order[first_of_pair[pairs] == torch.arange(size)]
        boxes = kinds.to(cuda, dtype)[:, None] * 2 + torch.tensor([0, 0, 1, 1], device=cuda)
        found = batched_nms(boxes, scores.to(cuda), groups.to(cuda), 0.5)
        assert torch.equal(found.cpu(), expected)
        if groups is not idxs:
            assert torch.equal(nms(boxes, scores.to(cuda), 0.5).cpu(), expected)
        assert_mask(nms_mask(boxes, scores.to(cuda), 0.5, groups.to(cuda)), expected)


@pytest.mark.parametrize("largest", [200, 50])
def test_cuda_half_a_million_boxes(largest: float) -> None:
    boxes, scores, _ = make_set(500_000, side=1000, largest=largest)
    found = nms(boxes.to(cuda), scores.to(cuda), 0.5)
    assert torch.equal(found.cpu(), nms(boxes, scores, 0.5))


@pytest.mark.gpu_memory(60)
def test_cuda_more_than_2_to_31_elements() -> None:
    size = 2**29 + 3
    boxes = torch.tensor([[0.0, 0, 1, 1]], device=cuda).expand(size, 4)
    assert boxes.numel() > 2**31
    idxs = torch.arange(size, device=cuda)
    idxs[-1] = 0
    mask, count = nms_mask(boxes, torch.zeros(1, device=cuda).expand(size), 0.5, idxs)
    assert count == size - 1
    assert mask[0]
    assert not mask[-1]
    del mask
    boxes = boxes[:1].expand(2**31, 4)
    with pytest.raises(
        RuntimeError, match=r"^nms: boxes has shape \(2147483648, 4\), expected at most 2147483647"
    ):
        nms(boxes, torch.zeros(1, device=cuda).expand(2**31), 0.5)


def test_cuda_mixed_devices_raise() -> None:
    boxes, scores, idxs = make_inputs(cuda)
    with pytest.raises(RuntimeError, match=r"^nms: scores is on cpu, but boxes is on cuda:0"):
        nms(boxes, scores.cpu(), 0.5)
    with pytest.raises(RuntimeError, match=r"^nms: idxs is on cpu, but boxes is on cuda:0"):
        batched_nms(boxes, scores, idxs.cpu(), 0.5)


@pytest.mark.parametrize("size", [300, 9000])
def test_cuda_synchronization_streams_and_graphs(size: int) -> None:
    inputs, others = make_inputs(cuda, size=size), make_inputs(cuda, size=size, seed=1)
    op_contract.assert_no_synchronization(mask_at_half, inputs)
    op_contract.assert_no_synchronization(mask_at_half, inputs[:2])
    op_contract.assert_uses_current_stream(mask_at_half, inputs)
    op_contract.assert_uses_current_stream(nms_at_half, inputs[:2])
    op_contract.assert_graph_capture(mask_at_half, inputs, others)
    op_contract.assert_graph_capture(mask_at_half, inputs[:2], others[:2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    for size in (70, 1100, 4200):  # one chunk, several chunks, too many for the rank kernel
        boxes, scores, idxs = make_inputs("cpu", dtype, size)
        there = boxes.to(cuda), scores.to(cuda), idxs.to(cuda)
        assert torch.equal(nms(*there[:2], 0.3).cpu(), nms(boxes, scores, 0.3))
        assert torch.equal(batched_nms(*there, 0.3).cpu(), batched_nms(boxes, scores, idxs, 0.3))
