"""Times every kernel of an op that takes a problem, not only the one that runs: what deleting it would cost.

python benchmarks/bench_kernels.py --device cuda
python benchmarks/bench_kernels.py --device cuda --only roi_pool   # one op, and no file

The tables are those of detector.layers.explain; each kernel is forced by DETECTOR_KERNEL. `without_ms` is the
time of the kernel that would run if this one were gone. On a CPU only depthwise_conv2d has a choice.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import bench_clusters
import torch
from cases import depthwise_conv2d, nms, roi_rows
from measure import device_parser, print_table, time_calls, time_in_graph, time_queued, write_result
from torch import Tensor

from detector import layers
from detector.layers import explain

Calls = Sequence[Callable[[], object]]


@dataclass(frozen=True)
class Row:
    case: str
    pass_: str
    dtype: str
    layout: str
    kernel: str
    ms: float
    without_ms: float | None  # None: this is the last that takes the problem, or it does not run
    runs: bool


class Problem(NamedTuple):
    """A call of an op, once for each of a few inputs."""

    op: str
    case: str
    inputs: list[tuple[Tensor, ...]]
    options: dict[str, object]
    graph: bool = False  # timed in a CUDA graph: where the host takes longer than the GPU
    pass_calls: dict[str, Calls] | None = None  # None: by autograd

    def calls(self) -> dict[str, Calls]:
        """By the passes of `explain`."""
        if self.pass_calls is not None:
            return self.pass_calls
        function = partial(getattr(layers, self.op), **self.options)
        forward = [partial(function, *tensors) for tensors in self.inputs]
        backward = self._backward(function)
        return {"forward": forward, "order": forward, "backward": backward, "grad_feats": backward}

    def _backward(self, function: Callable[..., Tensor]) -> Calls:
        outputs = [function(*tensors) for tensors in self.inputs]
        upstream = torch.randn_like(outputs[0])
        return [
            partial(torch.autograd.grad, output, tensors[0], upstream, retain_graph=True)
            for output, tensors in zip(outputs, self.inputs, strict=True)
            if output.requires_grad
        ]


def roi_problems(op: str, device: torch.device) -> Iterator[Problem]:
    pyramid = roi_rows.Case(2, 256, 200, 304, 1000, sides=(32, 256))  # the finest level of an FPN
    small = roi_rows.Case(1, 512, 25, 20, 2000)
    many = roi_rows.Case(64, 256, 38, 50, 64 * 512), roi_rows.Case(256, 64, 25, 20, 256 * 512)
    half = torch.bfloat16
    cases = [roi_rows.TARGET_CASE, roi_rows.BATCH, roi_rows.WSOD, pyramid, small, *many]
    cases += [case._replace(dtype=half) for case in (roi_rows.BATCH, roi_rows.WSOD, pyramid, small)]
    for case in cases:
        shape = (case.images, case.channels, case.height, case.width)
        input = torch.randn(shape, device=device).relu().to(case.dtype).requires_grad_()
        boxes = [roi_rows.random_boxes(case, seed).to(device) for seed in range(3)]
        options = {"sampling_ratio": 2, "aligned": True} if op == "roi_align" else {}
        options |= {"output_size": roi_rows.OUTPUT_SIZE, "spatial_scale": 1 / roi_rows.STRIDE}
        yield Problem(op, case.text(), [(input, b) for b in boxes], options)


def upsample_problems(device: torch.device) -> Iterator[Problem]:
    planes, last = torch.contiguous_format, torch.channels_last
    cases = [((16, 256, 128, 128), 2.0, dtype, layout) for dtype in (torch.float32, torch.float16)
             for layout in (planes, last)]  # fmt: skip
    cases += [
        ((16, 256, 127, 127), 2.0, torch.float32, planes),  # rows are no whole vectors
        ((16, 256, 128, 128), 1.5, torch.float32, planes),
        ((16, 3, 512, 512), 2.0, torch.float32, planes),
        ((16, 3, 512, 512), 2.0, torch.float32, last),
        ((16, 21, 65, 65), 8.0, torch.float32, last),  # scores of a segmentation
        ((16, 256, 1, 1), 64.0, torch.float32, planes),
    ]
    for shape, factor, dtype, layout in cases:
        inputs = [torch.randn(shape, device=device).to(dtype=dtype, memory_format=layout) for _ in range(4)]
        case = f"{'x'.join(map(str, shape))} times {factor:g}"
        yield Problem(
            "upsample_bilinear2d", case, [(i.requires_grad_(),) for i in inputs], {"scale_factor": factor}
        )


def depthwise_problems(device: torch.device) -> Iterator[Problem]:
    cases = depthwise_conv2d.GPU_CASES if device.type == "cuda" else depthwise_conv2d.CPU_CASES
    for case in cases:
        tensors = [depthwise_conv2d.make_tensors(case, device, seed) for seed in range(4)]
        passes = [depthwise_conv2d.our_passes(case, *t) for t in tensors]
        calls = {key: [each[key] for each in passes] for key in depthwise_conv2d.PASSES}
        name = f"k{case.kernel} s{case.stride} {'x'.join(map(str, case.shape))}"
        options = {"stride": case.stride, "padding": case.kernel // 2}
        yield Problem("depthwise_conv2d", name, [t[:2] for t in tensors], options, True, calls)


def nms_problems(device: torch.device) -> Iterator[Problem]:
    for size in (300, 2000, 4000, 20_000):
        for op in ("nms", "batched_nms"):
            inputs = [nms.make_inputs(nms.RANDOM, size, seed, device) for seed in range(3)]
            masks = [
                partial(layers.nms_mask, boxes, scores, 0.5, classes if op == "batched_nms" else None)
                for boxes, scores, classes in inputs
            ]
            tensors = [each if op == "batched_nms" else each[:2] for each in inputs]
            calls = dict.fromkeys(("order", "keep"), masks)
            yield Problem(op, f"random {size}", tensors, {"iou_threshold": 0.5}, True, calls)


def trilinear_problems(device: torch.device) -> Iterator[Problem]:
    for points, channels, dtype in (
        (1 << 24, 1, torch.float32), (1 << 22, 4, torch.float32), (1 << 20, 16, torch.float32),
        (1 << 22, 8, torch.float16),
    ):  # fmt: skip
        inputs = [
            (torch.randn(points, 8, channels, device=device).to(dtype).requires_grad_(),
             torch.rand(points, 3, device=device))
            for _ in range(2)
        ]  # fmt: skip
        yield Problem("trilinear_interpolate", f"{points} x {channels}", inputs, {})


def gelu_problems(device: torch.device) -> Iterator[Problem]:
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [torch.randn(2**27, device=device).to(dtype).requires_grad_() for _ in range(3)]
        yield Problem("quick_gelu", "2^27", [(each,) for each in inputs], {})


def cluster_problems(device: torch.device) -> Iterator[Problem]:
    find = partial(layers.proposal_clusters, method="pcl")
    for images in (1, 4, 8, 16):
        for kind in ("trained", "first step"):
            made = [bench_clusters.make_inputs([2000] * images, kind, device, seed) for seed in range(2)]
            steps = [partial(bench_clusters.step, each, find, "pcl", False) for each in made]
            arguments = [(i.boxes, i.probs[..., 1:], i.image_labels, i.counts) for i in made]
            case = f"3 streams, {images} x 2000, {kind}"
            yield Problem("proposal_clusters", case, arguments, {"method": "pcl"}, True, {"forward": steps})


PROBLEMS = {
    "roi_pool": partial(roi_problems, "roi_pool"),
    "roi_align": partial(roi_problems, "roi_align"),
    "upsample_bilinear2d": upsample_problems,
    "proposal_clusters": cluster_problems,
    "nms": nms_problems,
    "trilinear_interpolate": trilinear_problems,
    "quick_gelu": gelu_problems,
    "depthwise_conv2d": depthwise_problems,
}


def rows(problem: Problem, device: torch.device) -> Iterator[Row]:
    """Of the passes in which several kernels take the problem."""
    first = problem.inputs[0][0]
    last = first.dim() == 4 and not first.is_contiguous()
    table = "nms" if problem.op == "batched_nms" else problem.op
    in_graph = partial(time_in_graph, repeats=16)
    timer = time_calls if device.type == "cpu" else in_graph if problem.graph else time_queued
    calls: dict[str, Calls] = {}
    for key, candidates in explain(problem.op, *problem.inputs[0], **problem.options).passes.items():
        fitting = [c.name for c in candidates if c.fits and c.name != "torch"]
        if len(fitting) < 2:
            continue
        calls = calls or problem.calls()
        times = []
        for name in fitting:
            os.environ["DETECTOR_KERNEL"] = f"{table}.{name}"
            times.append(timer(calls[key], device))
        del os.environ["DETECTOR_KERNEL"]
        for i, name in enumerate(fitting):
            without = times[1] if i == 0 else None
            yield Row(f"{problem.op} {problem.case}", key, str(first.dtype).removeprefix("torch."),
                      "channels last" if last else "contiguous", name, times[i], without, i == 0)  # fmt: skip


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--only", choices=PROBLEMS, help="time only this op, and write no file")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    chosen = (
        [arguments.only] if arguments.only else PROBLEMS if device.type == "cuda" else ["depthwise_conv2d"]
    )
    found: list[Row] = []
    for op in chosen:
        timed = [row for problem in PROBLEMS[op](device) for row in rows(problem, device)]
        print_table(timed)
        found += timed
    if arguments.only is None:
        write_result("kernels", device, found)


if __name__ == "__main__":
    main()
