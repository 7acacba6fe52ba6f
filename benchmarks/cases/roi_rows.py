"""Shared by roi_pool.py and roi_align.py: cases, boxes, and the comparison with torchvision."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torchvision
from measure import Row, time_calls, time_in_graph, time_queued
from torch import Tensor

from detector import layers

STRIDE = 8  # pixels per cell
OUTPUT_SIZE = 7
NUM_BOXES_SETS = 3  # used in turn


class Case(NamedTuple):
    images: int
    channels: int
    height: int
    width: int
    boxes: int  # in total
    dtype: torch.dtype = torch.float32
    channels_last: bool = False
    sides: tuple[float, float] | None = None  # of the boxes, in pixels; None: random corners

    def text(self) -> str:
        sides = "" if self.sides is None else f" of {self.sides[0]:g} to {self.sides[1]:g} pixels"
        return f"{self.images}x{self.channels}x{self.height}x{self.width}, {self.boxes} boxes{sides}"


WSOD = Case(1, 512, 112, 150, 4000)  # conv5 of a dilated VGG16 on an image of 900 x 1200
BATCH = Case(16, 512, 38, 50, 16 * 1000)
LARGE = Case(1, 512, 75, 100, 2000)
# The targets were set for boxes with which torchvision takes about 0.80 and 0.51 ms (roi_pool, forward and
# backward) and 1.16 and 4.08 ms (roi_align) on an H200.
TARGET_CASE = LARGE._replace(sides=(32, 256))
GRAPH_CASES = [TARGET_CASE, LARGE]
GPU_CASES = [
    TARGET_CASE,
    LARGE,
    *(
        WSOD._replace(dtype=d, channels_last=last)
        for d in (torch.float32, torch.bfloat16)
        for last in (False, True)
    ),
    *(BATCH._replace(dtype=d) for d in (torch.float32, torch.bfloat16)),
]
CPU_CASES = [Case(1, 256, 14, 14, 100), Case(2, 64, 38, 50, 300), Case(1, 128, 75, 100, 500)]


def random_boxes(case: Case, seed: int) -> Tensor:
    """Boxes (R, 5), sorted by image, with uniform corners or, given `sides`, uniform sides and centers."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.tensor([case.width, case.height]) * STRIDE
    random = torch.rand(case.boxes, 2, 2, generator=generator)
    if case.sides is None:
        corners = random.sort(dim=1).values * size
    else:
        half = (case.sides[0] + random[:, :1] * (case.sides[1] - case.sides[0])) / 2
        corners = random[:, 1:] * size + torch.cat([-half, half], dim=1)
        corners = corners.clamp(min=torch.zeros(2), max=size)
    image = torch.arange(case.boxes)[:, None] * case.images // case.boxes
    return torch.cat([image, corners.flatten(1)], dim=1)


def rows(
    op: str,
    options: dict[str, object],
    targets_ms: dict[str, float],
    saved_bytes: int,
    device: torch.device,
    bandwidth: float,
) -> list[Row]:
    """`targets_ms` are for TARGET_CASE; the target of other cases is the time of torchvision."""
    cases = GPU_CASES if device.type == "cuda" else CPU_CASES
    result = []
    for case in cases:
        ours = _times(partial(getattr(layers, op), **options), case, device)
        # torchvision does not support bfloat16 and requires boxes in the dtype of the features.
        baseline_dtype = torch.float16 if case.dtype == torch.bfloat16 else case.dtype
        baseline = _times(
            partial(getattr(torchvision.ops, op), **options),
            case._replace(dtype=baseline_dtype), device, box_dtype=baseline_dtype,
        )  # fmt: skip
        threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
        for pass_, ours_ms in ours.items():
            target = targets_ms.get(pass_) if case == TARGET_CASE else None
            row = Row(
                case=f"{op} {case.text()}{threads}",
                pass_=pass_,
                dtype=str(case.dtype).removeprefix("torch."),
                layout="channels last" if case.channels_last else "contiguous",
                ours_ms=ours_ms,
                baseline="torchvision" if baseline_dtype == case.dtype else "torchvision float16",
                baseline_ms=baseline[pass_],
                copy_percent=100 * _fewest_bytes(case, saved_bytes) / bandwidth / ours_ms,
                target="baseline_ms" if target is None else f"{target} ms",
                reached=ours_ms <= (baseline[pass_] if target is None else target),
            )
            result.append(row)
    return result


def _fewest_bytes(case: Case, saved_bytes: int) -> int:
    """Equal for both passes: features, pooled values (or their gradients), boxes and saved tensors."""
    cells = case.images * case.channels * case.height * case.width
    pooled = case.boxes * case.channels * OUTPUT_SIZE**2
    return cells * case.dtype.itemsize + pooled * (case.dtype.itemsize + saved_bytes) + case.boxes * 20


def _times(
    op: Callable[..., Tensor], case: Case, device: torch.device, box_dtype: torch.dtype = torch.float32
) -> dict[str, float]:
    shape = (case.images, case.channels, case.height, case.width)
    input = torch.randn(shape, generator=torch.Generator().manual_seed(0)).relu().to(device, case.dtype)
    if case.channels_last:
        input = input.contiguous(memory_format=torch.channels_last)
    input.requires_grad_()
    boxes = [random_boxes(case, seed).to(device, box_dtype) for seed in range(NUM_BOXES_SETS)]
    calls = [partial(op, input, b, OUTPUT_SIZE, 1 / STRIDE) for b in boxes]
    timer = time_queued if device.type == "cuda" else partial(time_calls, repeats=9)
    times = {"forward": timer(calls, device), "backward": timer(_backward_calls(calls, input), device)}
    if case in GRAPH_CASES and device.type == "cuda":
        stream = torch.cuda.Stream()
        times["forward in a CUDA graph"] = time_in_graph(calls, device, stream)
        with torch.cuda.stream(stream):
            backward_calls = _backward_calls(calls, input)
        times["backward in a CUDA graph"] = time_in_graph(backward_calls, device, stream)
    return times


def _backward_calls(calls: Sequence[Callable[[], Tensor]], input: Tensor) -> list[Callable[[], object]]:
    pooled = [call() for call in calls]
    upstream = torch.randn_like(pooled[0])
    return [partial(torch.autograd.grad, p, input, upstream, retain_graph=True) for p in pooled]
