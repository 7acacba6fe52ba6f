"""Non-maximum suppression compared with torchvision's, float32, IoU threshold 0.5.

"random" boxes have corners uniform in a 1000 x 1000 image and sides of 10 to 200 pixels. "apart" boxes have
sides of 1 to 2 pixels, so that nearly all are kept and all pairs are compared. "crowded" boxes lie in 100 x
100 pixels, and nearly all are suppressed. batched_nms: random boxes in 20 classes. nms includes the
synchronization for the number of kept boxes; nms_mask does not synchronize.

Design alternatives, measured on an H200. Times of nms of 2,000 / 20,000 / 100,000 random boxes in
milliseconds:
* Chunks of 512 boxes, one thread per box, compared with the kept boxes of all earlier chunks: 0.217 / 0.86 /
  2.45.
* Chunks of 256, four threads per box, the next chunk computed ahead: 0.107 / 0.41 / 1.42.
* Branch-free comparison with a division only where needed: 0.101 / 0.38 / 1.25.
* batched_nms, 20 classes x 2,000: 0.29 if a chunk that contains the start of a class is resolved at once,
  0.93 if chunks across classes form one chain.

Host overhead, microseconds of nms of 2,000 / 20,000 boxes / batched_nms: 87 / 384 / 298 at first. Allocating
once without the dispatcher and using cub's radix sort: 69 / 355 / 199. A custom sort of scores and groups in
5 launches: 139 for batched_nms; it was given up for cub's (H100: nms of 20,000 boxes 340 to 400,
batched_nms 150 to 310). All pairs as a bit mask for up to 4,096 boxes: 42 for 2,000 boxes.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from measure import Row, time_calls, time_in_graph
from torch import Tensor
from torchvision import ops

from detector.layers import batched_nms, nms, nms_mask

THRESHOLD = 0.5
NUM_CLASSES = 20
NUM_INPUTS = 3  # used in turn


class Boxes(NamedTuple):
    """Extent of the corners and range of the sides, in pixels."""

    name: str
    extent: float
    shortest: float
    longest: float


RANDOM = Boxes("random", 1000, 10, 200)
APART = Boxes("apart", 1000, 1, 2)
CROWDED = Boxes("crowded", 100, 10, 200)
GPU_TARGETS = {2000: 0.10, 20_000: 0.8, 100_000: 9.0}  # ms
GPU_BATCHED_TARGETS = {40_000: 0.4}
CPU_SIZES = [200, 2000, 10_000]


def make_inputs(boxes: Boxes, size: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (N, 4), scores (N,), classes (N,)."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(size, 2, generator=generator) * boxes.extent
    sides = boxes.shortest + torch.rand(size, 2, generator=generator) * (boxes.longest - boxes.shortest)
    scores = torch.rand(size, generator=generator)
    classes = torch.randint(NUM_CLASSES, (size,), generator=generator)
    return torch.cat([corners, corners + sides], dim=1).to(device), scores.to(device), classes.to(device)


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    on_gpu = device.type == "cuda"
    result = []
    for size in GPU_TARGETS if on_gpu else CPU_SIZES:
        for boxes in (RANDOM, APART, CROWDED):
            inputs = [make_inputs(boxes, size, seed, device)[:2] for seed in range(NUM_INPUTS)]
            name = f"nms {boxes.name} {size}"
            result += _rows(name, inputs, nms, ops.nms, nms_mask, GPU_TARGETS.get(size), bandwidth)
    for size in GPU_BATCHED_TARGETS if on_gpu else CPU_SIZES:
        inputs = [make_inputs(RANDOM, size, seed, device) for seed in range(NUM_INPUTS)]
        name = f"batched_nms {NUM_CLASSES} classes {size}"
        target = GPU_BATCHED_TARGETS.get(size)
        result += _rows(name, inputs, batched_nms, ops.batched_nms, _batched_mask, target, bandwidth)
    return result


def _batched_mask(boxes: Tensor, scores: Tensor, classes: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    return nms_mask(boxes, scores, threshold, classes)


def _rows(
    name: str, inputs: list[tuple[Tensor, ...]], ours: Callable, baseline: Callable, mask: Callable,
    target_ms: float | None, bandwidth: float,
) -> list[Row]:  # fmt: skip
    """Time the index form and, on a GPU, the mask form in a CUDA graph, compared with torchvision."""
    device = inputs[0][0].device
    calls = [[partial(op, *tensors, THRESHOLD) for tensors in inputs] for op in (ours, baseline, mask)]
    baseline_ms = time_calls(calls[1], device, repeats=10)
    times = {"forward": time_calls(calls[0], device, repeats=30)}
    if device.type == "cuda":
        times["nms_mask in a CUDA graph"] = time_in_graph(calls[2], device)
        target = f"{target_ms} ms"
    else:
        target_ms = baseline_ms
        target = f"torchvision's time, {torch.get_num_threads()} threads"
    fewest_bytes = sum(tensor.nbytes for tensor in inputs[0]) + 8 * len(ours(*inputs[0], THRESHOLD))
    return [
        Row(name, pass_, "float32", "contiguous", ms, "torchvision", baseline_ms,
            100 * fewest_bytes / bandwidth / ms, target, ms <= target_ms)
        for pass_, ms in times.items()
    ]  # fmt: skip
