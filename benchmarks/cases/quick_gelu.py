"""quick_gelu beside eager PyTorch and torch.compile.

On an H200, 2^27 numbers in float32 in a CUDA graph, microseconds forward / backward: four packs of 16 bytes a
thread 265 / 372, two 264 / 373, one 255 / 372; one, with loads and stores that are evicted first, 256 / 368.
But called one by one the last took 404 backward where torch.compile took 387: backward has four, forward one.
On a CPU AVX-512 takes 2^16 numbers forward from 0.89 to 0.68 of eager's time.
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
    peers = {"eager": reference.quick_gelu}
    if on_gpu:
        torch._functorch.config.donated_buffer = False  # its backward is called again and again
        peers["torch.compile"] = torch.compile(reference.quick_gelu, dynamic=False)
    table = []
    for size in GPU_SIZES if on_gpu else CPU_SIZES:
        inputs = [torch.randn(size, device=device, requires_grad=True) for _ in range(4)]
        fewest_bytes = {"forward": 2 * inputs[0].nbytes, "backward": 3 * inputs[0].nbytes}
        table += compare(f"quick_gelu 2^{size.bit_length() - 1}", quick_gelu, peers, inputs, fewest_bytes,
                         TARGETS, bandwidth)  # fmt: skip
    return table
