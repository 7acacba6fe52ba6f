"""quick_gelu compared with eager PyTorch and torch.compile.

Design alternatives on an H200, 2^27 elements in float32, CUDA graph, microseconds forward / backward: 265 /
372 with four 16-byte loads per thread, 264 / 373 with two, 255 / 372 with one. Evict-first loads and stores:
256 / 368 with one, but called one by one 404 backward (torch.compile: 387). The kernels use one load forward,
four backward.

bench_compiled.py times it inside torch.compile.
"""

import torch
from compare import compare
from measure import Row

from detector.layers import quick_gelu, reference

GPU_SIZES = [2**27]
CPU_SIZES = [2**16, 2**20, 2**24]
TARGETS = {"forward": 95, "backward": 95}  # percent of the copy bandwidth


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    on_gpu = device.type == "cuda"
    baselines = {"eager": reference.quick_gelu}
    if on_gpu:
        torch._functorch.config.donated_buffer = False  # the backward pass is called repeatedly
        baselines["torch.compile"] = torch.compile(reference.quick_gelu, dynamic=False)
    table = []
    for size in GPU_SIZES if on_gpu else CPU_SIZES:
        inputs = [torch.randn(size, device=device) for _ in range(4)]
        fewest_bytes = {"forward": 2 * inputs[0].nbytes, "backward": 3 * inputs[0].nbytes}
        table += compare(f"quick_gelu 2^{size.bit_length() - 1}", quick_gelu, baselines, inputs, fewest_bytes,
                         TARGETS, bandwidth)  # fmt: skip
    return table
