"""Times what a call of each op takes on the host alone, on tiny tensors, beside its alternative.

python benchmarks/bench_host.py --device cpu

The shortest of many series of calls, so that what else runs on the machine hardly counts; ours and the
alternative are timed in turn. On a GPU the calls are only queued, except those of NMS, which wait for the
number of boxes.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from measure import Row, device_parser, report
from torch import Tensor
from torch.nn import functional as F
from torchvision import ops

from detector import layers
from detector.layers import reference

Call = Callable[[], object]
SERIES, CALLS = 500, 8  # calls of a series; few, so that a series is rarely interrupted


def microseconds(calls: Sequence[Call], device: torch.device) -> list[float]:
    """Of a call of each."""
    least = [float("inf")] * len(calls)
    for _ in range(SERIES):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            least[i] = min(least[i], (time.perf_counter() - begin) / CALLS * 1e6)
            if device.type == "cuda":
                torch.cuda.synchronize()
    return least


Case = tuple[str, Callable, str, Callable, list[Tensor]]  # ours, the alternative, the inputs


def cases(device: torch.device) -> Iterator[Case]:
    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, device=device)

    image, corners = draw(1, 2, 8, 10), draw(10, 2) * 5
    upright = torch.cat([corners, corners + 1 + 3 * draw(10, 2)], dim=1)
    rois, groups = torch.cat([torch.zeros(10, 1, device=device), upright], dim=1), torch.arange(10) % 3
    groups, half = groups.to(device), {"iou_threshold": 0.5}
    yield (
        "depthwise_conv2d 3x3",
        lambda x, w: layers.depthwise_conv2d(x, w, padding=1),
        "torch",
        lambda x, w: F.conv2d(x, w, padding=1, groups=2),
        [image, draw(2, 1, 3, 3)],
    )
    yield (
        "upsample_bilinear2d",
        lambda x: layers.upsample_bilinear2d(x, (16, 20)),
        "torch",
        lambda x: F.interpolate(x, (16, 20), mode="bilinear"),
        [image],
    )
    yield "quick_gelu", layers.quick_gelu, "eager", reference.quick_gelu, [image]
    trilinear = [draw(4, 8, 3), draw(4, 3)]
    yield ("trilinear_interpolate", layers.trilinear_interpolate, "eager", reference.trilinear_interpolate,
           trilinear)  # fmt: skip
    cell = [draw(2, 3), draw(12, 7), draw(12), draw(2, 4), draw(2, 4)]
    yield "lltm", lambda *t: layers.lltm(*t)[0], "eager", lambda *t: reference.lltm(*t)[0], cell
    labels, clusters = torch.arange(6, device=device) % 3, torch.tensor([-1, 0, 1] * 2, device=device)
    rest = labels, draw(6), clusters
    yield (
        "pcl_loss",
        lambda p: layers.pcl_loss(p, *rest),
        "eager",
        lambda p: reference.pcl_loss(p, *rest),
        [draw(6, 4).softmax(dim=1)],
    )
    yield (
        "roi_pool",
        lambda x: layers.roi_pool(x, rois, 3),
        "torchvision",
        lambda x: ops.roi_pool(x, rois, 3),
        [image],
    )
    yield (
        "roi_align",
        lambda x: layers.roi_align(x, rois, 3, sampling_ratio=2),
        "torchvision",
        lambda x: ops.roi_align(x, rois, 3, sampling_ratio=2),
        [image],
    )
    scored = [upright, draw(10)]
    yield "nms", lambda *t: layers.nms(*t, **half), "torchvision", lambda *t: ops.nms(*t, **half), scored
    yield (
        "batched_nms",
        lambda *t: layers.batched_nms(*t, groups, **half),
        "torchvision",
        lambda *t: ops.batched_nms(*t, groups, **half),
        scored,
    )


def passes(functions: Sequence[Callable], inputs: list[Tensor]) -> Iterator[tuple[str, list[Call]]]:
    """The calls of each pass that there is, one of each function."""
    yield "forward", [partial(function, *inputs) for function in functions]
    if functions[0](*inputs).is_floating_point():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        yield "forward, for a gradient", [partial(function, *leaves) for function in functions]
        outputs = [function(*leaves) for function in functions]
        grad = torch.ones_like(outputs[0])
        backward = partial(torch.autograd.grad, inputs=leaves, grad_outputs=grad, retain_graph=True)
        yield "backward", [partial(backward, output) for output in outputs]


def rows(device: torch.device) -> Iterator[Row]:
    for name, ours, alternative, other, inputs in cases(device):
        for pass_, calls in passes((ours, other), inputs):
            for call in calls:
                call()
            ours_us, other_us = microseconds(calls, device)
            yield Row(name, pass_, "float32", "contiguous", ours_us / 1e3, alternative, other_us / 1e3, 0.0,
                      "the alternative", ours_us <= other_us)  # fmt: skip


if __name__ == "__main__":
    device = torch.device(device_parser(__doc__).parse_args().device)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    report("host", device, list(rows(device)))
