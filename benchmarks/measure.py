"""Shared by all benchmarks: timing, copy bandwidth, tables and result files."""

import argparse
import ctypes
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from types import ModuleType

import torch
import torchvision

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One row of a table. `baseline` is the fastest one, timed in the same run."""

    case: str
    pass_: str  # forward, backward, both, or both in a CUDA graph
    dtype: str
    layout: str
    ours_ms: float
    baseline: str
    baseline_ms: float
    copy_percent: float  # minimal bytes to move over time, as a share of the copy bandwidth
    target: str
    reached: bool


def time_calls(calls: Sequence[Callable[[], object]], device: torch.device, repeats: int = 60) -> float:
    """Median milliseconds of a call. The calls use different data, so that caches are cold."""
    for call in calls:  # compile, allocate
        call()
    return statistics.median(time_call(calls[i % len(calls)], device) for i in range(repeats))


def time_call(call: Callable[[], object], device: torch.device) -> float:
    """Milliseconds of one call."""
    if device.type == "cpu":
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def queued(calls: Sequence[Callable[[], object]], device: torch.device) -> tuple[Callable[[], object], int]:
    """A function that makes many of the calls in turn, and their number.

    As in a training step, calls are queued before the GPU executes them, so that host time counts only if it
    exceeds the GPU time.
    """
    for call in calls:  # compile, allocate
        call()
    enough_ms, most = 20, 24
    rounds = max(1, int(min(most, enough_ms / time_call(calls[0], device)) / len(calls)))

    def all_calls() -> None:
        for _ in range(rounds):
            for call in calls:
                call()

    return all_calls, rounds * len(calls)


def time_queued(calls: Sequence[Callable[[], object]], device: torch.device) -> float:
    """Median milliseconds of a call on a GPU, among many queued calls."""
    all_calls, number = queued(calls, device)
    return time_calls([all_calls], device, repeats=10) / number


def time_in_graph(
    calls: Sequence[Callable[[], object]],
    device: torch.device,
    stream: torch.cuda.Stream | None = None,
    repeats: int = 60,
) -> float:
    """Median milliseconds of a call in a CUDA graph of all calls: GPU time without host overhead."""
    return time_calls([capture(calls, stream).replay], device, repeats) / len(calls)


def capture(
    calls: Sequence[Callable[[], object]], stream: torch.cuda.Stream | None = None
) -> torch.cuda.CUDAGraph:
    """Capture the calls in a CUDA graph.

    A backward pass runs on the stream of its forward pass. If the calls are backward passes, `stream` must be
    that stream.
    """
    stream = stream or torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    return graph


def keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system.

    Whether large blocks are returned depends on the state of the heap. Page faults on new blocks can take as
    long as the op that fills them, which would make timings unreliable.
    """
    trim_threshold, most_mapped_blocks = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(trim_threshold, 2**31 - 1)
        mallopt(most_mapped_blocks, 0)


def copy_bandwidth(device: torch.device) -> float:
    """Bytes that a copy reads and writes per millisecond."""
    source = torch.ones(2**28 if device.type == "cuda" else 2**25, device=device)  # far larger than any cache
    copy = torch.empty_like(source)
    return 2 * source.nbytes / time_calls([lambda: copy.copy_(source)], device, repeats=20)


def machine_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


def commit() -> str:
    command = ["git", "-C", str(RESULTS.parent), "describe", "--always", "--dirty"]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout.strip() or "not a git checkout"


def report(name: str, device: torch.device, rows: Sequence[Row]) -> None:
    """Print the rows and write benchmarks/results/NAME_{gpu,cpu}.json."""
    print_table(rows)
    write_result(name, device, rows)


def print_table(rows: Sequence[Row]) -> None:
    records = [_record(row) for row in rows]
    cells = [list(records[0])] + [[_text(value) for value in record.values()] for record in records]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def command_line() -> str:
    """The command that runs, for a results file: of files elsewhere than in the checkout their name alone."""
    root, words = RESULTS.resolve().parents[1], []
    for word in sys.argv:
        path = Path(word)
        if path.is_absolute():
            word = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        words.append(word)
    return " ".join(["python", *words])


def write_result(name: str, device: torch.device, rows: Sequence[Row]) -> None:
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    versions |= {"torchvision": torchvision.__version__, "cuda": torch.version.cuda}
    result = {
        "machine": machine_name(device),
        "date": date.today().isoformat(),
        "versions": versions,
        "commit": commit(),
        "command": command_line(),
        "rows": [_record(row) for row in rows],
    }
    path = RESULTS / f"{name}_{'gpu' if device.type == 'cuda' else 'cpu'}.json"
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(temporary, path)
    print(f"{name} on {result['machine']}, torch {torch.__version__}, {result['commit']}: written to {path}")


def _record(row: Row) -> dict[str, object]:
    return {key.rstrip("_"): value for key, value in asdict(row).items()}


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def device_parser(description: str) -> argparse.ArgumentParser:
    """The command-line parser of all benchmarks; callers may add arguments."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    return parser


def worth_timing(arguments: argparse.Namespace) -> bool:
    """Whether to run a benchmark of whole networks: on a GPU or with --small. Prints a note if not."""
    worth = arguments.device == "cuda" or arguments.small
    if not worth:
        print("not meaningful on a CPU; use --small to test that it runs")
    return worth


def run_cases(name: str, description: str, cases: Sequence[ModuleType]) -> None:
    """Run a benchmark of several ops from the command line; `cases`: modules with rows(device, bandwidth)."""
    names = [case.__name__.rpartition(".")[2] for case in cases]
    parser = device_parser(description)
    parser.add_argument("--only", choices=names, help="time only this op, and write no file")
    parser.add_argument(
        "--without",
        metavar="OP.KERNEL",
        help="leave out a kernel, such as depthwise_conv2d.strips (several: with commas), and write no file",
    )
    arguments = parser.parse_args()
    if arguments.without and os.environ.get("DETECTOR_WITHOUT") != arguments.without:
        os.environ["DETECTOR_WITHOUT"] = arguments.without
        os.execv(sys.executable, [sys.executable, *sys.argv])  # some of it is read at import
    device = torch.device(arguments.device)
    keep_freed_memory()
    bandwidth = copy_bandwidth(device)
    print(f"copy: {bandwidth / 1e6:.0f} GB/s")
    threads = sorted({1, torch.get_num_threads()}) if device.type == "cpu" else [torch.get_num_threads()]
    rows = []
    for number in threads:
        torch.set_num_threads(number)
        for case, case_name in zip(cases, names, strict=True):
            if arguments.only in (None, case_name):
                rows += case.rows(device, bandwidth)
    print_table(rows)
    if arguments.only is None and not arguments.without:
        write_result(name, device, rows)
