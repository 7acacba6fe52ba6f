"""nms, batched_nms and nms_mask: index for index torchvision's on the CPU, and all that every op promises."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import torchvision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from op_contract import (
    DTYPES,
    assert_any_layout,
    assert_autocast_keeps_dtype,
    assert_bits_do_not_depend_on_threads,
    assert_graph_capture,
    assert_host_never_waits,
    assert_repeats_bitwise,
    assert_runs_on_a_second_stream,
)
from torch import Tensor

from detector.layers import batched_nms, nms, nms_mask, reference

cuda = torch.device("cuda")
THRESHOLDS = [0.0, 0.3, 0.5, 0.7, 1.0]


def make_set(
    size: int, seed: int = 0, *, side: float = 100, largest: float = 40, dtype=torch.float32, groups: int = 3
) -> tuple[Tensor, Tensor, Tensor]:
    """Random boxes in a square, their scores and groups, negative ones among them; on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(size, 2, generator=generator, dtype=dtype) * side
    sides = torch.rand(size, 2, generator=generator, dtype=dtype) * largest
    scores = torch.rand(size, generator=generator, dtype=dtype)
    idxs = torch.randint(-1, groups - 1, (size,), generator=generator)
    return torch.cat([corner, corner + sides], dim=1), scores, idxs


# ---- sets that are hard to get right; each changes boxes and scores of a random set ----


def as_they_are(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, scores


def tied_scores(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, (scores * 4).round() / 4 - 0.5


def equal_scores(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, torch.where(scores < 0.5, 0.0, -0.0).to(scores.dtype)  # two zeros, one score


def infinite_scores(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes, ((scores - 0.5) * 4).round() / 0  # -inf, NaN, inf; NaN has no order, so it goes


def duplicates(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return boxes[torch.arange(len(boxes)) // 3], scores


def on_a_grid(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return (boxes / 10).round() * 10, scores  # touching and empty ones; IoUs of small fractions


def chain(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Each overlaps the ones beside it: every box's fate hangs on the box before."""
    left = torch.arange(len(boxes), dtype=boxes.dtype)
    zeros = torch.zeros_like(left)
    return torch.stack([left, zeros, left + 3, zeros + 1], dim=1), -left


def shuffled_chain(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    return chain(boxes, scores)[0], scores


def exact_thresholds(boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes of height 1 from 0: IoUs of a / b for all small a and b, some of them the thresholds."""
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
    as_they_are, tied_scores, equal_scores, infinite_scores, duplicates, on_a_grid, chain, shuffled_chain,
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
    """torchvision's nms of each group; then the order that batched_nms promises."""
    kept = torch.zeros(len(scores), dtype=torch.bool)
    for group in idxs.unique():
        rows = (idxs == group).nonzero()[:, 0]
        kept[rows[torchvision.ops.nms(boxes[rows], scores[rows], threshold)]] = True
    order = scores.sort(descending=True, stable=True).indices
    return order[kept[order]]


def assert_as_torchvision(
    boxes: Tensor, scores: Tensor, idxs: Tensor, threshold: float, device: torch.device
) -> None:
    """All three functions; torchvision's on the CPU, whatever the device of ours."""
    there = boxes.to(device), scores.to(device), idxs.to(device)
    expected = torchvision.ops.nms(boxes, scores, threshold)
    found = nms(*there[:2], threshold)
    assert found.dtype == torch.int64
    assert torch.equal(found.cpu(), expected)
    assert_mask(nms_mask(*there[:2], threshold), expected)
    expected = expected_batched(boxes, scores, idxs, threshold)
    assert torch.equal(batched_nms(*there, threshold).cpu(), expected)
    assert_mask(nms_mask(*there[:2], threshold, there[2]), expected)


def assert_mask(found: tuple[Tensor, Tensor], expected: Tensor) -> None:
    mask, count = found
    assert mask.dtype == torch.bool
    assert count.dtype == torch.int64
    assert count.shape == ()
    assert count == len(expected)
    assert torch.equal(mask.nonzero()[:, 0].cpu(), expected.sort().values)


# ---- what it computes ----


def test_by_hand(device: torch.device) -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5], [1, 0, 11, 10], [20, 0, 30, 10]], device=device)
    scores = torch.tensor([0.8, 0.9, 0.7, 0.9], device=device)
    idxs = torch.tensor([2, 2, -5, 2], device=device)
    assert nms(boxes, scores, 0.5).tolist() == [1, 3, 0]  # an IoU of 0.5 is not greater than 0.5
    assert nms(boxes, scores, 0.49).tolist() == [1, 3, 2]  # box 0 is gone and suppresses none
    assert batched_nms(boxes, scores, idxs, 0.49).tolist() == [1, 3, 2]
    assert batched_nms(boxes, scores, idxs, 0.5).tolist() == [1, 3, 0, 2]
    mask, count = nms_mask(boxes, scores, 0.49)
    assert mask.tolist() == [False, True, True, True]
    assert count == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", SETS)
def test_indices_are_torchvisions(make: Callable, dtype: torch.dtype, device: torch.device) -> None:
    """1,500 sets on the CPU, 600 on a GPU; each ungrouped and in groups."""
    sizes, seeds = ([1, 2, 9, 40, 70], range(10)) if device.type == "cpu" else ([2, 70, 600, 1100], range(5))
    for boxes, scores, idxs, threshold in hard_sets(make, sizes, seeds, dtype):
        assert_as_torchvision(boxes, scores, idxs, threshold, device)


@pytest.mark.parametrize("make", [as_they_are, tied_scores, duplicates, on_a_grid, shuffled_chain])
@pytest.mark.parametrize("size", [127, 129, 511, 512, 513, 1025, 3000])
def test_sizes_around_bands_and_chunks(size: int, make: Callable, device: torch.device) -> None:
    for boxes, scores, idxs, _ in hard_sets(make, [size], range(1)):
        assert_as_torchvision(boxes, scores, idxs, 0.5, device)


@pytest.mark.parametrize("make", SETS)
def test_matches_twin(make: Callable, device: torch.device) -> None:
    for boxes, scores, idxs, threshold in hard_sets(make, [60], range(5)):
        inputs = boxes.to(device), scores.to(device)
        assert torch.equal(nms(*inputs, threshold), reference.nms(*inputs, threshold))
        actual = nms_mask(*inputs, threshold, idxs.to(device))
        expected = reference.nms_mask(*inputs, threshold, idxs.to(device))
        assert all(map(torch.equal, actual, expected))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_compute_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    for boxes, scores, idxs, threshold in hard_sets(as_they_are, [300], range(5)):
        boxes, scores = boxes.to(device, dtype), scores.to(device, dtype)
        found = batched_nms(boxes, scores, idxs.to(device), threshold)
        assert torch.equal(found, batched_nms(boxes.float(), scores.float(), idxs.to(device), threshold))


@pytest.mark.parametrize("threshold", [0.1, 1 / 3, 0.7])
def test_threshold_is_not_rounded_to_float32(threshold: float, device: torch.device) -> None:
    """float32 rounds the double up or down; an IoU may be equal to what it gives."""
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


def test_torchvisions_batched_nms(device: torch.device) -> None:
    """Where no score ties, so that it defines an order; past 1,000 boxes it uses no offsets on the CPU."""
    boxes, scores, idxs = make_set(1500, largest=30, groups=5)
    expected = torchvision.ops.batched_nms(boxes, scores, idxs, 0.4)
    actual = batched_nms(boxes.to(device), scores.to(device), idxs.to(device), 0.4)
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("groups", [1, 2, 40, 5000])
def test_groups_of_all_sizes(groups: int, device: torch.device) -> None:
    """Many to a chunk of the kernel, or many chunks to a group; and one group far larger than the rest."""
    boxes, scores, idxs = make_set(2500, groups=groups)
    assert_as_torchvision(boxes, scores, idxs, 0.3, device)
    idxs[scores < 0.8] = 7
    assert_as_torchvision(boxes, scores, idxs, 0.3, device)


def test_groups_are_any_integers(device: torch.device) -> None:
    boxes, scores, idxs = make_set(200, groups=4)
    expected = batched_nms(boxes, scores, idxs, 0.3)
    numbers = torch.tensor([torch.iinfo(torch.int64).min, -1, 2**40, torch.iinfo(torch.int64).max])
    found = batched_nms(boxes.to(device), scores.to(device), numbers[idxs + 1].to(device), 0.3)
    assert torch.equal(found.cpu(), expected)
    for dtype in (torch.int32, torch.int8):
        found = batched_nms(boxes.to(device), scores.to(device), idxs.to(device, dtype), 0.3)
        assert torch.equal(found.cpu(), expected)


def test_groups_far_apart_keep_their_bits(device: torch.device) -> None:
    """Two boxes of group 2^20 whose IoU is just above the threshold: an offset would round it away."""
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
def test_drawn_sets(
    corners: list, levels: int, groups: int, threshold: float, seed: int, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(seed)
    boxes = torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)
    scores = torch.randint(levels, (len(boxes),), generator=generator).float()
    idxs = torch.randint(groups, (len(boxes),), generator=generator)
    assert_as_torchvision(boxes, scores, idxs, threshold, device)


# ---- what every op promises ----


def inputs_of(
    device: torch.device | str, dtype=torch.float32, size: int = 300, seed: int = 0
) -> list[Tensor]:
    return [tensor.to(device, dtype if tensor.is_floating_point() else None)
            for tensor in make_set(size, seed)]  # fmt: skip


nms_at_half = partial(nms, iou_threshold=0.5)
batched_nms_at_half = partial(batched_nms, iou_threshold=0.5)


def mask_at_half(boxes: Tensor, scores: Tensor, idxs: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return nms_mask(boxes, scores, 0.5, idxs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ten_repeats_are_equal(dtype: torch.dtype, device: torch.device) -> None:
    inputs = inputs_of(device, dtype, 3000)
    assert_repeats_bitwise(nms_at_half, inputs[:2])
    assert_repeats_bitwise(mask_at_half, inputs)


def test_threads_change_nothing() -> None:
    assert_bits_do_not_depend_on_threads(nms_at_half, make_set(12_000, side=3000)[:2])
    assert_bits_do_not_depend_on_threads(batched_nms_at_half, make_set(6000, side=1000))


@pytest.mark.parametrize("function", [nms_at_half, batched_nms_at_half, mask_at_half])
def test_any_strides(function: Callable, device: torch.device) -> None:
    inputs = inputs_of(device)
    assert_any_layout(function, inputs[:2] if function is nms_at_half else inputs)
    same = [inputs[0][:1].expand(300, 4), inputs[1][:1].expand(300), inputs[2][:1].expand(300)]
    if function is batched_nms_at_half:
        assert function(*same).tolist() == [0]


def test_no_gradient_flows(device: torch.device) -> None:
    boxes, scores, idxs = inputs_of(device)
    boxes.requires_grad_(), scores.requires_grad_()
    assert not batched_nms(boxes, scores, idxs, 0.5).requires_grad
    assert not nms_mask(boxes, scores, 0.5)[0].requires_grad


def test_deterministic_algorithms(device: torch.device) -> None:
    inputs = inputs_of(device, size=9000)  # more than are ranked: torch's sort takes part
    expected = batched_nms_at_half(*inputs)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(batched_nms_at_half(*inputs), expected)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(dtype: torch.dtype, grouped: bool, device: torch.device) -> None:
    boxes, scores, idxs = inputs_of(device, dtype, 20)
    arguments = (boxes.requires_grad_(), scores, idxs if grouped else None, 0.5)
    torch.library.opcheck(torch.ops.detector.nms.default, arguments)
    torch.library.opcheck(torch.ops.detector.nms_mask.default, arguments)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [nms_at_half, batched_nms_at_half, mask_at_half])
def test_compile_full_graph(function: Callable, dynamic: bool, device: torch.device) -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=function is not mask_at_half):
        compiled = torch.compile(function, fullgraph=True, dynamic=dynamic)
        for size in (30, 41):
            inputs = inputs_of(device, size=size)[: 2 if function is nms_at_half else 3]
            found, expected = compiled(*inputs), function(*inputs)
            assert all(map(torch.equal, _as_tuple(found), _as_tuple(expected)))


class KeptBoxes(torch.nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor, idxs: Tensor) -> tuple[Tensor, Tensor]:
        return boxes[batched_nms(boxes, scores, idxs, 0.5)], nms_mask(boxes, scores, 0.5)[0]


def test_export(device: torch.device) -> None:
    size = torch.export.Dim("size")
    shapes = {"boxes": {0: size}, "scores": {0: size}, "idxs": {0: size}}
    program = torch.export.export(KeptBoxes(), tuple(inputs_of(device)), dynamic_shapes=shapes)
    other = inputs_of(device, size=77)
    assert all(map(torch.equal, program.module()(*other), KeptBoxes()(*other)))


def test_autocast(device: torch.device) -> None:
    boxes, scores, idxs = inputs_of(device)
    assert_autocast_keeps_dtype(batched_nms_at_half, [boxes, scores, idxs], device)
    assert_autocast_keeps_dtype(mask_at_half, [boxes, scores], device)
    with torch.autocast(device.type, torch.bfloat16):  # brings both to float32
        found = nms(boxes, scores.bfloat16(), 0.5)
    assert torch.equal(found, nms(boxes, scores.bfloat16().float(), 0.5))


def _as_tuple(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else found


# ---- bad input ----


def bad_arguments() -> Iterator[tuple[str, dict]]:
    boxes, scores, idxs = make_set(5)
    yield r"boxes has shape \(5, 5\), expected \(N, 4\)", {"boxes": torch.zeros(5, 5)}
    yield r"boxes has shape \(4,\), expected \(N, 4\)", {"boxes": torch.zeros(4)}
    yield r"boxes has shape \(1, 5, 4\), expected \(N, 4\)", {"boxes": boxes[None]}
    yield r"scores has shape \(4,\), expected \(5,\)", {"scores": scores[:4]}
    yield r"scores has shape \(5, 1\), expected \(5,\)", {"scores": scores[:, None]}
    yield r"scores is Double, expected Float", {"scores": scores.double()}
    yield r"boxes is Long, expected Double, Float, Half or BFloat16", {"boxes": boxes.long(), "scores": idxs}
    yield r"idxs has shape \(4,\), expected \(5,\)", {"idxs": idxs[:4]}
    yield r"idxs is Float, expected Long", {"idxs": idxs.float()}
    for threshold in (-0.1, 1.5, torch.nan):
        yield rf"iou_threshold is {threshold}, expected a number from 0 to 1", {"iou_threshold": threshold}


@pytest.mark.parametrize(("message", "changed"), list(bad_arguments()))
def test_bad_arguments(message: str, changed: dict, device: torch.device) -> None:
    boxes, scores, idxs = make_set(5)
    arguments = {"boxes": boxes, "scores": scores, "idxs": idxs, "iou_threshold": 0.5, **changed}
    arguments = {name: a.to(device) if isinstance(a, Tensor) else a for name, a in arguments.items()}
    with pytest.raises(RuntimeError, match=f"^nms_mask: {message}"):
        nms_mask(**arguments)
    with pytest.raises(RuntimeError, match=f"^nms: {message}"):
        batched_nms(**arguments)
    if "idxs" not in changed:
        del arguments["idxs"]
        with pytest.raises(RuntimeError, match=f"^nms: {message}"):
            nms(**arguments)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_is_refused(dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    for name, place, message in (("boxes", (3, 1), r"boxes\[3, 1\]"), ("scores", (2,), r"scores\[2\]")):
        boxes, scores, _ = inputs_of(device, dtype, 5)
        {"boxes": boxes, "scores": scores}[name][place] = torch.nan
        with pytest.raises(RuntimeError, match=f"^nms: {message} is nan, expected a number"):
            nms(boxes, scores, 0.5)
        with pytest.raises(RuntimeError, match=f"^nms_mask: {message} is nan, expected a number"):
            nms_mask(boxes, scores, 0.5)


# ---- on a GPU only ----


@pytest.mark.cuda
@pytest.mark.parametrize("size", [20, 9000])
def test_cuda_nan_without_validation(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box with a NaN is kept and suppresses nothing; a score of NaN, of either sign, is above all."""
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    boxes = torch.tensor([[0.0, 0, 1, 1]], device=cuda).repeat(size, 1)
    scores = torch.linspace(1, 2, size, device=cuda)
    boxes[4, 2] = torch.nan
    assert nms(boxes, scores, 0.5).tolist() == [size - 1, 4]
    scores[7], scores[9] = -torch.tensor(torch.nan), torch.nan
    assert nms(boxes, scores, 0.5).tolist() == [7, 4]
    assert nms_mask(boxes, scores, 0.5)[0].nonzero()[:, 0].tolist() == [4, 7]


@pytest.mark.cuda
@pytest.mark.parametrize("make", [as_they_are, tied_scores, duplicates, on_a_grid, shuffled_chain, chain])
@pytest.mark.parametrize("size", [4096, 4097, 30_000])
def test_cuda_equals_cpu(size: int, make: Callable) -> None:
    """The CPU's are torchvision's, which would take minutes here."""
    for seed, (side, groups) in enumerate([(1000, 1), (1000, 20), (100, 2), (1000, 9000)]):
        boxes, scores, idxs = make_set(size, seed, side=side, largest=side / 8, groups=groups)
        boxes, scores = make(boxes, scores)
        there = boxes.to(cuda), scores.to(cuda), idxs.to(cuda)
        assert torch.equal(nms(*there[:2], 0.4).cpu(), nms(boxes, scores, 0.4))
        expected = batched_nms(boxes, scores, idxs, 0.4)
        assert torch.equal(batched_nms(*there, 0.4).cpu(), expected)
        assert_mask(nms_mask(*there[:2], 0.4, there[2]), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("largest", [200, 50])
def test_cuda_half_a_million_boxes(largest: float) -> None:
    boxes, scores, _ = make_set(500_000, side=1000, largest=largest)
    found = nms(boxes.to(cuda), scores.to(cuda), 0.5)
    assert torch.equal(found.cpu(), nms(boxes, scores, 0.5))


@pytest.mark.cuda
def test_cuda_past_two_to_the_31_elements() -> None:
    size = 2**29 + 3
    boxes = torch.tensor([[0.0, 0, 1, 1]], device=cuda).expand(size, 4)
    assert boxes.numel() > 2**31
    idxs = torch.arange(size, device=cuda)
    idxs[-1] = 0
    mask, count = nms_mask(boxes, torch.zeros(1, device=cuda).expand(size), 0.5, idxs)
    assert count == size - 1
    assert mask[0]
    assert not mask[-1]


@pytest.mark.cuda
def test_cuda_arguments_on_two_devices() -> None:
    boxes, scores, idxs = inputs_of(cuda)
    with pytest.raises(RuntimeError, match=r"^nms: scores is on cpu, but boxes is on cuda:0"):
        nms(boxes, scores.cpu(), 0.5)
    with pytest.raises(RuntimeError, match=r"^nms: idxs is on cpu, but boxes is on cuda:0"):
        batched_nms(boxes, scores, idxs.cpu(), 0.5)


@pytest.mark.cuda
@pytest.mark.parametrize("size", [300, 9000])
def test_cuda_host_stream_and_graph(size: int) -> None:
    inputs, others = inputs_of(cuda, size=size), inputs_of(cuda, size=size, seed=1)
    assert_host_never_waits(mask_at_half, inputs)
    assert_host_never_waits(mask_at_half, inputs[:2])
    assert_runs_on_a_second_stream(mask_at_half, inputs)
    assert_runs_on_a_second_stream(nms_at_half, inputs[:2])
    assert_graph_capture(mask_at_half, inputs, others)
    assert_graph_capture(mask_at_half, inputs[:2], others[:2])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    for size in (70, 1100, 4200):  # one chunk, several, more than are ranked
        boxes, scores, idxs = inputs_of("cpu", dtype, size)
        there = boxes.to(cuda), scores.to(cuda), idxs.to(cuda)
        assert torch.equal(nms(*there[:2], 0.3).cpu(), nms(boxes, scores, 0.3))
        assert torch.equal(batched_nms(*there, 0.3).cpu(), batched_nms(boxes, scores, idxs, 0.3))
