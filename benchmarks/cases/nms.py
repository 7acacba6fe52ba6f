"""Non-maximum suppression beside torchvision's, float32, IoU threshold 0.5.

"random" boxes have corners uniform in a 1000 x 1000 image and sides uniform from 10 to 200 pixels; "apart"
ones sides of 1 to 2 pixels, so that nearly all stay and all pairs are tested; "crowded" ones lie in 100 x 100
pixels, and nearly all go. Batched: random boxes in 20 classes. The time of nms holds the wait for the number
of boxes that stay; nms_mask does not wait.

Predicted for 100,000 boxes on an H200: 5e9 pairs of 15 instructions take 2.6 ms where all boxes stay; of the
random ones 19,208 stay, which makes at most 1.9e9 pairs and 1.0 ms. Measured 3.7 and 1.2, in a CUDA graph.
What was tried, with the times of nms of 2,000 / 20,000 / 100,000 random boxes in ms:

* chunks of 512 with a thread a box, tested against what stays of all chunks before: 0.217 / 0.86 / 2.45; each
  chunk waits for the tests of the one before it
* chunks of 256 with four threads a box, the bits of the chunk before computed ahead: 0.107 / 0.41 / 1.42
* tests without a branch, the division only for pairs that pass a product: 0.101 / 0.38 / 1.25
* ranks counted by blocks, not warps (17 to 6 us), shorter stretches in the list (6 to 3 us):
  0.089 / 0.39 / 1.27
* batched, 20 classes x 2,000: a chunk that holds the end of one class and the begin of another settled as one
  made a single chain of all, 0.93; settling what begins in it at once, 0.29

Then what the host adds. Microseconds of nms of 2,000 / 20,000 random boxes / batched_nms, calls one after
another, each with its wait for the number of boxes; at first 87 / 384 / 298 (another run: 86 / 424 / 281):

* memory past torch's dispatcher in one piece, cub's radix sort in place of torch's: 69 / 355 / 199. As this
  table times it nms of 2,000 took 86 with the number copied to pageable memory, 84 to pinned, 81 with a
  kernel writing it to pinned memory, 76 with the host reading it there while the stream goes on
* own sort, of scores and groups at once, by 5 launches, where cub takes 11 launches and memsets a sort, a
  tenth of a millisecond for the host: 162 for batched_nms. Runs of 1,024 by a bitonic network take 20 us,
  by merges 10; to merge 20,000 entries takes 17 us where the loads of 8 binary searches wait for each
  other, else 10: 139
* up to 4,096 boxes, all pairs as bits, then one block goes through them: word after word, a barrier each,
  52 for 2,000 boxes; chunk after chunk, a warp settling one while others apply the one before, 46; 42
  without a look at groups. In 20 groups 2,000 / 4,096 boxes took 35 / 86 so in a graph, 21 / 37 by chains,
  which stayed
* now 42 to 46 / 327 to 335 / 139
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
NUM_INPUTS = 3  # rotated


class Boxes(NamedTuple):
    """Where the corners are, and how long the sides."""

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
    name: str, inputs: list[tuple[Tensor, ...]], ours: Callable, peer: Callable, mask: Callable,
    target_ms: float | None, bandwidth: float,
) -> list[Row]:  # fmt: skip
    """The indices and, on a GPU, the mask in a CUDA graph; both beside the peer's indices."""
    device = inputs[0][0].device
    calls = [[partial(op, *tensors, THRESHOLD) for tensors in inputs] for op in (ours, peer, mask)]
    peer_ms = time_calls(calls[1], device, repeats=10)
    times = {"forward": time_calls(calls[0], device, repeats=30)}
    if device.type == "cuda":
        times["nms_mask in a CUDA graph"] = time_in_graph(calls[2], device)
        target = f"{target_ms} ms"
    else:
        target_ms = peer_ms
        target = f"torchvision's time, {torch.get_num_threads()} threads"
    fewest_bytes = sum(tensor.nbytes for tensor in inputs[0]) + 8 * len(ours(*inputs[0], THRESHOLD))
    return [
        Row(name, pass_, "float32", "contiguous", ms, "torchvision", peer_ms,
            100 * fewest_bytes / bandwidth / ms, target, ms <= target_ms)
        for pass_, ms in times.items()
    ]  # fmt: skip
