"""proposal_clusters: bitwise comparison with its reference."""

from pathlib import Path

import numpy as np
import pytest
import torch
from cluster_cases import BOXES, METHODS, SCORES, Case, assert_same, make_case, numbered_case
from hypothesis import given, settings
from hypothesis import strategies as st
from op_contract import DTYPES

from detector.layers import ProposalClusters, pcl_loss, proposal_clusters, reference


def square(x: float) -> list[float]:
    return [float(x), 0.0, x + 10.0, 10.0]


def test_pcl_by_hand(device: torch.device) -> None:
    boxes = torch.tensor(
        [
            *(square(0), square(1), square(2)),  # a group of three
            *(square(100), square(101)),  # a group of two
            square(200),  # alone
            *(square(4), square(8)),  # near the first group, low scores
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
        max_centers=2,
    )
    # Six rows are in the top cluster. Row 0 (degree 3) is selected with the weight of row 2, then row 3.
    assert found.centers.tolist() == [0, -1, -1, 1, -1, -1, -1, -1, -1]
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
    # Row 0, selected by the first class, is not available to the third class.
    assert found.centers.tolist() == [0, 1, -1]
    assert found.labels.tolist() == [1, 3, 0]
    assert torch.equal(found.weights.cpu(), torch.tensor([0.9, 0.7, 0]))


def test_ignore_cover_by_hand(device: torch.device) -> None:
    whole, most = [-10.0, -10, 20, 20], [1.0, 0, 30, 10]  # cover all and 9/10 of square(0)
    boxes = torch.tensor([square(0), whole, most, square(1), square(8), square(100)], device=device)
    scores = torch.tensor([0.9, 0.5, 0.5, 0.5, 0.5, 0.5], device=device)[:, None]
    case = (boxes, scores, torch.ones(1, 1, device=device), torch.tensor([6]))
    weights = {}
    for share, least in ((0, 0), (0.9, 0), (0.95, 0), (0.9, 0.2)):
        found = proposal_clusters(*case, method="oicr", ignore_cover=share, cover_iou=least)
        assert found.labels.tolist() == [1, 0, 0, 1, 0, 0]
        weights[share, least] = [round(weight, 1) for weight in found.weights.tolist()]
    # square(1) covers 9/10 too, but is a member; square(8) covers too little.
    assert weights[0, 0] == [0.9, 0.9, 0.9, 0.9, 0.9, 0]
    assert weights[0.9, 0] == [0.9, 0, 0, 0.9, 0.9, 0]
    assert weights[0.95, 0] == [0.9, 0, 0.9, 0.9, 0.9, 0]
    # The IoU of `whole` with the center is 0.11, that of `most` 0.3.
    assert weights[0.9, 0.2] == [0.9, 0.9, 0, 0.9, 0.9, 0]


def test_empty_center_is_never_covered(device: torch.device) -> None:
    boxes = torch.tensor([[5.0, 5, 5, 9], square(0)], device=device)
    scores = torch.tensor([[0.9], [0.1]], device=device)
    case = (boxes, scores, torch.ones(1, 1, device=device), torch.tensor([2]))
    found = proposal_clusters(*case, method="oicr", ignore_iou=0.0, ignore_cover=0.5)
    assert found.weights.tolist() == pytest.approx([0.9, 0.9])


def test_mist_by_hand(device: torch.device) -> None:
    boxes = torch.tensor([square(10 * x) for x in (0, 0.5, 3, 3.9, 6, 9)], device=device)
    scores = torch.tensor([[0.5], [0.6], [0.7], [0.7], [0.6], [0.1]], device=device)
    case = (boxes, scores, torch.ones(1, 1, device=device), torch.tensor([6]))
    # By score: rows 2, 3, 1, 4 | 0, 5. Only rows 0 and 1 have an IoU greater than 0.2.
    found = proposal_clusters(*case, method="mist", top_share=0.6)
    assert found.centers.tolist() == [-1, 2, 0, 1, 3, -1]
    found = proposal_clusters(*case, method="mist", top_share=1.0)
    assert found.centers.tolist() == [-1, 2, 0, 1, 3, 4]
    found = proposal_clusters(*case, method="mist", top_share=0.1, nms_iou=0.0)
    assert found.centers.tolist() == [-1, -1, 0, -1, -1, -1]


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
            "max_centers": st.integers(1, 6),
            "nms_iou": st.sampled_from([0.2, 0.5]),
            "top_share": st.sampled_from([0.15, 0.5, 1.0]),
            "member_iou": st.sampled_from([0.5, 0.6]),
            "ignore_iou": st.sampled_from([0.0, 0.1]),
            "ignore_cover": st.sampled_from([0.0, 0.5, 1.0]),
            "cover_iou": st.sampled_from([0.0, 0.25]),
        }
    ),
)
@settings(max_examples=150, deadline=None)
def test_equals_reference(
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


def test_equals_reference_in_numbered_cases() -> None:
    for number in range(400):
        case, options = numbered_case(number)
        assert_same(proposal_clusters(*case, **options), reference.proposal_clusters(*case, **options))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scores", ["even", "all equal", "saturated"])
def test_equals_reference_at_a_real_size(scores: str, method: str, device: torch.device) -> None:
    counts = [200, 400] if scores == "all equal" else [700, 1300]  # the reference takes time by the edges
    case = make_case(counts, 3, boxes="on a grid", scores=scores, positive=1)
    expected = reference.proposal_clusters(*case, method=method)
    assert_same(proposal_clusters(*case.to(device), method=method), expected)


@pytest.mark.parametrize("method", METHODS)
def test_equals_reference_on_recorded_score_maps(method: str, device: torch.device) -> None:
    """Scores of a detector trained on Toybox, recorded by data/record_score_maps.py."""
    with np.load(Path(__file__).with_name("data") / "score_maps.npz") as file:
        maps = {name: torch.from_numpy(file[name]) for name in file.files}
    scores = torch.cat([maps["mil"][None], maps["refinements"][:-1, :, 1:]])  # (S, sum R, C)
    case = Case(maps["boxes"], scores, maps["image_labels"], maps["counts"])
    found = proposal_clusters(*case.to(device), method=method)
    assert (found.clusters >= 0).any()
    assert_same(found, reference.proposal_clusters(*case, method=method))


# ---- properties ----


@pytest.mark.parametrize("method", METHODS)
def test_images_are_independent(method: str, device: torch.device) -> None:
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
def test_streams_are_independent(method: str, device: torch.device) -> None:
    case = make_case([40, 0, 70, 1], positive=0.7).to(device)
    streams = torch.stack([case.scores, case.scores.flip(0), case.scores.flip(1)]).movedim(0, 1)
    streams = streams.contiguous().movedim(1, 0)  # any strides
    found = proposal_clusters(*case._replace(scores=streams), method=method)
    assert (
        found.labels.shape == found.weights.shape == found.clusters.shape == found.centers.shape == (3, 111)
    )
    for stream, scores in enumerate(streams):
        alone = proposal_clusters(*case._replace(scores=scores), method=method)
        assert_same(ProposalClusters(*(field[stream] for field in found)), alone)
    none = proposal_clusters(*case._replace(scores=streams[:0]), method=method)
    assert none.labels.shape == (0, 111)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64])
def test_labels_of_any_dtype(dtype: torch.dtype, device: torch.device) -> None:
    case = make_case([30]).to(device)
    expected = proposal_clusters(*case, method="oicr")
    assert_same(
        proposal_clusters(*case._replace(image_labels=case.image_labels.to(dtype)), method="oicr"), expected
    )


@pytest.mark.parametrize("method", METHODS)
def test_empty(method: str, device: torch.device) -> None:
    for counts, num_classes in [([], 3), ([0], 3), ([0, 0], 3), ([4, 0], 0)]:
        found = proposal_clusters(*make_case(counts, num_classes, positive=1).to(device), method=method)
        assert found.labels.tolist() == [0] * sum(counts)
        assert found.weights.tolist() == [0] * sum(counts)
        assert found.clusters.tolist() == found.centers.tolist() == [-1] * sum(counts)


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
    assert sorted(found.centers.tolist()) == [0, 1, 2]
    assert_same(found, reference.proposal_clusters(*case, method=method))
