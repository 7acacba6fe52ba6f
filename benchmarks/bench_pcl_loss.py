"""Times pcl_loss, compared with its PyTorch reference, eager and compiled.

python benchmarks/bench_pcl_loss.py --device cuda
"""

from collections.abc import Callable
from functools import partial

import torch
from measure import Row, copy_bandwidth, device_parser, report, time_calls, time_in_graph
from torch import Tensor

from detector.layers import pcl_loss, reference

NUM_COLUMNS = 21  # VOC: 20 classes and background
NUM_CLUSTERS = 15  # three classes of five centers
NUM_INPUTS = 8  # used in turn
CASES = {"2000": [2000], "4096": [4096], "2 x 2000": [2000] * 2, "64 x 2000": [2000] * 64}  # proposals
GRAPH_TARGET_MS = 0.03  # both passes for one image, without launches and Python


def make_inputs(sizes: list[int], dtype: torch.dtype, layout: str, device: torch.device, seed: int) -> list:
    """probs, labels, weights, clusters and counts (None for one image), as in training."""
    generator = torch.Generator().manual_seed(seed)
    rows = sum(sizes)
    probs = torch.randn(rows, NUM_COLUMNS, generator=generator).softmax(dim=1).to(device, dtype)
    if layout == "transposed":
        probs = probs.t().contiguous().t()
    clusters = torch.randint(-NUM_CLUSTERS // 2, NUM_CLUSTERS, (rows,), generator=generator).clamp(min=-1)
    labels = torch.where(clusters >= 0, clusters // 5 + 1, 0)
    weights = torch.rand(rows, generator=generator)
    counts = None if len(sizes) == 1 else torch.tensor(sizes)
    return [probs.requires_grad_(), labels.to(device), weights.to(device, dtype), clusters.to(device), counts]


def pass_calls(function: Callable[..., Tensor], pass_: str, inputs: list[list]) -> list[Callable[[], object]]:
    """One call per input."""

    def gradient(loss: Tensor, probs: Tensor, retain_graph: bool) -> None:
        torch.autograd.grad(loss, probs, torch.ones_like(loss), retain_graph=retain_graph)

    def both(*arguments: Tensor) -> None:
        gradient(function(*arguments), arguments[0], retain_graph=False)

    if pass_ == "forward":
        return [partial(function, *arguments) for arguments in inputs]
    if pass_ == "backward":
        return [partial(gradient, function(*arguments), arguments[0], True) for arguments in inputs]
    return [partial(both, *arguments) for arguments in inputs]


def fewest_bytes(pass_: str, rows: int, dtype: torch.dtype) -> int:
    """Bytes to read each input and write each output once; the forward pass reads one column of probs."""
    forward = rows * (8 + 8 + 2 * dtype.itemsize + 4)  # labels, clusters, weights, one of probs; slopes
    backward = rows * (8 + 4 + NUM_COLUMNS * dtype.itemsize)  # labels, slopes; gradient
    return {"forward": forward, "backward": backward}.get(pass_, forward + backward)


def bench(
    case: str, dtype: torch.dtype, layout: str, passes: list[str], device: torch.device, bandwidth: float
) -> list[Row]:
    sizes = CASES[case]
    inputs = [make_inputs(sizes, dtype, layout, device, seed) for seed in range(NUM_INPUTS)]
    # The reference splits by counts on the host; the op takes them on the device.
    ours_inputs = [[*i[:4], None if i[4] is None else i[4].to(device)] for i in inputs]
    baselines = {"eager": reference.pcl_loss}
    if len(sizes) == 1:  # splitting by counts does not compile
        torch._dynamo.reset()
        baselines["torch.compile"] = torch.compile(reference.pcl_loss, dynamic=False)
    threads = "" if device.type == "cuda" else f", threads: {torch.get_num_threads()}"
    rows = []
    for pass_ in passes:
        timer = time_in_graph if pass_.endswith("graph") else time_calls
        ours_ms = timer(pass_calls(pcl_loss, pass_, ours_inputs), device)
        baselines_ms = {
            name: timer(pass_calls(baseline, pass_, inputs), device) for name, baseline in baselines.items()
        }
        baseline = min(baselines_ms, key=baselines_ms.__getitem__)
        absolute = pass_ == "both, graph" and len(sizes) == 1
        row = Row(
            case=f"{case} x {NUM_COLUMNS}{threads}",
            pass_=pass_,
            dtype=str(dtype).removeprefix("torch."),
            layout=layout,
            ours_ms=ours_ms,
            baseline=baseline,
            baseline_ms=baselines_ms[baseline],
            copy_percent=100 * fewest_bytes(pass_, sum(sizes), dtype) / bandwidth / ours_ms,
            target=f"{GRAPH_TARGET_MS} ms" if absolute else "baseline_ms",
            reached=ours_ms <= (GRAPH_TARGET_MS if absolute else baselines_ms[baseline]),
        )
        rows.append(row)
    return rows


def main() -> None:
    parser = device_parser(__doc__)
    device = torch.device(parser.parse_args().device)
    bandwidth = copy_bandwidth(device)
    print(f"copy: {bandwidth / 1e6:.0f} GB/s")
    passes = ["forward", "backward", "both"]
    threads = sorted({1, torch.get_num_threads()})
    if device.type == "cuda":
        passes, threads = [*passes, "both, graph"], threads[-1:]
    settings = [(case, torch.float32, "contiguous") for case in CASES]
    settings += [("2000", torch.float32, "transposed"), ("2000", torch.float16, "contiguous")]
    rows = []
    for number in threads:
        torch.set_num_threads(number)
        for setting in settings:
            rows += bench(*setting, passes, device, bandwidth)
    report("pcl_loss", device, rows)


if __name__ == "__main__":
    main()
