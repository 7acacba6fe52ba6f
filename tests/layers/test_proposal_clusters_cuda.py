"""proposal_clusters on a GPU: the same results as on the CPU, invalid values, streams, graphs."""

import math
from functools import partial

import op_contract
import pytest
import torch
from cluster_cases import METHODS, assert_same, broken, make_case, numbered_case, several_streams
from op_contract import DTYPES

from detector.layers import proposal_clusters

cuda = torch.device("cuda")
pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("first", range(0, 10_000, 1000))
def test_cuda_equals_cpu_in_ten_thousand_cases(first: int) -> None:
    for number in range(first, first + 1000):
        case, options = numbered_case(number)
        on_gpu = case.to(cuda)
        if number % 2:
            on_gpu = on_gpu._replace(counts=case.counts)
        assert_same(proposal_clusters(*on_gpu, **options), proposal_clusters(*case, **options))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("counts_on", ["cpu", "cuda"])
def test_cuda_at_the_largest_size(counts_on: str, method: str) -> None:
    case = make_case([10_000, 9_000, 4_096, 3_000], 80, scores="peaked", positive=0.1, boxes="on a grid")
    on_gpu = case.to(cuda)._replace(counts=case.counts.to(counts_on))
    assert_same(proposal_clusters(*on_gpu, method=method), proposal_clusters(*case, method=method))


@pytest.mark.parametrize("method", METHODS)
def test_cuda_scores_larger_than_shared_memory(method: str) -> None:
    case = make_case([50_000, 300], 2, scores="peaked", positive=1)
    case.scores[:50_000:50] = 0.9 + 0.1 * case.scores[:50_000:50]  # the top cluster has about 1,000 members
    options = {"method": method, "top_share": 0.02}
    assert_same(proposal_clusters(*case.to(cuda), **options), proposal_clusters(*case, **options))


@pytest.mark.parametrize("method", ["pcl", "mist"])
@pytest.mark.parametrize("boxes", ["anywhere", "on a grid"])
def test_cuda_graph_larger_than_shared_memory(boxes: str, method: str) -> None:
    """Every row is a node, and several blocks share an image because there are few."""
    case = make_case([6500, 5900], 2, boxes=boxes, scores="all equal", positive=1)
    options = {"method": method, "top_share": 1.0}
    assert_same(proposal_clusters(*case.to(cuda), **options), proposal_clusters(*case, **options))


@pytest.mark.parametrize("method", ["pcl", "mist"])
def test_cuda_graph_larger_than_its_workspace(method: str) -> None:
    """With this many images, the workspace per image is less than the graph of the only image with rows."""
    case = make_case([3000] + [0] * 20_000, 1, scores="all equal", positive=1)
    options = {"method": method, "top_share": 1.0}
    assert_same(proposal_clusters(*case.to(cuda), **options), proposal_clusters(*case, **options))


@pytest.mark.parametrize("num_images", [1, 6, 20, 60, 200])
def test_cuda_cluster_sizes(num_images: int) -> None:
    case = make_case([1] + [300] * num_images, 2, boxes="on a grid", positive=1)
    for method in METHODS:
        expected = proposal_clusters(*case, method=method)
        assert_same(proposal_clusters(*case.to(cuda), method=method), expected)


def test_cuda_many_images() -> None:
    case = make_case([3, 0, 5, 1] * 5_000, 3)
    assert_same(proposal_clusters(*case.to(cuda), method="pcl"), proposal_clusters(*case, method="pcl"))


@pytest.mark.parametrize("method", METHODS)
def test_cuda_invalid_values_give_nan_weights(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert ((found.centers >= -1) & (found.centers < 10)).all()
        if name != "counts":
            assert not found.weights[:6].isnan().any()  # the other image


def test_cuda_counts_on_the_cpu_are_checked() -> None:
    case = broken("counts", (1,), 3)
    on_gpu = case.to(cuda)._replace(counts=case.counts)
    with pytest.raises(RuntimeError, match=r"^proposal_clusters: counts sum to 9, but boxes has 10 rows"):
        proposal_clusters(*on_gpu, method="pcl")


def test_cuda_mixed_devices_raise() -> None:
    case = make_case([6, 4], 3)
    with pytest.raises(RuntimeError, match=r"^proposal_clusters: scores is on cpu, but boxes is on cuda:0"):
        proposal_clusters(*case.to(cuda)._replace(scores=case.scores), method="pcl")
    expected = proposal_clusters(*case, method="pcl")  # labels and counts may be anywhere
    mixed = case.to(cuda)._replace(counts=case.counts, image_labels=case.image_labels)
    assert_same(proposal_clusters(*mixed, method="pcl"), expected)
    mixed = case._replace(counts=case.counts.to(cuda), image_labels=case.image_labels.to(cuda))
    assert_same(proposal_clusters(*mixed, method="pcl"), expected)


@pytest.mark.parametrize("method", METHODS)
def test_cuda_synchronization_streams_and_graphs(method: str) -> None:
    function = partial(proposal_clusters, method=method)
    case = make_case([300, 200], positive=1)
    other = make_case([210, 290], positive=1, scores="peaked", seed=1).to(cuda)
    on_gpu = case.to(cuda)
    op_contract.assert_no_synchronization(function, on_gpu)
    op_contract.assert_no_synchronization(function, on_gpu._replace(counts=case.counts))
    op_contract.assert_uses_current_stream(function, on_gpu)
    op_contract.assert_graph_capture(function, on_gpu, other)


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


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(method: str, dtype: torch.dtype) -> None:
    case = make_case([40, 0, 1100], 2, positive=1, dtype=dtype, boxes="on a grid")
    case = several_streams(case)
    assert_same(proposal_clusters(*case.to(cuda), method=method), proposal_clusters(*case, method=method))
