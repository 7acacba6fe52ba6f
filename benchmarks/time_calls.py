"""Time of calls to ops, with autograd: on the host alone (tiny tensors) and, on a GPU, of usual sizes.

    python benchmarks/time_calls.py [cpu or cuda]

Prints microseconds a call. Run it with another build first in PYTHONPATH to compare the two.
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from detector.layers import batched_nms, depthwise_conv2d, nms, roi_pool, soft_nms

Call = Callable[[], object]


def microseconds(call: Call, device: torch.device, repeats: int = 60) -> float:
    """The median of several series of calls, the device's time included."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(5):
            call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 5 * 1e6)
    return sorted(times)[repeats // 2]


def gradients(output: Tensor, inputs: list[Tensor]) -> Call:
    upstream = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, inputs, upstream, retain_graph=True)


def boxes_in(count: int, height: int, width: int, device: torch.device) -> Tensor:
    corner = torch.rand(count, 2, device=device) * torch.tensor([width * 0.7, height * 0.7], device=device)
    return torch.cat([corner, corner + 2 + torch.rand(count, 2, device=device) * height * 0.3], dim=1)


def calls(device: torch.device) -> dict[str, Call]:
    large = device.type == "cuda"
    found: dict[str, Call] = {}
    for shape in [(1, 2, 4, 4), *([(32, 960, 14, 14)] if large else [])]:
        dtype = torch.float16 if large else torch.float32
        x = torch.randn(shape, device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)
        weight = torch.randn(shape[1], 1, 3, 3, device=device, dtype=dtype)
        name = "x".join(map(str, shape))
        leaves = [x.requires_grad_(), weight.requires_grad_()]
        for ours, inputs in [("leaves", leaves), ("no leaves", [leaf * 1 for leaf in leaves])]:
            x, weight = inputs
            output = depthwise_conv2d(x, weight, padding=1)
            found[f"depthwise 3x3 {name} gradients of {ours}"] = gradients(output, inputs)
        x, weight = leaves
        output = conv2d(x, weight, padding=1, groups=shape[1])
        found[f"torch's conv2d {name} gradients of leaves"] = gradients(output, leaves)
    for count in [100, *([2000, 20_000] if large else [])]:
        boxes, scores = boxes_in(count, 600, 800, device), torch.rand(count, device=device)
        groups = torch.arange(count, device=device) % 20
        found[f"nms {count}"] = lambda b=boxes, s=scores: nms(b, s, 0.5)
        found[f"batched_nms {count}"] = lambda b=boxes, s=scores, g=groups: batched_nms(b, s, g, 0.5)
        if count <= 2000:
            found[f"soft_nms {count}"] = lambda b=boxes, s=scores: soft_nms(b, s)
            found[f"soft_nms {count}, groups"] = lambda b=boxes, s=scores, g=groups: soft_nms(b, s, g)
    count, shape = (2000, (1, 512, 75, 100)) if large else (10, (1, 2, 8, 10))
    rois = torch.cat([torch.zeros(count, 1, device=device), boxes_in(count, *shape[2:], device)], dim=1)
    for dtype in (torch.float32, torch.float64):
        features = torch.randn(shape, device=device, dtype=dtype, requires_grad=True)
        found[f"roi_pool 7x7 {dtype} gradient"] = gradients(roi_pool(features, rois.to(dtype), 7), [features])
    return found


if __name__ == "__main__":
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    torch.manual_seed(0)
    for name, call in calls(device).items():
        microseconds(call, device, repeats=5)
        print(f"{name:60} {microseconds(call, device):9.1f} us", flush=True)
