"""Times the proposal clusters of three streams and their losses, compared with a scikit-learn implementation.

python benchmarks/bench_clusters.py --device cuda
python benchmarks/bench_clusters.py --device cuda --profile   # print the kernels of each case instead

Each stream is clustered by the scores of the previous one, the first by the MIL scores.

Design alternatives on an H200, microseconds of proposal_clusters_centers_kernel for 2,000 proposals at the
first training step:

- A graph of all proposals in global memory, several centers per round, one warp per node: 351.
- A graph of the top cluster in shared memory, one center at a time: 1091, since there are hundreds of
  centers.
- The same graph, several centers per round, one thread per node: 594. Without divisions, and with eight words
  of a node read at a time: 458. Hot code in functions of its own, for more registers: 413.
- Thread block clusters that share an image, eight threads per node: 377 with eight blocks. A captured step
  takes 0.42 ms with eight blocks, 0.47 with four, 0.57 with two, 0.72 with one. The kind of barrier hardly
  matters.
- All warps share the thresholds of the 3-means and the selection of the best centers, centers are in shared
  memory, and blocks store what they found instead of using atomics: a captured step takes 336, from 417.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import clusters_sklearn
import torch
from measure import Row, copy_bandwidth, device_parser, report, time_calls, time_in_graph
from torch import Tensor

from detector.layers import ProposalClusters, pcl_loss, proposal_clusters, reference
from detector.modeling.refinement import cross_entropy_loss
from detector.structures import box_iou

NUM_CLASSES = 20
NUM_POSITIVE = 3
NUM_STREAMS = 3
NUM_INPUTS = 4  # used in turn
TARGETS_MS = {1: 0.4, 16: 1.2}  # per step on a GPU, by number of images
CPU_TARGET_MS = 15.0  # per step and image
ONE, MANY = [2000], [2000] * 16
MORE = [2000] * 32  # with three streams too many to use several blocks per image
CASES = [  # proposals, scores, method
    (ONE, "trained", "pcl"),
    (ONE, "first step", "pcl"),
    (ONE, "even", "pcl"),
    (ONE, "trained", "oicr"),
    (ONE, "trained", "mist"),
    ([4096], "trained", "pcl"),
    ([10_000], "first step", "pcl"),
    (MANY, "trained", "pcl"),
    (MANY, "first step", "pcl"),
    (MORE, "trained", "pcl"),
    (MORE, "first step", "pcl"),
]
BASELINES = {
    "pcl": ("scikit-learn, numpy", clusters_sklearn.cluster_streams),
    "oicr": ("plain torch", partial(reference.proposal_clusters, method="oicr")),
    "mist": ("plain torch", partial(reference.proposal_clusters, method="mist")),
}


class Inputs(NamedTuple):
    """A batch and the outputs of a head with three streams."""

    boxes: Tensor  # (sum R, 4)
    mil: Tensor  # (sum R, C)
    probs: Tensor  # (S, sum R, C + 1)
    image_labels: Tensor  # (B, C)
    counts: Tensor  # (B,)


def make_boxes(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Boxes (count, 4) in whole pixels, a third of them near one of three objects, and the objects (3, 4)."""

    def draw(number: int) -> Tensor:
        corners = torch.rand(number, 2, generator=generator) * torch.tensor([400.0, 300.0])
        sides = 20 + torch.rand(number, 2, generator=generator) ** 2 * torch.tensor([400.0, 300.0])
        return torch.cat([corners, corners + sides], dim=1)

    objects, boxes = draw(NUM_POSITIVE), draw(count)
    sides = (objects[:, 2:] - objects[:, :2]).repeat(1, 2)  # (3, 4)
    near = torch.arange(count // 3)
    shift = 0.15 * torch.randn(len(near), 4, generator=generator) * sides[near % NUM_POSITIVE]
    boxes[near] = objects[near % NUM_POSITIVE] + shift
    boxes[:, 2:] = torch.maximum(boxes[:, 2:], boxes[:, :2] + 5)
    order = torch.randperm(count, generator=generator)
    return boxes.round()[order], objects


def make_probs(kind: str, boxes: Tensor, objects: Tensor, generator: torch.Generator) -> Tensor:
    """Probabilities (R, C + 1) of a stream at the first step, of a trained head, or uniform."""
    noise = torch.randn(len(boxes), NUM_CLASSES + 1, generator=generator)
    if kind == "first step":
        return (0.05 * noise).softmax(dim=1)
    if kind == "even":
        return torch.rand(len(boxes), NUM_CLASSES + 1, generator=generator)
    noise[:, 1 : 1 + NUM_POSITIVE] += 14 * (
        box_iou(boxes, objects) - 0.4
    )  # classes 0..2 are the positive ones
    noise[:, 0] += 4
    return noise.softmax(dim=1)


def make_inputs(sizes: Sequence[int], kind: str, device: torch.device, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    boxes, probs = [], [[] for _ in range(NUM_STREAMS + 1)]
    for size in sizes:
        image_boxes, objects = make_boxes(size, generator)
        boxes.append(image_boxes)
        for stream in probs:
            stream.append(make_probs(kind, image_boxes, objects, generator))
    mil, *streams = (torch.cat(stream) for stream in probs)
    image_labels = torch.zeros(len(sizes), NUM_CLASSES)
    image_labels[:, :NUM_POSITIVE] = 1
    return Inputs(
        torch.cat(boxes).to(device),
        mil[:, 1:].to(device).contiguous(),
        torch.stack(streams).to(device).requires_grad_(),
        image_labels.to(device),
        torch.tensor(sizes).to(device),
    )


def step(inputs: Inputs, find: Callable[..., ProposalClusters], method: str, backward: bool) -> None:
    """Compute the clusters of all streams and, with `backward`, their losses and the gradient."""
    probs = inputs.probs
    sources = torch.cat([inputs.mil[None], probs.detach()[:-1, :, 1:]])  # (S, sum R, C)
    found = find(inputs.boxes, sources, inputs.image_labels, inputs.counts)
    if not backward:
        return
    rows, labels, weights = probs.flatten(0, 1), found.labels.flatten(), found.weights.flatten()
    if method == "pcl":
        counts = inputs.counts.repeat(len(probs))
        loss = pcl_loss(rows, labels, weights, found.clusters.flatten(), counts).sum()
    else:
        loss = cross_entropy_loss(probs, found, inputs.counts).mean()
    torch.autograd.grad(loss, probs)


def fewest_bytes(rows: int, backward: bool) -> int:
    """Bytes that three streams must read and write.

    For the clusters: boxes, one score per positive class and the four outputs. For the loss: one probability
    per proposal and the gradient.
    """
    clusters = rows * (16 + 4 * NUM_POSITIVE + 8 + 4 + 8 + 8)
    loss = rows * (4 + 4 * (NUM_CLASSES + 1)) if backward else 0
    return NUM_STREAMS * (clusters + loss)


def bench(
    sizes: list[int],
    kind: str,
    method: str,
    pass_: str,
    device: torch.device,
    bandwidth: float,
    baseline_ms: float,
) -> Row:
    inputs = [make_inputs(sizes, kind, device, seed) for seed in range(NUM_INPUTS)]
    find = partial(proposal_clusters, method=method)
    backward = pass_.startswith("both")
    timer = time_in_graph if pass_.endswith("graph") else time_calls
    ours_ms = timer([partial(step, i, find, method, backward) for i in inputs], device)
    target_ms = TARGETS_MS.get(len(sizes)) if device.type == "cuda" else CPU_TARGET_MS * len(sizes)
    has_target = backward and method == "pcl" and max(sizes) == 2000 and target_ms is not None
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    images = "" if len(sizes) == 1 else f"{len(sizes)} x "
    return Row(
        case=f"{NUM_STREAMS} streams, {images}{sizes[0]} x {NUM_CLASSES}, {method}, {kind}{threads}",
        pass_=pass_,
        dtype="float32",
        layout="contiguous",
        ours_ms=ours_ms,
        baseline=BASELINES[method][0],
        baseline_ms=baseline_ms,
        copy_percent=100 * fewest_bytes(sum(sizes), backward) / bandwidth / ours_ms,
        target=f"{target_ms} ms" if has_target else "baseline_ms",
        reached=ours_ms <= (target_ms if has_target else baseline_ms),
    )


def time_baseline(sizes: list[int], kind: str, method: str, device: torch.device) -> float:
    """Milliseconds of a step with the baseline's clusters; extrapolated from two images."""
    timed = sizes[:2]
    inputs = make_inputs(timed, kind, device, seed=0)
    call = partial(step, inputs, BASELINES[method][1], method, True)
    return time_calls([call], device, repeats=2) * len(sizes) / len(timed)


def profile(device: torch.device) -> None:
    """Print the kernels of each case, from three repetitions of a step."""
    for sizes, kind, method in CASES:
        inputs = make_inputs(sizes, kind, device, seed=0)
        call = partial(step, inputs, partial(proposal_clusters, method=method), method, True)
        call()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(3):
                call()
            torch.cuda.synchronize()
        print(f"\n{len(sizes)} x {sizes[0]}, {kind}, {method}")
        for event in sorted(profiler.key_averages(), key=lambda e: -e.self_device_time_total):
            microseconds = event.self_device_time_total / event.count
            print(f"{microseconds:9.1f} us x {event.count / 3:4.0f}  {event.key:.90}")


def main() -> None:
    parser = device_parser(__doc__)
    parser.add_argument("--profile", action="store_true", help="print the kernels of each case; cuda only")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if arguments.profile:
        profile(device)
        return
    bandwidth = copy_bandwidth(device)
    on_gpu = device.type == "cuda"
    baselines_ms = [time_baseline(*case, device) for case in CASES]
    rows = []
    for threads in [torch.get_num_threads()] if on_gpu else sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        for pass_ in ["clusters", "both", *(["both, graph"] if on_gpu else [])]:
            for case, baseline_ms in zip(CASES, baselines_ms, strict=True):
                rows.append(bench(*case, pass_, device, bandwidth, baseline_ms))
    report("clusters", device, rows)


if __name__ == "__main__":
    main()
