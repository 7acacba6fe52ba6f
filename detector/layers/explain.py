"""Tells which kernel computes an op and why, also for a GPU that is not present. Tables: csrc/*_plan.h."""

import ctypes
import functools
import inspect
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from detector.layers._depthwise_by_torch import TAKES, WHY, torch_is_faster
from detector.layers._extension import load_extension
from detector.layers._layout import is_channels_last
from detector.layers._sizes import as_pair
from detector.layers.depthwise_conv2d import depthwise_conv2d
from detector.layers.lltm import lltm, lltm_sequence
from detector.layers.nms import batched_nms, nms, nms_mask
from detector.layers.nms_rotated import batched_nms_rotated, nms_rotated
from detector.layers.pcl_loss import pcl_loss, pcl_loss_compat
from detector.layers.proposal_clusters import METHODS, assign_to_seeds, proposal_clusters
from detector.layers.quick_gelu import quick_gelu
from detector.layers.roi_align import roi_align
from detector.layers.roi_align_rotated import roi_align_rotated
from detector.layers.roi_boxes import as_rois
from detector.layers.roi_pool import roi_pool
from detector.layers.selective_search import selective_search
from detector.layers.soft_nms import soft_nms
from detector.layers.trilinear_interpolate import trilinear_interpolate
from detector.layers.upsample_bilinear2d import COORDINATE_MODES, output_size, upsample_bilinear2d

PASSES = ("forward", "grad_input", "grad_weight")  # of depthwise_conv2d


class Gpu(NamedTuple):
    """KiB of shared memory that a block may have, and that a multiprocessor has; and, for the size of grids,
    the multiprocessors of a card with that compute capability."""

    shared_of_block: int
    shared_of_processor: int
    processors: int


# By compute capability; from the CUDA programming guide.
GPUS = {
    75: Gpu(64, 64, 40),  # T4
    80: Gpu(163, 164, 108),  # A100
    86: Gpu(99, 100, 84),  # A40
    87: Gpu(163, 164, 16),  # Orin
    89: Gpu(99, 100, 58),  # L4
    90: Gpu(227, 228, 132),  # H100
    100: Gpu(227, 228, 148),  # B200
    103: Gpu(227, 228, 148),  # B300
    110: Gpu(227, 228, 20),  # Thor
    120: Gpu(99, 100, 170),  # RTX 5090
}


@dataclass(frozen=True)
class Launch:
    """Threads of a block, the grid, and bytes of shared memory of a block."""

    threads: int
    grid: tuple[int, int, int]
    shared: int


@dataclass(frozen=True)
class Candidate:
    """One kernel of an op: whether it runs and supports the arguments, what it supports, and why it exists.

    `launch` is set if it depends on the arguments and the GPU alone.
    """

    name: str
    runs: bool
    fits: bool
    takes: str
    why: str
    launch: Launch | None = None


@dataclass(frozen=True)
class Explanation:
    """The candidates of each pass of an op, the fastest first; one of each pass runs."""

    op: str
    device: str
    passes: dict[str, list[Candidate]]

    def kernels(self) -> dict[str, str]:
        """The name of the kernel that runs in each pass."""
        return {key: next(c.name for c in candidates if c.runs) for key, candidates in self.passes.items()}

    def __str__(self) -> str:
        lines = [f"{self.op} on {self.device}"]
        for key, candidates in self.passes.items():
            for c in candidates:
                state = "runs" if c.runs else "also fits" if c.fits else "does not fit"
                lines.append(f"  {key:11} {c.name:13} {state:13} takes {c.takes}; {c.why}")
                if c.launch:
                    grid = " x ".join(map(str, c.launch.grid))
                    lines[-1] += f"; {c.launch.threads} threads, grid {grid}, {c.launch.shared} bytes shared"
        return "\n".join(lines)


def explain(op: Callable | str, *args: Any, gpu: str | None = None, **kwargs: Any) -> Explanation:
    """Tell which kernel computes each pass of an op for these arguments, and which others could.

    Nothing is computed, so tensors on the device "meta", which have shapes but no values, do as well. All
    tensors are taken to begin at multiples of 16 bytes. The environment variables DETECTOR_KERNEL and
    DETECTOR_WITHOUT count as they do when the op runs. A build without code for the GPU itself may choose as
    for an older one.

    Args:
        op: an op of `detector.layers`, or its name.
        args, kwargs: as in a call of the op.
        gpu: a compute capability as nvcc writes it, e.g. "sm_86"; default: that of the first argument, which
            may be on a CPU.

    Raises:
        ValueError: there is no such op, the GPU is unknown, or it is not given and the first argument is on
            the device "meta".
        RuntimeError: as the op on invalid sizes.
    """
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    found = OPS.get(name)
    if found is None:
        raise ValueError(f"explain: op is {name}, expected one of {', '.join(OPS)}")
    bound = inspect.signature(found.function).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    first = next(iter(arguments.values()))
    device, architecture = _device(first[0] if isinstance(first, list | tuple) else first, gpu)
    if architecture == 0 and name != "depthwise_conv2d":
        return Explanation(name, device, {key: [ON_CPU] for key in found.passes})
    if isinstance(found.table, str):
        one = Candidate("only", runs=True, fits=True, takes="all", why=found.table)
        return Explanation(name, device, {key: [one] for key in found.passes})
    own = first.device if gpu is None and isinstance(first, Tensor) and first.is_cuda else None
    return Explanation(name, device, found.table(arguments, _numbers_of_gpu(architecture, own)))


def _device(input: Tensor, gpu: str | None) -> tuple[str, int]:
    """Its name, and the compute capability times 10, 0 for a CPU."""
    if gpu is None:
        if input.is_cuda:
            major, minor = torch.cuda.get_device_capability(input.device)
            return f"sm_{major}{minor}", 10 * major + minor
        if input.is_cpu:
            return "cpu", 0
        raise ValueError(f"explain: gpu is None and input is on {input.device}, expected e.g. gpu='sm_86'")
    found = re.fullmatch(r"sm_(\d+)", gpu)
    if not found or int(found[1]) not in GPUS:
        known = ", ".join(f"sm_{number}" for number in GPUS)
        raise ValueError(f"explain: gpu is {gpu!r}, expected one of {known}")
    return gpu, int(found[1])


# ---- the ops: which arguments their tables are about ----

Arguments = dict[str, Any]
Numbers = list[int]
Passes = dict[str, list[Candidate]]


def _numbers_of_gpu(architecture: int, own: torch.device | None) -> Numbers:
    """As in csrc/explain.cpp: of a GPU that is there, or of one with that compute capability (0: the CPU)."""
    if own is not None:
        p = torch.cuda.get_device_properties(own)
        shared = p.shared_memory_per_block_optin, p.shared_memory_per_multiprocessor
        return [architecture, *shared, p.multi_processor_count]
    gpu = GPUS.get(architecture, Gpu(0, 0, 0))
    return [architecture, 1024 * gpu.shared_of_block, 1024 * gpu.shared_of_processor, gpu.processors]


def _depthwise(arguments: Arguments, gpu: Numbers) -> Passes:
    input, weight = arguments["input"], arguments["weight"]
    pairs = [as_pair("depthwise_conv2d", key, arguments[key]) for key in ("stride", "padding", "dilation")]
    if input.dim() != 4 or weight.dim() != 4:
        raise RuntimeError(
            f"depthwise_conv2d: input has shape {tuple(input.shape)} and weight {tuple(weight.shape)},"
            " expected 4 dimensions"
        )
    sizes = [*input.shape, weight.shape[0], *weight.shape[2:], *(n for pair in pairs for n in pair)]
    last = is_channels_last(input)
    passes = {
        key: _compiled_table("depthwise_conv2d", [*gpu, number, input.element_size(), last, *sizes])
        for number, key in enumerate(PASSES)
    }
    if gpu[0] > 0:
        images, filters = (torch.empty_like(tensor, device="meta") for tensor in (input, weight))
        by_torch = torch_is_faster(images, filters, *pairs)
        torchs = Candidate("torch", by_torch, by_torch, TAKES, WHY)
        passes = {key: [torchs, *_stopped(candidates, by_torch)] for key, candidates in passes.items()}
    return passes


def _stopped(candidates: list[Candidate], stopped: bool) -> list[Candidate]:
    """The candidates, of which none runs if `stopped`."""
    return [replace(c, runs=c.runs and not stopped) for c in candidates]


def _each_pass(op: str, passes: Sequence[str], gpu: Numbers, numbers: Sequence[int]) -> Passes:
    return {key: _compiled_table(op, [*gpu, i, *numbers]) for i, key in enumerate(passes)}


def _roi_op(op: str, arguments: Arguments, gpu: Numbers) -> Passes:
    input, pooled = arguments["input"], as_pair(op, "output_size", arguments["output_size"])
    if input.dim() != 4:
        raise RuntimeError(f"{op}: input has shape {tuple(input.shape)}, expected 4 dimensions")
    boxes = as_rois(arguments["boxes"], input).shape[0]
    return _each_pass(op, _ROI, gpu, [input.element_size(), *input.shape, boxes, *pooled])


def _nms(arguments: Arguments, gpu: Numbers) -> Passes:
    numbers = [arguments["boxes"].shape[0], arguments.get("idxs") is not None]
    return _each_pass("nms", _NMS, gpu, numbers)


def _clusters(arguments: Arguments, gpu: Numbers) -> Passes:
    counts, scores = arguments["counts"], arguments["scores"]
    most = min(int(arguments["boxes"].shape[0]), 65_535)  # rows of an image
    largest = int(counts.max()) if counts.device.type == "cpu" and len(counts) else most
    teams = len(counts) * (1 if scores.dim() == 2 else scores.shape[0])
    numbers = [METHODS.index(arguments["method"]), largest, teams]
    return {"forward": _compiled_table("proposal_clusters", [*gpu, *numbers])}


def _upsample(arguments: Arguments, gpu: Numbers) -> Passes:
    input = arguments["input"]
    height, width, *factors = output_size(input, arguments["size"], arguments["scale_factor"])
    mode = COORDINATE_MODES.index(arguments["coordinate_mode"])
    bits = [struct.unpack("q", struct.pack("d", factor))[0] for factor in factors]
    sizes = [input.element_size(), is_channels_last(input), *input.shape, height, width, mode, *bits]
    return _each_pass("upsample_bilinear2d", _BOTH, gpu, sizes)


def _trilinear(arguments: Arguments, gpu: Numbers) -> Passes:
    feats = arguments["feats"]
    numbers = [feats.element_size(), feats.shape[0], feats.shape[2]]
    only = Candidate("only", True, True, "all", "16 bytes for each load where shapes and strides allow it")
    feats_table = _compiled_table("trilinear_interpolate", [*gpu, *numbers])
    return {"forward": [only], "grad_feats": feats_table, "grad_points": [only]}


def _quick_gelu(arguments: Arguments, gpu: Numbers) -> Passes:
    input = arguments["input"]
    return _each_pass("quick_gelu", _BOTH, gpu, [input.element_size(), input.numel()])


ON_CPU = Candidate("cpu", True, True, "all", "the only kernel on the CPU")


class Op(NamedTuple):
    """An op with its passes and their table, or why its only kernel is as it is."""

    function: Callable
    passes: tuple[str, ...]
    table: Callable[[Arguments, Numbers], Passes] | str


_BOTH = ("forward", "backward")
_ROI = (*_BOTH, "order")
_NMS = ("order", "keep")
_SUPPRESS = "a bit for each pair of boxes, then one block that goes through them in order"
OPS = {
    op.function.__name__: op
    for op in (
        Op(depthwise_conv2d, PASSES, _depthwise),
        Op(roi_align, _ROI, functools.partial(_roi_op, "roi_align")),
        Op(roi_pool, _ROI, functools.partial(_roi_op, "roi_pool")),
        *(Op(function, _NMS, _nms) for function in (nms, batched_nms, nms_mask)),
        Op(upsample_bilinear2d, _BOTH, _upsample),
        Op(trilinear_interpolate, ("forward", "grad_feats", "grad_points"), _trilinear),
        Op(quick_gelu, _BOTH, _quick_gelu),
        *(Op(function, ("forward",), _SUPPRESS) for function in (nms_rotated, batched_nms_rotated)),
        Op(soft_nms, ("forward",), "one block for each group: each step needs the one before"),
        Op(roi_align_rotated, _BOTH, "a thread for each pooled value; backward a warp for each cell"),
        *(Op(function, _BOTH, "one block for each image") for function in (pcl_loss, pcl_loss_compat)),
        Op(proposal_clusters, ("forward",), _clusters),
        *(
            Op(function, _BOTH, "torch's products, one kernel a step for the rest")
            for function in (lltm, lltm_sequence)
        ),
        Op(assign_to_seeds, ("forward",), "plain PyTorch"),
        Op(selective_search, ("forward",), "runs on the CPU only"),
    )
}


def _compiled_table(op: str, numbers: Sequence[int]) -> list[Candidate]:
    """The candidates of csrc/*_plan.h; `numbers` as in csrc/explain.cpp."""
    text = ctypes.create_string_buffer(1 << 14)
    failed = _function()(op.encode(), (ctypes.c_int64 * len(numbers))(*numbers), text, len(text))
    if failed:
        raise RuntimeError(text.value.decode())
    candidates = []
    for line in text.value.decode().splitlines():
        runs, fits, name, takes, why, *launch = line.split("\t")
        threads, x, y, z, shared = map(int, launch) if launch else (0,) * 5
        found = Launch(threads, (x, y, z), shared) if launch else None
        candidates.append(Candidate(name, runs == "1", fits == "1", takes, why, found))
    return candidates


@functools.cache
def _function() -> Any:
    function = ctypes.CDLL(load_extension().__file__).detector_explain
    function.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p, ctypes.c_size_t]
    return function
