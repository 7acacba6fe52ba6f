"""trilinear_interpolate compared with plain PyTorch, eager and compiled.

On a GPU it is timed in a CUDA graph, since the smaller cases take longer on the host than on the GPU.

Design alternatives on an H200, 65536 points x 256 channels, float32 (lower bound at the copy bandwidth:
0.144), milliseconds:

* Forward: 0.140 without a loop, so that features are loaded before the point; 0.142 with a loop over vectors,
  for any block size. Evict-first loads are slower (0.146).
* Gradient of feats: 0.157 with eight evict-first stores (__stcs) per thread; plain stores 0.269; one corner
  per thread 0.192; bulk copies through shared memory 0.156 to 0.159; L2 prefetch in bursts 0.153, not worth
  its code.
* Few channels, 540 MB: 16 bytes per thread take 0.15 to 0.19, whole rows 0.18 to 0.73. With 2^22 points and 4
  channels forward takes 0.154 by way of shared memory, 0.182 otherwise (torch.compile 0.175).
* Gradient of points, 2^22 points and 8 channels of float16 on an H100: 0.240 by a kernel for at most 16 bytes
  of channels, which was given up, 0.291 by the one for any number.
* Vectors of 8 and 4 bytes for rows that are not multiples of 16 bytes take about half the time of scalars.
* One kernel for both gradients takes 0.293, as long as two kernels; with 255 channels 0.52 instead of 0.35.
* float16 with float32 points: 0.071 forward; half precision points are read directly if no gradient is
  needed.
"""

import torch
from measure import Row
from passes import time_passes
from torch import Tensor

from detector.layers import reference, trilinear_interpolate

NUM_INPUTS = 4  # used in turn
GPU_SIZES = [(65536, 256), (65536, 255), (1 << 20, 16), (1 << 22, 4), (1 << 24, 1)]  # points, channels
GPU_HALF_SIZES = [(65536, 256), (1 << 22, 8)]
CPU_SIZES = [(1000, 16), (8192, 32), (4096, 256)]
PASSES = {
    "forward": (),
    "backward to feats": (0,),
    "backward": (0, 1),
}  # indices of the inputs that require a gradient
TARGET_PERCENT = 95  # of the copy bandwidth, for 65536 x 256 in float32


def fewest_bytes(pass_: str, inputs: list[Tensor]) -> int:
    """Bytes to read each input and write each output once."""
    feats, points = (tensor.nbytes for tensor in inputs)
    output = feats // 8
    if pass_ == "backward":  # reads feats, points and the gradient; writes the gradients of both
        return 2 * feats + 2 * points + output
    return feats + points + output


def rows(device: torch.device, bandwidth: float) -> list[Row]:
    if device.type == "cpu":
        return [row for size in CPU_SIZES for row in bench(*size, torch.float32, device, bandwidth)]
    sizes = [(*size, torch.float32) for size in GPU_SIZES] + [
        (*size, torch.float16) for size in GPU_HALF_SIZES
    ]
    return [row for size in sizes for row in bench(*size, device, bandwidth)]


def bench(
    points: int, channels: int, dtype: torch.dtype, device: torch.device, bandwidth: float
) -> list[Row]:
    shapes = [(points, 8, channels), (points, 3)]
    inputs = [[torch.randn(shape, device=device, dtype=dtype) for shape in shapes] for _ in range(NUM_INPUTS)]
    baselines = {"eager": reference.trilinear_interpolate}
    if device.type == "cuda":
        torch._dynamo.reset()
        baselines["torch.compile"] = torch.compile(reference.trilinear_interpolate, dynamic=False)
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    in_graph = device.type == "cuda"
    rows = []
    for pass_, wanted in PASSES.items():
        times = time_passes({"ours": trilinear_interpolate, **baselines}, inputs, wanted, device, in_graph)
        ours_ms = times["ours"]
        copy_percent = 100 * fewest_bytes(pass_, inputs[0]) / bandwidth / ours_ms
        has_target = in_graph and dtype == torch.float32 and channels == 256 and len(wanted) < 2
        for baseline in baselines:
            baseline_ms = times[baseline]
            row = Row(
                case=f"trilinear_interpolate {points} x {channels}{threads}",
                pass_=f"{pass_}, graph" if in_graph else pass_,
                dtype=str(dtype).removeprefix("torch."),
                layout="contiguous",
                ours_ms=ours_ms,
                baseline=baseline,
                baseline_ms=baseline_ms,
                copy_percent=copy_percent,
                target=f"{TARGET_PERCENT} % of copy" if has_target else "baseline_ms",
                reached=copy_percent >= TARGET_PERCENT if has_target else ours_ms <= baseline_ms,
            )
            rows.append(row)
    return rows
