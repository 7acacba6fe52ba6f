"""depthwise_conv2d beside torch's conv2d(groups=C), each of its three passes alone.

On a GPU the peer is the fastest of torch's own kernels and cuDNN's, and all are timed in CUDA graphs: called
one by one, the fast ones wait for Python. On a CPU the two are timed by turns.

Contiguous planes on an H200; what was tried, in microseconds in CUDA graphs:
* Strips of 8 x 4 outputs a thread, with rows straight from global memory: forward 66 and 93 for 5 x 5 and
  7 x 7 float32, where 56 and 66 % of the instructions are fused multiply-adds. Walking down columns, with
  rows through shared memory by cp.async of 16 bytes: 60 and 69. Sixteen rows in the ring, four a barrier: 74
  for 5 x 5. Dropped before: tiles copied 4 bytes at a time.
* grad_weight by strips, as many for each thread of a block: 85 and 108 (87 and 110 at first). With 2, 3, 5,
  7, 9, 13, 17 and 25 blocks a channel 5 x 5 takes 91, 75, 82, 90, 78, 85, 93 and 89: in that order as often
  as the blocks fill the GPU, times the strips of a thread and a half for adding up. 7 x 7: 118, 102, 108,
  109, 106, 109, - and 121. best_stretches() counts so.
* A kernel that starts to add the blocks up while the last of them end (programmatic launch): no faster.
* Half precision by tensor cores, 7 x 7: forward 83, grad_weight 79 with copies, products and stores one after
  the other. With the next tile on its way grad_weight takes 61; forward took 98 to 123 so, much of it
  divisions for addresses and stores of 2 bytes, and takes 70 to 73 without them, by 8 columns of the input
  a product. By 16, with a third of the products: 68, and 66 with four blocks a channel (1, 2, 8, 16 and 32:
  94, 68, 67, 68 and 74). By columns 7 x 7 takes 69 and 5 x 5 46 to 53 (strips 67).
* Instructions limited it: 1,155 of a warp for a plane, 61 % of the issue slots. 550 were for products, with
  copies of the octets' halves, addresses and a test for NaN at every octet; 317 fetched, 80 of them to
  divide and 31 for each asynchronous copy, of 8 bytes as the tile began half an octet before the plane; 153
  stored, 83 of them to divide. With outputs half an octet off instead, halves exchanged in the bands, one
  test a plane and no division 634: 7 x 7 takes 45 forward, 52 for grad_weight (61 before), 5 x 5 39 and 45
  (48 and 53). With 256, 512, 768, 1,280, 2,048 and 4,096 blocks in place of 1,024: 55, 46, 48, 45, 47 and 50.
  3 x 3 takes 32 to 36 so, strips 36; but planes of 16, 24 and 136 rows take 1.7, 1.2 and 1.4 times as long
  as by strips, in 5 x 5 those of 16 and 24 1.2 and 1.1.
* Planes of 14 x 14 and 7 x 7, 3 x 3 float32, where strips read single elements: 27 / 49 and 14 / 18 % of
  the copy bandwidth. By whole planes through shared memory: 50 / 40 and 34 / 21 %, where grad_weight had
  4,096 blocks, each of which adds its threads up after two images; it has 1,024 now.
In channels-last 3 x 3 with stride 2, forward / grad_input / grad_weight in percent of the copy bandwidth:
* any_kernel.cuh: float32 64 / 51 / 68, float16 43 / 39 / 30, timed call by call.
* Forward and grad_weight through the ring of the other kernels, grad_input by its own: float32 96 / 87 / 90
  (cuDNN 98 / 26 / 94), float16 94 / 75 / 94. A column a thread with its taps in registers: 131 to 149.
* Work for as many blocks as a multiprocessor holds by its registers and shared memory, in place of two:
  grad_weight of float32 132 us in place of 141; tiles.cuh has the times of other tiles, of which those taken
  reach 98 and 102 %. Copies that have the L2 cache fetch 256 bytes, and outputs that are evicted from it
  first, alone or both: 1 to 2 us more forward, 8 to 10 more for grad_weight.
In channels-last 3 x 3 on planes of 7 x 7, grad_weight took 27.3 to 29.0 us in six runs (cuDNN 26.2 to 28.8)
with one warp a block, of which 12 had the shared memory they need: 23.1 for the products, 2.5 to add 256
parts up. Eight samples a block: 22; three steps in the ring in place of four, so that 16 warps fit: 20.
3 x 3 float16, grad_weight: 2 x 7 columns with four steps in place of 4 x 4: 117 to 106 (112 columns), 37 to
33 (56), 40 to 37 (14), 15.5 to 14.9 (7).
5 x 5 float32 in channels-last, forward, 63 to 65 for rings of 3, 4 and 6 steps, two rows a barrier, or either
of those hints (6 columns a lane 77); its copies read 128 bytes of a pixel. With 256, and 14 warps so that a
block has all of 56 columns, 60, and 58 to 60 with six steps; 8 columns and 7 warps 60, 7 and 8 warps 60. With
few images, or 7 columns, it takes longer than before: only many large images take it. 3 x 3 float16 likewise,
122 to 114 for 112 columns; float32 stays at 216 to 220 with all of these.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from compare import time_in_turn
from measure import Row, time_in_graph
from torch import Tensor

from detector import _C

NUM_INPUTS = 4  # rotated
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
    """torch's op for each pass, as its autograd calls it."""
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
    """Milliseconds of a call, ours and of each peer; on a CPU by turns."""
    ours = [our_passes(case, *t)[pass_] for t in tensors]
    peer = [torch_passes(case, *t)[pass_] for t in tensors]
    if device.type == "cpu":
        return time_in_turn({"ours": ours, "torch": peer}, device, repeats=24)
    times = {"ours": time_in_graph(ours, device, repeats=16)}
    for name, cudnn in {"torch": False, "torch, cuDNN": True}.items():
        with torch.backends.cudnn.flags(enabled=cudnn, benchmark=True, allow_tf32=False):
            times[name] = time_in_graph(peer, device, repeats=16)
    return times


def bench(case: Case, device: torch.device, bandwidth: float) -> list[Row]:
    tensors = [make_tensors(case, device, seed) for seed in range(NUM_INPUTS)]
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    moved = sum(tensor.nbytes for tensor in tensors[0])  # input, weight, grad: each pass moves all three
    rows = []
    for pass_, percent in zip(PASSES, case.targets, strict=True):
        times = time_pass(case, pass_, tensors, device)
        ours_ms = times.pop("ours")
        peer = min(times, key=times.__getitem__)
        copy_percent = 100 * moved / bandwidth / ours_ms
        reached = ours_ms <= times[peer] and copy_percent >= percent
        row = Row(
            case=f"k{case.kernel} s{case.stride} {'x'.join(map(str, case.shape))}{threads}",
            pass_=pass_,
            dtype=str(case.dtype).removeprefix("torch."),
            layout=case.layout,
            ours_ms=ours_ms,
            peer=peer,
            peer_ms=times[peer],
            copy_percent=copy_percent,
            target=f"{percent} %" if percent else "peer_ms",
            reached=reached,
        )
        rows.append(row)
    return rows


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    cases = GPU_CASES if device.type == "cuda" else CPU_CASES
    return [row for case in cases for row in bench(case, device, bandwidth)]
