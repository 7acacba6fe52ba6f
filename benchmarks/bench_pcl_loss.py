"""Times pcl_loss beside its plain PyTorch twin, eager and compiled.

python benchmarks/bench_pcl_loss.py --device cuda
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from measure import Row, copy_bandwidth, report, time_calls, time_in_graph
from torch import Tensor

from detector.layers import pcl_loss, reference

NUM_COLUMNS = 21  # VOC: 20 classes and background
NUM_CLUSTERS = 15  # three classes of five centres
NUM_INPUTS = 8  # rotated
CASES = {"2000": [2000], "4096": [4096], "2 x 2000": [2000] * 2, "64 x 2000": [2000] * 64}  # proposals
GRAPH_TARGET_MS = 0.03  # both passes over one image, launches and Python aside


def make_inputs(sizes: list[int], dtype: torch.dtype, layout: str, device: torch.device, seed: int) -> list:
    """probs, labels, weights, clusters and counts (None for one image), as training makes them."""
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


def calls_of(function: Callable[..., Tensor], pass_: str, inputs: list[list]) -> list[Callable[[], object]]:
    """One call for each of the inputs."""

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
    """Each input read once, each output written once; of probs the forward needs one column a row."""
    forward = rows * (8 + 8 + 2 * dtype.itemsize + 4)  # labels, clusters, weights, one of probs; slopes
    backward = rows * (8 + 4 + NUM_COLUMNS * dtype.itemsize)  # labels, slopes; gradient
    return {"forward": forward, "backward": backward}.get(pass_, forward + backward)


def bench(
    case: str, pass_: str, dtype: torch.dtype, layout: str, device: torch.device, bandwidth: float
) -> Row:
    sizes = CASES[case]
    inputs = [make_inputs(sizes, dtype, layout, device, seed) for seed in range(NUM_INPUTS)]
    # The twin splits by counts on the host, so there they stay; ours wants them where the probabilities are.
    ours_inputs = [[*i[:4], None if i[4] is None else i[4].to(device)] for i in inputs]
    peers = {"eager": reference.pcl_loss}
    if len(sizes) == 1:  # splitting by values does not compile
        torch._dynamo.reset()
        peers["torch.compile"] = torch.compile(reference.pcl_loss, dynamic=False)
    timer = time_in_graph if pass_.endswith("graph") else time_calls
    ours_ms = timer(calls_of(pcl_loss, pass_, ours_inputs), device)
    peers_ms = {name: timer(calls_of(peer, pass_, inputs), device) for name, peer in peers.items()}
    peer = min(peers_ms, key=peers_ms.__getitem__)
    absolute = pass_ == "both, graph" and len(sizes) == 1
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    return Row(
        case=f"{case} x {NUM_COLUMNS}{threads}",
        pass_=pass_,
        dtype=str(dtype).removeprefix("torch."),
        layout=layout,
        ours_ms=ours_ms,
        peer=peer,
        peer_ms=peers_ms[peer],
        copy_percent=100 * fewest_bytes(pass_, sum(sizes), dtype) / bandwidth / ours_ms,
        target=f"{GRAPH_TARGET_MS} ms" if absolute else "peer_ms",
        reached=ours_ms <= (GRAPH_TARGET_MS if absolute else peers_ms[peer]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    device = torch.device(parser.parse_args().device)
    bandwidth = copy_bandwidth(device)
    print(f"copy: {bandwidth / 1e6:.0f} GB/s")
    on_gpu = device.type == "cuda"
    rows = []
    for threads in [torch.get_num_threads()] if on_gpu else sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        for pass_ in ["forward", "backward", "both", *(["both, graph"] if on_gpu else [])]:
            for case in CASES:
                rows.append(bench(case, pass_, torch.float32, "contiguous", device, bandwidth))
            rows.append(bench("2000", pass_, torch.float32, "transposed", device, bandwidth))
            rows.append(bench("2000", pass_, torch.float16, "contiguous", device, bandwidth))
    report("pcl_loss", device, rows)


if __name__ == "__main__":
    main()
