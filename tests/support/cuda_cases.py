"""Every op with its gradients at sizes for which a GPU needs much shared memory, for tests of devices,
streams, threads and smaller GPUs.

Run as a script, it compares the GPU with the CPU: `python tests/support/cuda_cases.py`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from detector.layers import (
    batched_nms,
    depthwise_conv2d,
    lltm,
    nms,
    pcl_loss,
    proposal_clusters,
    quick_gelu,
    roi_align,
    roi_pool,
    trilinear_interpolate,
    upsample_bilinear2d,
)

Outputs = list[Tensor]


def random(*shape: int, device: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Normally distributed multiples of 1/8, the same on every device."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return ((values * 8).round() / 8).to(device, dtype)


def with_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> Outputs:
    inputs = tuple(tensor.clone(memory_format=torch.preserve_format).requires_grad_() for tensor in inputs)
    output = function(*inputs)
    upstream = random(*output.shape, device=output.device.type, dtype=output.dtype, seed=9).to(output.device)
    return [output.detach(), *torch.autograd.grad(output, inputs, upstream)]


def make_boxes(count: int, device: str) -> Tensor:
    """Boxes (count, 4) in an image of 128 x 128 pixels, at multiples of 1/4."""
    corner = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) * 80
    size = torch.rand(count, 2, generator=torch.Generator().manual_seed(2)) * 40 + 4
    return ((torch.cat([corner, corner + size], dim=1) * 4).round() / 4).to(device)


def depthwise(
    kernel: int, stride: int, dtype: torch.dtype, layout: torch.memory_format
) -> Callable[[str], Outputs]:
    def run(device: str) -> Outputs:
        input = random(4, 32, 56, 128, device=device, dtype=dtype).contiguous(memory_format=layout)
        weight = random(32, 1, kernel, kernel, device=device, dtype=dtype, seed=1)
        return with_gradients(
            lambda i, w: depthwise_conv2d(i, w, stride=stride, padding=kernel // 2), input, weight
        )

    return run


def regions(pool: Callable[..., Tensor], size: int, dtype: torch.dtype) -> Callable[[str], Outputs]:
    def run(device: str) -> Outputs:
        rois = torch.cat([torch.arange(300, device=device)[:, None] % 2, make_boxes(300, device)], dim=1)
        features = random(2, 12, size, size, device=device, dtype=dtype)
        scale = size / 128
        return with_gradients(lambda f: pool(f, rois.to(torch.float32), 7, scale), features)

    return run


def clusters(method: str) -> Callable[[str], Outputs]:
    def run(device: str) -> Outputs:
        boxes, scores = make_boxes(3000, device), random(3000, 3, device="cpu").sigmoid().to(device)
        labels, counts = torch.ones(2, 3, device=device), torch.tensor([2000, 1000], device=device)
        return list(proposal_clusters(boxes, scores, labels, counts, method=method))

    return run


def pseudo_label_loss(device: str) -> Outputs:
    probs = random(500, 4, device="cpu").softmax(1).to(device)
    labels = (torch.arange(500) % 4).to(device)
    numbers = torch.where(labels > 0, labels - 1, -1)
    return with_gradients(lambda p: pcl_loss(p, labels, torch.ones(500, device=device), numbers), probs)


def cell(device: str) -> Outputs:
    shapes = [(16, 32), (384, 160), (384,), (16, 128), (16, 128)]
    inputs = [random(*shape, device=device, seed=i) / 4 for i, shape in enumerate(shapes)]
    return with_gradients(lambda *tensors: torch.stack(lltm(*tensors)), *inputs)


def per_class(device: str) -> Outputs:
    classes = torch.arange(6000, device=device) % 7
    return [batched_nms(make_boxes(6000, device), random(6000, device=device), classes, 0.5)]


HALF, BFLOAT16, FLOAT = torch.float16, torch.bfloat16, torch.float32
PLANES, PIXELS = torch.contiguous_format, torch.channels_last
DEPTHWISE = [
    (kernel, stride, dtype, layout)
    for kernel, stride in [(3, 1), (3, 2), (5, 1), (7, 1), (9, 1)]
    for dtype in (FLOAT, HALF, BFLOAT16)
    for layout in (PLANES, PIXELS)
]
REGIONS = [
    (pool, size, dtype) for pool in (roi_pool, roi_align) for size in (32, 75, 128) for dtype in (FLOAT, HALF)
]
CASES: dict[str, Callable[[str], Outputs]] = {
    **{f"depthwise_conv2d {case}": depthwise(*case) for case in DEPTHWISE},
    **{f"{case[0].__name__} {case[1:]}": regions(*case) for case in REGIONS},
    "nms": lambda device: [nms(make_boxes(6000, device), random(6000, device=device), 0.5)],
    "batched_nms": per_class,
    **{f"proposal_clusters {method}": clusters(method) for method in ("oicr", "pcl", "mist")},
    "pcl_loss": pseudo_label_loss,
    "lltm": cell,
    "quick_gelu": lambda device: with_gradients(quick_gelu, random(40, 999, device=device)),
    "trilinear_interpolate": lambda device: with_gradients(
        trilinear_interpolate, random(300, 8, 24, device=device), random(300, 3, device=device, seed=1)
    ),
    "upsample_bilinear2d": lambda device: with_gradients(
        lambda input: upsample_bilinear2d(input, (96, 120)), random(2, 8, 40, 50, device=device)
    ),
}


def compare_with_cpu() -> None:
    for name, run in CASES.items():
        for ours, expected in zip(run("cuda"), run("cpu"), strict=True):
            wide = 2e-2 if expected.dtype in (HALF, BFLOAT16) else 1e-3
            scale = float(expected.double().abs().max()) if expected.numel() else 0.0
            difference = (ours.cpu().double() - expected.double()).abs().max() if expected.numel() else 0
            assert float(difference) <= wide * scale, f"{name}: differs by {difference} of {scale}"


if __name__ == "__main__":
    compare_with_cpu()
