"""lltm and lltm_sequence compared with plain PyTorch, eager and compiled.

Design alternatives, measured on an H200 in float32. Times are in microseconds.

At the size of PyTorch's tutorial, 16 x 32 x 128, launch overhead and Python dominate:
* One product of [h, x] is faster than separate products of x and h: a product without a bias is dispatched to
  cuBLAS (33), one with a bias to cuBLASLt (9). Each step writes h into the input buffer of the next step.
* Gradient of [h, x]: 54 by cuBLAS, 8 by cuBLASLt with a bias of zeros. The latter is used for small products.
* torch.library.register_autograd adds 23 per call, an autograd.Function 13.
* Allocating memory without the dispatcher, reusing the kernels to create zeros and to sum the bias gradient,
  and calling the backward op directly: 156 backward instead of 310.

At 512 x 256 x 512, in a CUDA graph, matrix products take most of the time:
* Forward: 44 to 45, as torch.compile. The product takes 36; the kernel that follows adds the bias and does
  not write the gates back. It read four columns at a time; one at a time, as now, takes up to 1.07 times as
  long (50 steps, H100).
* Backward: 94 to 95, torch.compile 96 to 97. 192 blocks sum the bias gradient (101 with 48 blocks).
* Other layouts of the products (batched halves, transposed, with a bias) and programmatic dependent launch
  gain nothing.

Outside of a graph the targets are not reached, because the host is the limit: 28 to 31 forward and 132 to 145
backward, eager PyTorch 71 to 80 and 228 to 259 on the same host.
"""

from collections.abc import Sequence

import torch
from measure import Row
from passes import time_passes
from torch import Tensor

from detector.layers import lltm, lltm_sequence, reference

NUM_INPUTS = 4  # used in turn
# Rows of the batch, inputs, state; steps of a sequence or None for the cell. The first is the tutorial's.
TUTORIAL = (16, 32, 128, None)
GPU_SIZES = [TUTORIAL, (512, 256, 512, None), (16, 32, 128, 50), (512, 256, 512, 50)]
CPU_SIZES = [TUTORIAL, (128, 128, 256, None), (512, 256, 512, None), (16, 32, 128, 20)]
TARGETS_MS = {"forward": 0.025, "backward": 0.070, "forward, graph": 0.012, "backward, graph": 0.025}


def make_inputs(
    rows: int, inputs: int, state: int, steps: int | None, device: torch.device
) -> list[list[Tensor]]:
    x_shape = (rows, inputs) if steps is None else (steps, rows, inputs)
    shapes = [x_shape, (3 * state, state + inputs), (3 * state,), (rows, state), (rows, state)]
    return [[torch.randn(shape, device=device) * 0.1 for shape in shapes] for _ in range(NUM_INPUTS)]


def fewest_bytes(pass_: str, tensors: Sequence[Tensor]) -> int:
    """Bytes to read each input and write each output and saved tensor once."""
    x, weight, bias, h, c = (tensor.nbytes for tensor in tensors)
    steps = tensors[0].numel() // (len(tensors[3]) * tensors[0].shape[-1])
    outputs = steps * (h + c)
    if pass_.startswith("forward"):
        return x + weight + bias + h + c + outputs + 3 * steps * h
    return 2 * (x + weight) + bias + 2 * (h + c) + outputs + 3 * steps * h


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    sizes = CPU_SIZES if device.type == "cpu" else GPU_SIZES
    return [row for size in sizes for row in bench(*size, device, bandwidth)]


def bench(
    batch: int, inputs: int, state: int, steps: int | None, device: torch.device, bandwidth: float
) -> list[Row]:
    name = "lltm" if steps is None else "lltm_sequence"
    ours = lltm if steps is None else lltm_sequence
    tensors = make_inputs(batch, inputs, state, steps, device)
    baselines = {"eager": getattr(reference, name)}
    if device.type == "cuda" and steps is None:  # compiling a loop of 50 steps takes minutes
        torch._dynamo.reset()
        baselines["torch.compile"] = torch.compile(reference.lltm, dynamic=False)
    size = f"{batch}x{inputs}x{state}" + (f", {steps} steps" if steps else "")
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    rows = []
    for pass_ in TARGETS_MS if device.type == "cuda" else ("forward", "backward"):
        wanted = range(5) if pass_.startswith("backward") else ()
        in_graph = pass_.endswith("graph")
        times = time_passes({"ours": ours, **baselines}, tensors, wanted, device, in_graph)
        ours_ms = times["ours"]
        absolute = TARGETS_MS[pass_] if device.type == "cuda" and name == "lltm" and batch == 16 else None
        for baseline in baselines:
            baseline_ms = times[baseline]
            row = Row(
                case=f"{name} {size}{threads}",
                pass_=pass_,
                dtype="float32",
                layout="contiguous",
                ours_ms=ours_ms,
                baseline=baseline,
                baseline_ms=baseline_ms,
                copy_percent=100 * fewest_bytes(pass_, tensors[0]) / bandwidth / ours_ms,
                target="baseline_ms" if absolute is None else f"{absolute} ms",
                reached=ours_ms <= (baseline_ms if absolute is None else absolute),
            )
            rows.append(row)
    return rows
