"""proposal_clusters against its plain twin, bit for bit, and all that every op promises."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from detector.layers import ProposalClusters, pcl_loss, proposal_clusters, reference
from detector.layers.reference_clusters import top_ranking

cuda = torch.device("cuda")
OP = torch.ops.detector.proposal_clusters.default
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
METHODS = ["pcl", "oicr", "mist"]
BOXES = ["anywhere", "on a grid", "without area", "repeated"]
SCORES = ["even", "peaked", "saturated", "over many orders", "few levels", "all equal"]


class Case(NamedTuple):
    """The tensors that proposal_clusters takes."""

    boxes: Tensor
    scores: Tensor
    image_labels: Tensor
    counts: Tensor

    def to(self, device: torch.device | str) -> "Case":
        return Case(*(tensor.to(device) for tensor in self))


def make_boxes(kind: str, count: int, generator: torch.Generator) -> Tensor:
    corners = torch.rand(count, 2, generator=generator) * 60
    sides = torch.rand(count, 2, generator=generator) * 60
    if kind != "anywhere":
        corners = corners.floor()
        sides = (sides / (20 if kind == "without area" else 4)).floor()
    boxes = torch.cat([corners, corners + sides], dim=1)
    if kind == "repeated" and count:
        boxes = boxes[torch.randint(0, count // 3 + 1, (count,), generator=generator)]
    return boxes


def make_scores(kind: str, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    even = torch.rand(shape, generator=generator)
    return {
        "even": even,
        "peaked": even**8,
        "saturated": torch.sigmoid(40 * (even - 0.5)),
        "over many orders": 10 ** (-12 * even),
        "few levels": (even * 16).floor() / 16,
        "all equal": torch.full(shape, 0.3),
    }[kind]


def make_case(
    counts: list[int],
    num_classes: int = 5,
    *,
    boxes: str = "anywhere",
    scores: str = "even",
    positive: float = 0.5,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    generator = torch.Generator().manual_seed(seed)
    rows = sum(counts)
    return Case(
        make_boxes(boxes, rows, generator),
        make_scores(scores, (rows, num_classes), generator).to(dtype),
        (torch.rand(len(counts), num_classes, generator=generator) < positive).float(),
        torch.tensor(counts, dtype=torch.int64),
    )


def numbered_case(number: int) -> tuple[Case, dict]:
    """One of endlessly many: a case and options."""
    draw = np.random.default_rng(number)
    sizes = [0, 1, 2, 3, 5, 20, 60, 150]
    case = make_case(
        [int(draw.choice(sizes)) for _ in range(draw.integers(1, 4))],
        int(draw.choice([1, 2, 5])),
        boxes=str(draw.choice(BOXES)),
        scores=str(draw.choice(SCORES)),
        positive=float(draw.choice([0.3, 1])),
        dtype=DTYPES[draw.integers(4)],
        seed=number,
    )
    if draw.random() < 0.3:
        case = case._replace(boxes=case.boxes.double())
    if draw.random() < 0.3:  # several streams
        case = case._replace(scores=torch.stack([case.scores, case.scores.flip(0), case.scores.flip(1)]))
    options = {"method": str(draw.choice(METHODS)), "max_centres": int(draw.choice([1, 3, 5, 5]))}
    return case, options


def assert_same(actual: ProposalClusters, expected: ProposalClusters) -> None:
    for name, one, other in zip(ProposalClusters._fields, actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu(), other.cpu()), name


# ---- what it computes ----


def square(x: float) -> list[float]:
    return [float(x), 0.0, x + 10.0, 10.0]


def test_pcl_by_hand(device: torch.device) -> None:
    boxes = torch.tensor(
        [
            *(square(0), square(1), square(2)),  # a group of three, of one class
            *(square(100), square(101)),  # a group of two
            square(200),  # alone
            *(square(4), square(8)),  # near the first group, badly scored
            square(300),
        ],
        device=device,
    )
    scores = torch.tensor([0.8, 0.7, 0.9, 0.85, 0.75, 0.8, 0.3, 0.3, 0.1], device=device)
    found = proposal_clusters(
        boxes,
        scores[:, None],
        torch.ones(1, 1, device=device),
        torch.tensor([9]),
        method="pcl",
        max_centres=2,
    )
    # Six are top-ranking. Row 0, of degree 3, wins, with the weight of row 2; then row 3, which leaves one.
    assert found.centres.tolist() == [0, -1, -1, 1, -1, -1, -1, -1, -1]
    # IoU with row 0: row 6 6/14, row 7 2/18; with row 3: row 4 9/11
    assert found.clusters.tolist() == [0, 0, 0, 1, 1, -1, -1, -1, -1]
    assert found.labels.tolist() == [1, 1, 1, 1, 1, 0, 0, 0, 0]
    expected = torch.tensor([0.9, 0.9, 0.9, 0.85, 0.85, 0, 0.9, 0.9, 0])
    assert torch.equal(found.weights.cpu(), expected)


def test_oicr_by_hand(device: torch.device) -> None:
    boxes = torch.tensor([square(0), square(1), square(100)], device=device)
    scores = torch.tensor([[0.9, 0.1, 0.8], [0.3, 0.2, 0.7], [0.9, 0.3, 0.1]], device=device)
    labels = torch.tensor([[1.0, 0, 1]], device=device)
    found = proposal_clusters(boxes, scores, labels, torch.tensor([3]), method="oicr")
    # Row 0, the first of the best, is out of the pool when the third class chooses.
    assert found.centres.tolist() == [0, 1, -1]
    assert found.labels.tolist() == [1, 3, 0]
    assert torch.equal(found.weights.cpu(), torch.tensor([0.9, 0.7, 0]))


def test_mist_by_hand(device: torch.device) -> None:
    boxes = torch.tensor([square(10 * x) for x in (0, 0.5, 3, 3.9, 6, 9)], device=device)
    scores = torch.tensor([[0.5], [0.6], [0.7], [0.7], [0.6], [0.1]], device=device)
    case = (boxes, scores, torch.ones(1, 1, device=device), torch.tensor([6]))
    # In the order of the scores: rows 2, 3, 1, 4 | 0, 5. Only rows 0 and 1 overlap by more than 0.2.
    found = proposal_clusters(*case, method="mist", top_share=0.6)
    assert found.centres.tolist() == [-1, 2, 0, 1, 3, -1]
    found = proposal_clusters(*case, method="mist", top_share=1.0)
    assert found.centres.tolist() == [-1, 2, 0, 1, 3, 4]
    found = proposal_clusters(*case, method="mist", top_share=0.0, nms_iou=0.0)
    assert found.centres.tolist() == [-1, -1, 0, -1, -1, -1]


@given(
    counts=st.lists(st.one_of(st.integers(0, 4), st.integers(0, 130)), min_size=0, max_size=3),
    num_classes=st.integers(1, 6),
    boxes=st.sampled_from(BOXES),
    scores=st.sampled_from(SCORES),
    positive=st.sampled_from([0.0, 0.3, 1.0]),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**31),
    method=st.sampled_from(METHODS),
    options=st.fixed_dictionaries(
        {
            "graph_iou": st.sampled_from([0.0, 0.4, 0.7]),
            "max_centres": st.integers(1, 6),
            "nms_iou": st.sampled_from([0.2, 0.5]),
            "top_share": st.sampled_from([0.15, 0.5, 1.0]),
            "member_iou": st.sampled_from([0.5, 0.6]),
            "ignore_iou": st.sampled_from([0.0, 0.1]),
        }
    ),
)
@settings(max_examples=400, deadline=None)
def test_equals_twin(
    counts: list[int],
    num_classes: int,
    boxes: str,
    scores: str,
    positive: float,
    dtype: torch.dtype,
    seed: int,
    method: str,
    options: dict,
) -> None:
    case = make_case(
        counts, num_classes, boxes=boxes, scores=scores, positive=positive, dtype=dtype, seed=seed
    )
    actual = proposal_clusters(*case, method=method, **options)
    assert_same(actual, reference.proposal_clusters(*case, method=method, **options))


@pytest.mark.parametrize("first", range(0, 1000, 250))
def test_equals_twin_in_a_thousand_cases(first: int) -> None:
    for number in range(first, first + 250):
        case, options = numbered_case(number)
        assert_same(proposal_clusters(*case, **options), reference.proposal_clusters(*case, **options))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scores", ["even", "all equal", "saturated"])
def test_equals_twin_at_a_real_size(scores: str, method: str, device: torch.device) -> None:
    case = make_case([700, 1300], 3, boxes="on a grid", scores=scores, positive=1)
    expected = reference.proposal_clusters(*case, method=method)
    assert_same(proposal_clusters(*case.to(device), method=method), expected)


@pytest.mark.parametrize("method", METHODS)
def test_equals_twin_on_recorded_score_maps(method: str, device: torch.device) -> None:
    """What a detector trained on Toybox gives: recorded by data/record_score_maps.py."""
    with np.load(Path(__file__).with_name("data") / "score_maps.npz") as file:
        maps = {name: torch.from_numpy(file[name]) for name in file.files}
    scores = torch.cat([maps["mil"][None], maps["refinements"][:-1, :, 1:]])  # (S, sum R, C)
    case = Case(maps["boxes"], scores, maps["image_labels"], maps["counts"])
    found = proposal_clusters(*case.to(device), method=method)
    assert (found.clusters >= 0).any()
    assert_same(found, reference.proposal_clusters(*case, method=method))


# ---- the 3-means ----


def top_count_of_op(scores: Tensor) -> int:
    """The size of the top cluster: of equal boxes the first top-ranking one becomes the centre."""
    ascending = scores.sort()[0]
    boxes = torch.tensor(square(0)).repeat(len(scores), 1)
    found = proposal_clusters(
        boxes, ascending[:, None], torch.ones(1, 1), torch.tensor([len(scores)]), method="pcl"
    )
    return len(scores) - int((found.centres == 0).nonzero())


def inertia(scores: np.ndarray, sizes: tuple[int, ...]) -> float:
    """The sum of squared distances to the means of intervals of sorted scores."""
    parts = np.split(np.sort(scores), np.cumsum(sizes)[:-1])
    return sum(((part - part.mean()) ** 2).sum() for part in parts)


def best_inertia(scores: np.ndarray, top: int | None = None) -> float:
    """The least inertia of three intervals, the highest of `top` scores if that is given; by brute force."""
    count = len(scores)
    highs = range(1, count - 1) if top is None else [top]
    return min(
        inertia(scores, (low, count - high - low, high)) for high in highs for low in range(1, count - high)
    )


def test_three_means_is_the_optimum() -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        count = int(draw.integers(3, 12))
        scores = draw.random(count) ** int(draw.choice([1, 4, 20]))
        top = top_count_of_op(torch.from_numpy(scores))
        assert best_inertia(scores, top) == pytest.approx(best_inertia(scores), rel=0, abs=1e-12)


def test_three_means_is_never_worse_than_scikit_learn() -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    draw = np.random.default_rng(0)
    for number in range(60):
        scores = draw.random(int(draw.integers(4, 60))) ** int(draw.choice([1, 4, 20]))
        peer = cluster.KMeans(n_clusters=3, n_init=3, random_state=number).fit(scores[:, None])
        top = top_count_of_op(torch.from_numpy(scores))
        assert best_inertia(scores, top) <= peer.inertia_ + 1e-12


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([0.5], 1),
        ([0.5, 0.5], 2),
        ([0.5, 0.25], 1),
        ([0.5, 0.25, 0.5], 2),
        ([0.125, 0.25, 0.375, 0.5], 1),  # any two neighbours may share a cluster
        ([0.125, 0.25, 0.25, 0.5, 0.5, 0.5], 3),
        ([1e-12, 1e-10, 0.5], 1),  # below 1e-9 scores are equal
        ([1.0, 2.0, 0.5, 0.25], 2),  # above 1 too
    ],
)
def test_three_means_ties(scores: list[float], expected: int) -> None:
    for dtype in (torch.float64, torch.float32):
        values = torch.tensor(scores, dtype=dtype)
        assert top_count_of_op(values) == expected
        values = values.clamp(1e-9, 1 - 1e-9)
        assert int(top_ranking(values, (float(values.min()), float(values.max()))).sum()) == expected


def test_three_means_of_nearly_equal_scores() -> None:
    # what a score differs by, 2^-50, is lost in the sum of squares of the scores themselves
    steps = torch.tensor([0, 1, 2, 10, 11, 12, 30, 31], dtype=torch.float64)
    assert top_count_of_op(0.5 + steps * 2**-50) == 2


# ---- properties ----


@pytest.mark.parametrize("method", METHODS)
def test_images_do_not_touch_each_other(method: str, device: torch.device) -> None:
    case = make_case([40, 0, 70, 1], positive=0.7).to(device)
    whole = proposal_clusters(*case, method=method)
    sizes = case.counts.tolist()
    parts = [
        proposal_clusters(boxes, scores, labels[None], torch.tensor([len(boxes)]), method=method)
        for boxes, scores, labels in zip(
            case.boxes.split(sizes), case.scores.split(sizes), case.image_labels, strict=True
        )
    ]
    assert_same(whole, ProposalClusters(*(torch.cat(field) for field in zip(*parts, strict=True))))


@pytest.mark.parametrize("method", METHODS)
def test_streams_do_not_touch_each_other(method: str, device: torch.device) -> None:
    case = make_case([40, 0, 70, 1], positive=0.7).to(device)
    streams = torch.stack([case.scores, case.scores.flip(0), case.scores.flip(1)]).movedim(0, 1)
    streams = streams.contiguous().movedim(1, 0)  # any strides
    found = proposal_clusters(*case._replace(scores=streams), method=method)
    assert (
        found.labels.shape == found.weights.shape == found.clusters.shape == found.centres.shape == (3, 111)
    )
    for stream, scores in enumerate(streams):
        alone = proposal_clusters(*case._replace(scores=scores), method=method)
        assert_same(ProposalClusters(*(field[stream] for field in found)), alone)
    none = proposal_clusters(*case._replace(scores=streams[:0]), method=method)
    assert none.labels.shape == (0, 111)


@pytest.mark.parametrize("method", METHODS)
def test_ten_repeats_are_equal(method: str, device: torch.device) -> None:
    case = make_case([600, 900], boxes="on a grid", scores="few levels", positive=1).to(device)
    first = proposal_clusters(*case, method=method)
    for _ in range(9):
        assert_same(proposal_clusters(*case, method=method), first)


def test_any_strides(device: torch.device) -> None:
    case = make_case([50, 60]).to(device)
    expected = proposal_clusters(*case, method="pcl")
    rois = torch.cat([torch.zeros(110, 1, device=device), case.boxes], dim=1)
    wide = torch.cat([torch.zeros(110, 1, device=device), case.scores], dim=1)
    every_second = torch.stack([case.counts, case.counts], dim=1).flatten()[::2]
    labels = case.image_labels.t().contiguous().t()
    for boxes in (rois[:, 1:], case.boxes.t().contiguous().t()):
        for scores in (wide[:, 1:], case.scores.t().contiguous().t()):
            assert_same(proposal_clusters(boxes, scores, labels, every_second, method="pcl"), expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64])
def test_labels_of_any_dtype(dtype: torch.dtype, device: torch.device) -> None:
    case = make_case([30]).to(device)
    expected = proposal_clusters(*case, method="oicr")
    assert_same(
        proposal_clusters(*case._replace(image_labels=case.image_labels.to(dtype)), method="oicr"), expected
    )


@pytest.mark.parametrize("method", METHODS)
def test_nothing_to_cluster(method: str, device: torch.device) -> None:
    for counts, num_classes in [([], 3), ([0], 3), ([0, 0], 3), ([4, 0], 0)]:
        found = proposal_clusters(*make_case(counts, num_classes, positive=1).to(device), method=method)
        assert found.labels.tolist() == [0] * sum(counts)
        assert found.weights.tolist() == [0] * sum(counts)
        assert found.clusters.tolist() == found.centres.tolist() == [-1] * sum(counts)


@pytest.mark.parametrize("method", METHODS)
def test_no_positive_class_gives_a_loss_of_zero(method: str, device: torch.device) -> None:
    case = make_case([20], 3, positive=0).to(device)
    found = proposal_clusters(*case, method=method)
    probs = torch.rand(20, 4, device=device, requires_grad=True)
    loss = pcl_loss(probs, found.labels, found.weights, found.clusters)
    (grad,) = torch.autograd.grad(loss, probs)
    assert loss.item() == 0
    assert not grad.any()


@pytest.mark.parametrize("method", METHODS)
def test_more_positive_classes_than_proposals(method: str, device: torch.device) -> None:
    case = make_case([3], 40, positive=1)
    found = proposal_clusters(*case.to(device), method=method)
    assert sorted(found.centres.tolist()) == [0, 1, 2]
    assert_same(found, reference.proposal_clusters(*case, method=method))


def test_centres_have_no_gradient(device: torch.device) -> None:
    case = make_case([30]).to(device)
    found = proposal_clusters(case.boxes, case.scores.requires_grad_(), *case[2:], method="pcl")
    assert not any(tensor.requires_grad for tensor in found)


# ---- the dispatcher ----


@pytest.mark.parametrize("method", range(3))
@pytest.mark.parametrize("dtype", DTYPES)
def test_opcheck(dtype: torch.dtype, method: int, device: torch.device) -> None:
    case = make_case([9, 20], dtype=dtype).to(device)
    case = case._replace(scores=torch.stack([case.scores, case.scores.flip(0)]))
    torch.library.opcheck(OP, (*case, method, 0.4, 5, 0.15, 0.5, 0.1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_full_graph(dynamic: bool, device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(proposal_clusters, fullgraph=True, dynamic=dynamic)
    for sizes in ([5, 9], [11, 8]):
        case = make_case(sizes).to(device)
        assert_same(compiled(*case, method="pcl"), proposal_clusters(*case, method="pcl"))


def test_export(device: torch.device) -> None:
    class Module(torch.nn.Module):
        def forward(self, boxes: Tensor, scores: Tensor, image_labels: Tensor, counts: Tensor):
            return proposal_clusters(boxes, scores, image_labels, counts, method="mist")

    rows, images = torch.export.Dim("rows"), torch.export.Dim("images")
    shapes = {"boxes": {0: rows}, "scores": {0: rows}, "image_labels": {0: images}, "counts": {0: images}}
    program = torch.export.export(Module(), tuple(make_case([5, 9]).to(device)), dynamic_shapes=shapes)
    other = make_case([3, 4, 5]).to(device)
    assert_same(program.module()(*other), proposal_clusters(*other, method="mist"))


# ---- bad input ----


def broken(name: str, index: tuple[int, ...], value: float) -> Case:
    case = make_case([6, 4], 3, positive=1)
    getattr(case, name)[index] = value
    return case


def several_streams(case: Case) -> Case:
    return case._replace(scores=torch.stack([torch.zeros_like(case.scores), case.scores]))


BAD_VALUES = [
    (several_streams(broken("scores", (7, 2), math.nan)), r"scores\[1, 7, 2\], of image 1, is nan, expected"),
    (broken("scores", (7, 2), math.nan), r"scores\[7, 2\], of image 1, is nan, expected a finite number"),
    (broken("scores", (5, 0), math.inf), r"scores\[5, 0\], of image 0, is inf, expected a finite number"),
    (broken("boxes", (6, 2), -1), r"boxes\[6\], of image 1, is \(.*, -1, .*\), expected finite x1 <= x2 and"),
    (
        broken("boxes", (2, 1), 1e6),
        r"boxes\[2\], of image 0, is \(.*\), expected finite x1 <= x2 and y1 <= y2",
    ),
    (broken("boxes", (2, 1), math.nan), r"boxes\[2\], of image 0, is \(.*nan.*\), expected finite x1 <= x2"),
    (broken("boxes", (2, 3), math.inf), r"boxes\[2\], of image 0, is \(.*inf.*\), expected finite x1 <= x2"),
    (broken("image_labels", (1, 2), 2), r"image_labels\[1, 2\] is 2, expected 0 or 1"),
    (broken("image_labels", (0, 1), 0.5), r"image_labels\[0, 1\] is 0.5, expected 0 or 1"),
    (broken("counts", (1,), 5), r"counts\[1\] is 5, expected 0 to the 4 rows of boxes that are left"),
    (broken("counts", (0,), -1), r"counts\[0\] is -1, expected 0 to the 10 rows of boxes that are left"),
    (broken("counts", (1,), 3), r"counts sum to 9, but boxes has 10 rows"),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("case", "message"), BAD_VALUES)
def test_bad_values(
    case: Case, message: str, method: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type == "cuda":  # a GPU checks values on request only; a CPU always
        monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    with pytest.raises(RuntimeError, match=f"^proposal_clusters: {message}"):
        proposal_clusters(*case.to(device), method=method)


def test_more_rows_than_supported(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    case = make_case([65536], 1, positive=1).to(device)
    with pytest.raises(RuntimeError, match=r"^proposal_clusters: counts\[0\] is 65536, expected at most"):
        proposal_clusters(*case, method="oicr")


BAD_ARGUMENTS = [
    ({"boxes": torch.zeros(10)}, r"boxes has shape \(10,\), expected 2 dimensions"),
    ({"boxes": torch.zeros(10, 5)}, r"boxes has shape \(10, 5\), expected \(sum R, 4\)"),
    ({"boxes": torch.zeros(10, 4).half()}, "boxes is Half, expected Float or Double"),
    ({"scores": torch.zeros(10)}, r"scores has shape \(10,\), expected \(S, 10, C\) as boxes"),
    ({"scores": torch.zeros(9, 3)}, r"scores has shape \(1, 9, 3\), expected \(S, 10, C\) as boxes"),
    ({"scores": torch.zeros(10, 3).int()}, "scores is Int, expected Double, Float, Half or BFloat16"),
    ({"image_labels": torch.zeros(3)}, r"image_labels has shape \(3,\), expected 2 dimensions"),
    ({"image_labels": torch.zeros(2, 4)}, r"image_labels has shape \(2, 4\), expected \(B, C\) = \(2, 3\)"),
    ({"image_labels": torch.zeros(1, 3)}, r"image_labels has shape \(1, 3\), expected \(B, C\) = \(2, 3\)"),
    ({"counts": torch.tensor(10)}, r"counts has shape \(\), expected 1 dimensions"),
    ({"counts": torch.tensor([6.0, 4.0])}, "counts is Float, expected Long"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    case = make_case([6, 4], 3)._replace(**changes).to(device)
    with pytest.raises(RuntimeError, match=f"^proposal_clusters: {message}"):
        proposal_clusters(*case, method="pcl")


def test_bad_options() -> None:
    case = make_case([6, 4], 3)
    with pytest.raises(ValueError, match="method is 'wsddn', expected one of pcl, oicr, mist"):
        proposal_clusters(*case, method="wsddn")
    with pytest.raises(ValueError, match="max_centres is 0, expected at least 1"):
        proposal_clusters(*case, method="pcl", max_centres=0)


# ---- on a GPU only ----


@pytest.mark.cuda
@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_cuda_equals_cpu_in_ten_thousand_cases(first: int) -> None:
    for number in range(first, first + 1000):
        case, options = numbered_case(number)
        on_gpu = case.to(cuda)
        if number % 2:
            on_gpu = on_gpu._replace(counts=case.counts)
        assert_same(proposal_clusters(*on_gpu, **options), proposal_clusters(*case, **options))


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("counts_on", ["cpu", "cuda"])
def test_cuda_at_the_largest_size(counts_on: str, method: str) -> None:
    case = make_case([10_000, 9_000, 4_096, 3_000], 80, scores="peaked", positive=0.1, boxes="on a grid")
    on_gpu = case.to(cuda)._replace(counts=case.counts.to(counts_on))
    assert_same(proposal_clusters(*on_gpu, method=method), proposal_clusters(*case, method=method))


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
def test_cuda_without_space_for_the_graph(method: str) -> None:
    case = make_case([50_000, 300], 2, scores="peaked", positive=1)
    case.scores[:50_000:50] = 0.9 + 0.1 * case.scores[:50_000:50]  # the top cluster is of about a thousand
    options = {"method": method, "top_share": 0.02}
    assert_same(proposal_clusters(*case.to(cuda), **options), proposal_clusters(*case, **options))


@pytest.mark.cuda
def test_cuda_many_images() -> None:
    case = make_case([3, 0, 5, 1] * 5_000, 3)
    assert_same(proposal_clusters(*case.to(cuda), method="pcl"), proposal_clusters(*case, method="pcl"))


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
def test_cuda_shows_bad_values_as_nan(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    rows = {"scores": slice(7, 8), "boxes": slice(6, 7), "image_labels": slice(6, 10), "counts": slice(0, 10)}
    for name, index, value in [
        ("scores", (7, 2), math.nan),
        ("scores", (7, 2), -math.inf),
        ("boxes", (6, 2), -1),
        ("boxes", (6, 2), math.nan),
        ("image_labels", (1, 2), 2),
        ("image_labels", (1, 2), math.nan),
        ("counts", (1,), 5),
        ("counts", (1,), 3),
        ("counts", (0,), -1),
        ("counts", (0,), 2**62),
    ]:
        found = proposal_clusters(*broken(name, index, value).to(cuda), method=method)
        assert found.weights[rows[name]].isnan().all()
        assert ((found.labels >= 0) & (found.labels <= 3)).all()
        assert ((found.clusters >= -1) & (found.clusters < 10)).all()
        assert ((found.centres >= -1) & (found.centres < 10)).all()
        if name != "counts":
            assert not found.weights[:6].isnan().any()  # the other image


@pytest.mark.cuda
def test_cuda_counts_on_the_cpu_are_checked() -> None:
    case = broken("counts", (1,), 3)
    on_gpu = case.to(cuda)._replace(counts=case.counts)
    with pytest.raises(RuntimeError, match=r"^proposal_clusters: counts sum to 9, but boxes has 10 rows"):
        proposal_clusters(*on_gpu, method="pcl")


@pytest.mark.cuda
def test_cuda_arguments_on_two_devices() -> None:
    case = make_case([6, 4], 3)
    with pytest.raises(RuntimeError, match=r"^proposal_clusters: scores is on cpu, but boxes is on cuda:0"):
        proposal_clusters(*case.to(cuda)._replace(scores=case.scores), method="pcl")
    expected = proposal_clusters(*case, method="pcl")  # labels and counts may be anywhere
    mixed = case.to(cuda)._replace(counts=case.counts, image_labels=case.image_labels)
    assert_same(proposal_clusters(*mixed, method="pcl"), expected)
    mixed = case._replace(counts=case.counts.to(cuda), image_labels=case.image_labels.to(cuda))
    assert_same(proposal_clusters(*mixed, method="pcl"), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("counts_on", ["cpu", "cuda"])
def test_cuda_host_never_waits(counts_on: str) -> None:
    case = make_case([300, 200]).to(cuda)
    case = case._replace(counts=case.counts.to(counts_on))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for method in METHODS:
            proposal_clusters(*case, method=method)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
def test_cuda_second_stream() -> None:
    case = make_case([3000, 2000], scores="peaked").to(cuda)
    expected = proposal_clusters(*case, method="pcl")
    stream = torch.cuda.Stream()
    busy = torch.zeros(4096, 4096, device=cuda)
    scores = torch.zeros_like(case.scores)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            busy = busy @ busy
        scores.copy_(case.scores)  # late on this stream: a kernel on another stream would read zeros
        actual = proposal_clusters(*case._replace(scores=scores), method="pcl")
    torch.cuda.synchronize()
    assert_same(actual, expected)


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
def test_cuda_graph(method: str) -> None:
    case = make_case([300, 200], positive=1).to(cuda)
    other = make_case([210, 290], positive=1, scores="peaked", seed=1).to(cuda)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        proposal_clusters(*case, method=method)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = proposal_clusters(*case, method=method)
    for tensor, replacement in zip(case, other, strict=True):
        tensor.copy_(replacement)
    graph.replay()
    assert_same(captured, proposal_clusters(*other, method=method))


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
def test_cuda_launches_do_not_depend_on_the_batch(method: str) -> None:
    launches = []
    for counts, positive in [([500], 0.0), ([500], 1.0), ([200] * 10, 1.0)]:
        case = make_case(counts, positive=positive).to(cuda)
        proposal_clusters(*case, method=method)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            proposal_clusters(*case, method=method)
        launches.append(sum("_kernel" in event.name for event in profile.events()))
    assert launches == [launches[0]] * 3
    assert launches[0] <= 3


@pytest.mark.cuda
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(method: str, dtype: torch.dtype) -> None:
    case = make_case([40, 0, 1100], 2, positive=1, dtype=dtype, boxes="on a grid")
    case = several_streams(case)
    assert_same(proposal_clusters(*case.to(cuda), method=method), proposal_clusters(*case, method=method))
