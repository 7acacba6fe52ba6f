"""lltm and lltm_sequence beside the same in plain PyTorch, eager and compiled.

At the tutorial's size, 16 x 32 x 128, launches and Python are all it costs. Tried on an H200 in float32:

* Two products, of x and of h, in place of one of [h, x]: no copy, but the second has no bias, so it goes
  to cuBLAS, which takes 33 us; with a bias cuBLASLt takes 9 us, Python and all. One product is kept, over
  a buffer into which each step writes h for the next. So there is no product of all inputs of a sequence
  at once.
* Gradient of [h, x], 16 x 384 by 384 x 160: 54 us by cuBLAS, 8 us with a bias of zeros. Kept for small
  products.
* torch.library.register_autograd in place of an autograd.Function: 23 us more than the op, in place of
  13.

* Memory and views without the dispatcher, zeros for cuBLASLt and the sum for the bias by kernels that run
  anyway, and the backward op called past its registration in Python: 156 us backward, in place of 310.

At 512 x 256 x 512 products are most of it, in a graph in microseconds:

* Forward, the product with the bias 42.6, without 40.6: the kernel that follows adds it.
* Backward, the gradient of [h, x] by cuBLAS 41.3, by cuBLASLt with a bias of zeros 56.6; that of the weights
  45.1 and 44.5, and turned 43.0. torch's sum of the 512 rows for the bias takes 10; 48 blocks beside the
  copies at the end took 17 with them. 192 blocks: 95 for the whole pass in place of 101, torch.compile 97.
* Forward took 51, torch.compile 46 by turns, with the same product. Traced, kernel by kernel: the product
  36 with its memset of 1 and 4 around that, for both. Ours packed in packs of one column and wrote the gates
  back with their bias; in packs of four columns, without writing them back and with loads first: 46.1 and
  45.2. The cell took 3.0 then, torch.compile's 2.3 to 3.1, as its tuning happens to choose; four columns a
  thread there: 0.6 more. With __fdividef 2.7, with 32 bits and no loop 2.5, and the pack 2.0 in place of 2.3:
  44.4 and 45.3, 45.0 and 44.8, 45.0 and 45.6, 45.5 and 45.6 in four runs. elu without a branch: 2.9.
* Backward, two columns a thread in the cell: 94 in place of 96, four the same; torch.compile 96.
* Of other products of this size: two halves of the sum as a batch 36.5 in place of 39.8, as cuBLAS then needs
  no memset, but 28 in place of 25 for 256 rows; four quarters were the faster for all eight sizes tried, by 1
  to 3 but for one, which the cell would take to add them up; the gates as a batch 47; the rows as a batch 48;
  all turned 40.3; with the bias 46.
* Launched before the product ends (programmatic dependent launch), the cell saved 0.3 and less.

Outside a graph the targets are not reached: 28 to 31 and 132 to 145 us, in the queue of an H200 whose host
takes 71 to 80 and 228 to 259 for eager PyTorch, 51 and 182 where the targets were set; with a slower host,
which takes 139 to 141 and 338 to 420, 54 and 174 to 255. The host is all of it: without a gradient the op
takes the faster one 24 us; torch.autograd.grad of a product by 2, one by one, 95, of an autograd.Function
with ready gradients for five inputs 115.
"""

from collections.abc import Sequence

import torch
from measure import Row
from passes import time_passes
from torch import Tensor

from detector.layers import lltm, lltm_sequence, reference

NUM_INPUTS = 4  # rotated
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
    """Each input read once, each output (and all that is saved) written once."""
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
    peers = {"eager": getattr(reference, name)}
    if device.type == "cuda" and steps is None:  # a loop of 50 steps compiles for minutes
        torch._dynamo.reset()
        peers["torch.compile"] = torch.compile(reference.lltm, dynamic=False)
    size = f"{batch}x{inputs}x{state}" + (f", {steps} steps" if steps else "")
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    rows = []
    for pass_ in TARGETS_MS if device.type == "cuda" else ("forward", "backward"):
        wanted = range(5) if pass_.startswith("backward") else ()
        in_graph = pass_.endswith("graph")
        times = time_passes({"ours": ours, **peers}, tensors, wanted, device, in_graph)
        ours_ms = times["ours"]
        absolute = TARGETS_MS[pass_] if device.type == "cuda" and name == "lltm" and batch == 16 else None
        for peer in peers:
            peer_ms = times[peer]
            row = Row(
                case=f"{name} {size}{threads}",
                pass_=pass_,
                dtype="float32",
                layout="contiguous",
                ours_ms=ours_ms,
                peer=peer,
                peer_ms=peer_ms,
                copy_percent=100 * fewest_bytes(pass_, tensors[0]) / bandwidth / ours_ms,
                target="peer_ms" if absolute is None else f"{absolute} ms",
                reached=ours_ms <= (peer_ms if absolute is None else absolute),
            )
            rows.append(row)
    return rows
