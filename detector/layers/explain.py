"""Tells which kernel computes an op and why, also for a GPU that is not present. Tables: csrc/*_plan.h."""

import ctypes
import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from detector.layers._depthwise_by_torch import TAKES, WHY, torch_is_faster
from detector.layers._extension import load_extension
from detector.layers._layout import is_channels_last
from detector.layers._sizes import as_pair
from detector.layers.depthwise_conv2d import depthwise_conv2d

PASSES = ("forward", "grad_input", "grad_weight")
# KiB of shared memory that a block may have, by compute capability; from the CUDA programming guide
SHARED_KIB = {75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 110: 227, 120: 99}


@dataclass(frozen=True)
class Launch:
    """Threads of a block, the grid, and bytes of shared memory of a block."""

    threads: int
    grid: tuple[int, int, int]
    shared: int


@dataclass(frozen=True)
class Candidate:
    """One kernel of an op: whether it runs and supports the arguments, what it supports, and why it exists.

    `launch` is set if it depends on the arguments and the compute capability alone.
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

    Nothing is computed, so tensors on the device "meta", which have shapes but no values, do as well. The
    environment variables DETECTOR_KERNEL and DETECTOR_WITHOUT count as they do when the op runs. A build
    without code for the GPU itself may choose as for an older one.

    Args:
        op: `depthwise_conv2d` or its name; other ops have no table of kernels yet.
        args, kwargs: as in a call of the op.
        gpu: a compute capability as nvcc writes it, e.g. "sm_86"; default: that of the first argument, which
            may be on a CPU.

    Raises:
        ValueError: the op has no table, the GPU is unknown, or it is not given and the first argument is on
            the device "meta".
        RuntimeError: as the op on invalid sizes.
    """
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    if name != "depthwise_conv2d":
        raise ValueError(f"explain: op is {name}, expected depthwise_conv2d, the only one with a table yet")
    bound = inspect.signature(depthwise_conv2d).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    device, architecture = _device(arguments["input"], gpu)
    pairs = [as_pair(name, key, arguments[key]) for key in ("stride", "padding", "dilation")]
    passes = _depthwise_passes(arguments["input"], arguments["weight"], pairs, architecture)
    return Explanation(name, device, passes)


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
    if not found or int(found[1]) not in SHARED_KIB:
        known = ", ".join(f"sm_{number}" for number in SHARED_KIB)
        raise ValueError(f"explain: gpu is {gpu!r}, expected one of {known}")
    return gpu, int(found[1])


def _depthwise_passes(
    input: Tensor, weight: Tensor, pairs: list[tuple[int, int]], architecture: int
) -> dict[str, list[Candidate]]:
    if input.dim() != 4 or weight.dim() != 4:
        raise RuntimeError(
            f"depthwise_conv2d: input has shape {tuple(input.shape)} and weight {tuple(weight.shape)},"
            " expected 4 dimensions"
        )
    sizes = [*input.shape, weight.shape[0], *weight.shape[2:], *(n for pair in pairs for n in pair)]
    last = is_channels_last(input)
    gpu = architecture > 0, architecture, 1024 * SHARED_KIB.get(architecture, 48)
    passes = {
        key: _compiled_table([*gpu, number, input.element_size(), last, *sizes])
        for number, key in enumerate(PASSES)
    }
    if architecture > 0:
        images, filters = (torch.empty_like(tensor, device="meta") for tensor in (input, weight))
        by_torch = torch_is_faster(images, filters, *pairs)
        torchs = Candidate("torch", by_torch, by_torch, TAKES, WHY)
        passes = {key: [torchs, *_stopped(candidates, by_torch)] for key, candidates in passes.items()}
    return passes


def _stopped(candidates: list[Candidate], stopped: bool) -> list[Candidate]:
    """The candidates, of which none runs if `stopped`."""
    return [replace(c, runs=c.runs and not stopped) for c in candidates]


def _compiled_table(numbers: list[int]) -> list[Candidate]:
    """The candidates of csrc/depthwise_conv2d_plan.h; `numbers` as in csrc/explain.cpp."""
    text = ctypes.create_string_buffer(1 << 14)
    failed = _function()((ctypes.c_int64 * len(numbers))(*numbers), text, len(text))
    if failed:
        raise RuntimeError(text.value.decode())
    rows = [line.split("\t") for line in text.value.decode().splitlines()]
    launches = {
        name: Launch(int(threads), (int(x), int(y), int(z)), int(shared))
        for _, name, threads, x, y, z, shared in (row for row in rows if row[0] == "launch")
    }
    return [
        Candidate(name, runs == "1", fits == "1", takes, why, launches.get(name))
        for runs, fits, name, takes, why in (row for row in rows if row[0] != "launch")
    ]


@functools.cache
def _function() -> Any:
    function = ctypes.CDLL(load_extension().__file__).detector_explain_depthwise_conv2d
    function.argtypes = [ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p, ctypes.c_size_t]
    return function
