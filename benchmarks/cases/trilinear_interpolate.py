"""trilinear_interpolate beside the same in plain PyTorch, eager and compiled.

On a GPU the time is that inside a CUDA graph: Python takes longer to start a pass than a GPU needs for
the smaller cases.

The floor of each pass is its fewest bytes over the copy bandwidth (65536 x 256, float32: 604 MB, 0.144 ms
on an H200, where writing alone runs at 110 % of a copy). Tried there, for that size unless said:

* Forward, a loop over packs that begins with the weights: 0.1424 ms, and 0.173 ms for 255 channels.
  Without a loop, so that the features are on their way before the point is: 0.140 and 0.138 ms. Kept.
  In blocks of 128 to 1024 threads 0.142 ms. With packs of 8 bytes in place of 16, 0.140 ms where
  torch.compile takes 0.139, and for 2^20 points and 16 channels 0.143 for 0.144. Kept. Feats evicted first
  (__ldcs): 0.146 and 0.171 ms.
* Gradient of feats, eight stores of a thread, evicted first (__stcs): 0.157 ms. Kept. The same with plain
  stores, 0.269 ms; __stcg and __stwt, 0.159 ms; a warp a point with a loop, 0.160 ms; one corner a
  thread, which writes one stretch of memory, 0.192 ms (0.71 ms for 255 channels).
  Also tried: stretches of 8, 16 or 32 KB through shared memory by bulk copies, 0.157 to 0.159 ms, evicted
  first 0.156 to 0.158; two or four points a thread, 0.163. A fill of the result alone runs at 110 % of a
  copy, so it is the mix of reads and writes that costs.
  Reads in bursts, the first eighth of every so many blocks prefetching into the L2 cache what the next so
  many read: 0.1526 in place of 0.1551 for bursts of 2 to 3.5 MB, 0.161 for 6.8; 0.184 in place of 0.190 for
  255 channels, a point or two elsewhere. Not worth its twenty lines, nor does it reach 95 %.
* Gradient of feats of few channels, 540 MB: by rows as above, the stores lie apart: 0.73, 0.45, 0.57, 0.18
  and 0.23 ms for 1, 2, 4, 8 and 12 channels in float32, 0.49, 0.78 and 0.28 for 4, 8 and 24 in float16. By
  sixteen bytes a thread 0.19, 0.17, 0.16, 0.15 and 0.16, and 0.17, 0.16 and 0.16; where packs of channels
  cannot be read, 0.28 in float16. Up to 64 bytes a row never the slower. Forward the same way: no faster.
* Forward of few channels, 2^22 points: 4 of float32 0.182 ms where torch.compile takes 0.175, 8 of float16
  0.173 and 0.159. Each read for a corner touches the same lines again, eight times over: by way of shared
  memory 0.154 and 0.150; both gradients of 2^24 points with one channel 0.448 in place of 0.470.
* Packs of 8 and 4 bytes where rows are no multiple of 16, in place of single elements, float16, 540 MB:
  forward 0.18 to 0.15 and gradient of points 0.38 to 0.19 for 4 channels, 0.23 to 0.15 and 0.50 to 0.24 for
  12, 0.25 to 0.15 and 0.21 to 0.17 for 258. Of 6 channels in float32 forward takes 0.154 in place of 0.143.
* Both gradients in one kernel, 0.293 ms (0.52 ms for 255 channels); in two, 0.157 + 0.136 ms (0.19 + 0.16
  ms). Two are kept.
* float16 with points in float32: forward 0.0706 ms. With points in float16 they were converted first,
  0.075 ms; the forward op reads them as they are, 0.072 ms, where no gradient is needed.
"""

import torch
from measure import Row
from passes import time_passes
from torch import Tensor

from detector.layers import reference, trilinear_interpolate

NUM_INPUTS = 4  # rotated
GPU_SIZES = [(65536, 256), (65536, 255), (1 << 20, 16), (1 << 22, 4), (1 << 24, 1)]  # points, channels
GPU_HALF_SIZES = [(65536, 256), (1 << 22, 8)]
CPU_SIZES = [(1000, 16), (8192, 32), (4096, 256)]
PASSES = {"forward": (), "backward to feats": (0,), "backward": (0, 1)}  # the inputs that get a gradient
TARGET_PERCENT = 95  # of the copy bandwidth: the tutorial's case, float32


def fewest_bytes(pass_: str, inputs: list[Tensor]) -> int:
    """Each input read once, each output written once."""
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
    peers = {"eager": reference.trilinear_interpolate}
    if device.type == "cuda":
        torch._dynamo.reset()
        peers["torch.compile"] = torch.compile(reference.trilinear_interpolate, dynamic=False)
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    in_graph = device.type == "cuda"
    rows = []
    for pass_, wanted in PASSES.items():
        times = time_passes({"ours": trilinear_interpolate, **peers}, inputs, wanted, device, in_graph)
        ours_ms = times["ours"]
        copy_percent = 100 * fewest_bytes(pass_, inputs[0]) / bandwidth / ours_ms
        has_target = in_graph and dtype == torch.float32 and channels == 256 and len(wanted) < 2
        for peer in peers:
            peer_ms = times[peer]
            row = Row(
                case=f"trilinear_interpolate {points} x {channels}{threads}",
                pass_=f"{pass_}, graph" if in_graph else pass_,
                dtype=str(dtype).removeprefix("torch."),
                layout="contiguous",
                ours_ms=ours_ms,
                peer=peer,
                peer_ms=peer_ms,
                copy_percent=copy_percent,
                target=f"{TARGET_PERCENT} % of copy" if has_target else "peer_ms",
                reached=copy_percent >= TARGET_PERCENT if has_target else ours_ms <= peer_ms,
            )
            rows.append(row)
    return rows
