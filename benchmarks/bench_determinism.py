"""What a reproducible gradient of roi_align costs: time and memory, ours beside torchvision's.

    python benchmarks/bench_determinism.py --device cuda

torchvision's kernel adds up gradients by atomics, in another order each time. With
torch.use_deterministic_algorithms(True) it takes a formula of plain operations instead, which torch.compile
compiles at the first call; without a compiler these run one by one. Boxes of 32 to 256 pixels, 7 x 7 bins of
2 x 2 samples. `extra_mib`: the most memory of the device in use during both passes, beyond the inputs.
Writes benchmarks/results/determinism_gpu.json.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torchvision
from cases.roi_rows import OUTPUT_SIZE, STRIDE, Case, random_boxes
from measure import device_parser, report, time_calls
from torch import Tensor

from detector import layers

SIDES = (32, 256)
CASES = [
    Case(2, 256, 50, 76, 1024, sides=SIDES),  # of a feature pyramid, two images
    Case(1, 512, 75, 100, 2000, sides=SIDES),
]
SMALL = Case(1, 8, 12, 14, 10, sides=SIDES)
OPTIONS = {"output_size": OUTPUT_SIZE, "spatial_scale": 1 / STRIDE, "sampling_ratio": 2, "aligned": True}


@dataclass(frozen=True)
class Row:
    case: str
    op: str
    forward_ms: float | None  # None: out of memory
    both_ms: float | None  # forward and backward
    extra_mib: float | None
    equal_runs: bool | None  # are the gradients of three runs bitwise equal?


def in_deterministic_mode(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*arguments: Tensor) -> Tensor:
        torch.use_deterministic_algorithms(True)
        try:
            return op(*arguments)
        finally:
            torch.use_deterministic_algorithms(False)

    return run


def without_compiler(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*arguments: Tensor) -> Tensor:
        with torch.compiler.set_stance("force_eager"):
            return op(*arguments)

    return run


def ops() -> dict[str, Callable[..., Tensor]]:
    theirs = partial(torchvision.ops.roi_align, **OPTIONS)
    return {
        "ours": partial(layers.roi_align, **OPTIONS),
        "torchvision": theirs,
        "torchvision, deterministic": in_deterministic_mode(theirs),
        "torchvision, deterministic, not compiled": without_compiler(in_deterministic_mode(theirs)),
    }


def measure(case: Case, name: str, op: Callable[..., Tensor], device: torch.device) -> Row:
    shape = (case.images, case.channels, case.height, case.width)
    input = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    boxes = random_boxes(case, 0).to(device)
    upstream = torch.randn(case.boxes, case.channels, OUTPUT_SIZE, OUTPUT_SIZE, device=device)
    deterministic = "deterministic" in name

    def forward() -> Tensor:
        return op(input, boxes)

    def both() -> Tensor:  # a compiled backward pass may overwrite what it reads: once for each forward pass
        output = forward()
        torch.use_deterministic_algorithms(deterministic)
        try:
            return torch.autograd.grad(output, input, upstream)[0]
        finally:
            torch.use_deterministic_algorithms(False)

    first = both()  # compiles
    equal = all(torch.equal(first, both()) for _ in range(2))
    times = [time_calls([call], device, repeats=5) for call in (forward, both)]
    del first
    return Row(case.text(), name, *times, extra_memory(both, device), equal)


def extra_memory(call: Callable[[], object], device: torch.device) -> float:
    """MiB."""
    if device.type == "cpu":
        return 0.0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def rows(device: torch.device) -> Iterator[Row]:
    for case in CASES if device.type == "cuda" else [SMALL]:
        for name, op in ops().items():
            try:
                row = measure(case, name, op, device)
            except torch.OutOfMemoryError:
                row = Row(case.text(), name, None, None, None, None)
            print(row, flush=True)  # torchvision's may take minutes
            yield row


if __name__ == "__main__":
    chosen = torch.device(device_parser(__doc__).parse_args().device)
    report("determinism", chosen, list(rows(chosen)))
