"""depthwise_conv2d compared with torch's conv2d(groups=C), separately for its three passes.

On a GPU the baseline is the faster of torch's own kernels and cuDNN's. Everything is timed in CUDA graphs,
since the host would limit single calls of the fast kernels. On a CPU the calls of both alternate.

Design alternatives, measured on an H200 in CUDA graphs. Times are in microseconds.

NCHW, 32 x 256 x 56 x 56, float32 (5 x 5 / 7 x 7):
* Forward: strips of 8 x 4 outputs per thread take 66 / 93; walking down columns with rows copied to shared
  memory by 16-byte cp.async takes 60 / 69, with a second kernel to maintain: not used. Tiles copied 4 bytes
  at a time were slower.
* grad_weight: 85 / 108 by strips. The number of blocks per channel matters (5 x 5: from 75 to 93 for 2 to 25
  blocks) because of the waves in which blocks fill the GPU; best_stretches() models this. Overlapping the
  final sum with the last blocks (programmatic launch) is no faster.

NCHW, half precision, tensor cores: 7 x 7 takes 45 forward and 52 for grad_weight, 5 x 5 takes 39 and 45
(strips: 67). The instruction count was the limit: 1,155 per warp and plane at first, 634 after removing
divisions and per-octet NaN tests. 1,024 blocks are best (256 to 4,096: 55 to 45). 3 x 3 is no faster than by
strips, and planes of 16 or 24 rows are slower.

NCHW, 3 x 3, small planes (14 x 14 / 7 x 7): whole planes in shared memory reach 50 / 34 % of the copy
bandwidth forward, strips 27 / 14 %.

NHWC:
* 3 x 3 with stride 2: the ring buffer kernels reach 96 / 87 / 90 % of the copy bandwidth in float32 (forward
  / grad_input / grad_weight), the generic kernel 64 / 51 / 68 %. The one for grad_input was given up: the
  stencil takes 1.14 times as long, 1.41 times in float16 (H100). One column per thread with taps in registers
  is slower. Cache hints (256-byte L2 prefetch, evict-first stores) do not help. tiles.cuh lists the tile
  sizes.
* 3 x 3 on 7 x 7 planes, grad_weight: 20 with eight samples per block and three steps in the ring, 28 with one
  warp per block.
* 3 x 3 float16, grad_weight: 2 x 7 columns with four steps instead of 4 x 4: 106 instead of 117 (112
  columns).
* Half precision by the matrix units, with channels transposed to planes: 5 x 5 takes the same time, 7 x 7 63
  forward and 68 for grad_weight instead of 76 and 86 (H100): not used.
* 5 x 5 float32, forward: 58 to 60 with 256-byte copies and 14 warps, 63 to 65 without. Only large batches of
  large images benefit: not used.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from compare import time_in_turn
from measure import Row, time_in_graph
from torch import Tensor

from detector import _C

NUM_INPUTS = 4  # used in turn
PASSES = ("forward", "grad_input", "grad_weight")


class Case(NamedTuple):
    kernel: int
    stride: int
    shape: tuple[int, int, int, int]
    dtype: torch.dtype
    layout: str
    targets: tuple[int, int, int]  # percent of the copy bandwidth: forward, grad_input, grad_weight


K3, K5 = (32, 256, 112, 112), (32, 256, 56, 56)
GPU_CASES = [
    Case(3, 1, K3, torch.float32, "NCHW", (85, 85, 70)),
    Case(3, 1, K3, torch.float32, "NHWC", (85, 85, 90)),
    *(
        Case(3, 2, K3, dtype, layout, (0, 70, 0))
        for dtype in (torch.float32, torch.float16)
        for layout in ("NCHW", "NHWC")
    ),
    *(Case(5, 1, K5, torch.float32, layout, (80, 80, 60)) for layout in ("NCHW", "NHWC")),
    *(Case(7, 1, K5, torch.float32, layout, (60, 60, 40)) for layout in ("NCHW", "NHWC")),
    *(
        Case(kernel, 1, K5, dtype, layout, (45, 45, 35) if kernel == 7 else (0, 0, 0))
        for kernel in (3, 5, 7)
        for dtype in (torch.float16, torch.bfloat16)
        for layout in ("NCHW", "NHWC")
    ),
    *(
        Case(3, 1, (256, 512, size, size), torch.float32, layout, (0, 0, 0))
        for size in (7, 14)
        for layout in ("NCHW", "NHWC")
    ),
]
CPU_CASES = [
    Case(kernel, stride, shape, torch.float32, layout, (0, 0, 0))
    for kernel, stride, shape in [
        (3, 1, (8, 64, 112, 112)), (3, 2, (8, 64, 112, 112)), (5, 1, (8, 96, 56, 56)),
        (7, 1, (4, 192, 28, 28)), (3, 1, (8, 512, 14, 14)),
    ]
    for layout in ("NCHW", "NHWC")
]  # fmt: skip


def torch_passes(case: Case, input: Tensor, weight: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    """torch's op for each pass, as called by its autograd."""
    pad, stride, groups = (case.kernel // 2,) * 2, (case.stride,) * 2, input.shape[1]
    backward = partial(
        torch.ops.aten.convolution_backward,
        grad,
        input,
        weight,
        None,
        stride,
        pad,
        (1, 1),
        False,
        (0, 0),
        groups,
    )
    return {
        "forward": partial(torch.nn.functional.conv2d, input, weight, None, stride, pad, 1, groups),
        "grad_input": partial(backward, output_mask=[True, False, False]),
        "grad_weight": partial(backward, output_mask=[False, True, False]),
    }


def our_passes(case: Case, input: Tensor, weight: Tensor, grad: Tensor) -> dict[str, Callable[[], object]]:
    sizes = ((case.stride,) * 2, (case.kernel // 2,) * 2, (1, 1))
    return {
        "forward": partial(_C.depthwise_conv2d_forward, input, weight, None, *sizes),
        "grad_input": partial(
            _C.depthwise_conv2d_grad_input, grad, weight, input.shape[1], input.shape[2:], *sizes
        ),
        "grad_weight": partial(_C.depthwise_conv2d_grad_weight, input, grad, weight.shape[2:], *sizes),
    }


def make_tensors(case: Case, device: torch.device, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    size = (case.shape[2] - 1) // case.stride + 1
    shapes = [case.shape, (case.shape[1], 1, case.kernel, case.kernel), (*case.shape[:2], size, size)]
    input, weight, grad = (
        torch.randn(shape, generator=generator, device=device).to(case.dtype) for shape in shapes
    )
    if case.layout == "NHWC":
        input, grad = (t.contiguous(memory_format=torch.channels_last) for t in (input, grad))
    return input, weight, grad


def time_pass(case: Case, pass_: str, tensors: list, device: torch.device) -> dict[str, float]:
    """Milliseconds of a call, for our op and each baseline; alternating on a CPU."""
    ours = [our_passes(case, *t)[pass_] for t in tensors]
    baseline = [torch_passes(case, *t)[pass_] for t in tensors]
    if device.type == "cpu":
        return time_in_turn({"ours": ours, "torch": baseline}, device, repeats=24)
    times = {"ours": time_in_graph(ours, device, repeats=16)}
    for name, cudnn in {"torch": False, "torch, cuDNN": True}.items():
        with torch.backends.cudnn.flags(enabled=cudnn, benchmark=True, allow_tf32=False):
            times[name] = time_in_graph(baseline, device, repeats=16)
    return times


def bench(case: Case, device: torch.device, bandwidth: float) -> list[Row]:
    tensors = [make_tensors(case, device, seed) for seed in range(NUM_INPUTS)]
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    moved = sum(
        tensor.nbytes for tensor in tensors[0]
    )  # input, weight, grad: each pass reads or writes all three
    rows = []
    for pass_, percent in zip(PASSES, case.targets, strict=True):
        times = time_pass(case, pass_, tensors, device)
        ours_ms = times.pop("ours")
        baseline = min(times, key=times.__getitem__)
        copy_percent = 100 * moved / bandwidth / ours_ms
        reached = ours_ms <= times[baseline] and copy_percent >= percent
        row = Row(
            case=f"k{case.kernel} s{case.stride} {'x'.join(map(str, case.shape))}{threads}",
            pass_=pass_,
            dtype=str(case.dtype).removeprefix("torch."),
            layout=case.layout,
            ours_ms=ours_ms,
            baseline=baseline,
            baseline_ms=times[baseline],
            copy_percent=copy_percent,
            target=f"{percent} %" if percent else "baseline_ms",
            reached=reached,
        )
        rows.append(row)
    return rows


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    cases = GPU_CASES if device.type == "cuda" else CPU_CASES
    return [row for case in cases for row in bench(case, device, bandwidth)]
