"""pcl_loss against its plain twin in float64, and all that every op promises."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import detector.layers
from detector import _C
from detector.layers import PCLLoss, pcl_loss, pcl_loss_compat, reference

cuda = torch.device("cuda")
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
FORWARD = torch.ops.detector.pcl_loss_forward.default
BACKWARD = torch.ops.detector.pcl_loss_backward.default


class Case(NamedTuple):
    """The arguments of pcl_loss."""

    probs: Tensor
    labels: Tensor
    weights: Tensor
    clusters: Tensor
    counts: Tensor | None = None


def make_case(
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float64,
    *,
    counts: list[int] | None = None,
    num_rows: int = 37,
    num_classes: int = 5,
    num_clusters: int = 4,
    seed: int = 0,
) -> Case:
    """Random rows of one image or, with counts, of several; a third background, cluster ids with gaps."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [num_rows] if counts is None else counts
    labels, clusters = [torch.zeros(0, dtype=torch.int64)], [torch.zeros(0, dtype=torch.int64)]
    for size in sizes:
        ids = torch.randperm(max(size, 1), generator=generator)[:num_clusters]
        classes = torch.randint(1, num_classes + 1, (len(ids),), generator=generator)
        choice = torch.randint(-(len(ids) // 2) - 1, len(ids), (size,), generator=generator)
        member = choice >= 0
        clusters.append(torch.where(member, ids[choice], -1))
        labels.append(torch.where(member, classes[choice], 0))
    rows = sum(sizes)
    probs = torch.randn(rows, num_classes + 1, generator=generator, dtype=torch.float64).softmax(dim=1)
    weights = torch.rand(rows, generator=generator, dtype=torch.float64)
    return Case(
        probs.to(device, dtype),
        torch.cat(labels).to(device),
        weights.to(device, dtype),
        torch.cat(clusters).to(device),
        None if counts is None else torch.tensor(counts, dtype=torch.int64),
    )


def loss_and_grad(case: Case, upstream: Tensor | None = None, function=pcl_loss) -> tuple[Tensor, Tensor]:
    probs = case.probs.detach().requires_grad_()
    loss = function(probs, *case[1:])
    upstream = torch.ones_like(loss) if upstream is None else upstream
    return loss.detach(), torch.autograd.grad(loss, probs, upstream)[0]


def in_float64(case: Case) -> Case:
    return case._replace(probs=case.probs.double(), weights=case.weights.double())


def assert_matches_twin(case: Case, upstream: Tensor | None = None) -> None:
    """Loss and gradient as the twin computes them in float64 from the same numbers."""
    exact_upstream = None if upstream is None else upstream.double()
    expected = loss_and_grad(in_float64(case), exact_upstream, reference.pcl_loss)
    actual = loss_and_grad(case, upstream)
    # torch's own tolerances of a dtype, wider in float32 for sums in another order
    tolerance = {"rtol": 2e-6, "atol": 1e-6} if case.probs.dtype == torch.float32 else {}
    torch.testing.assert_close(actual, tuple(t.to(case.probs.dtype) for t in expected), **tolerance)


# ---- what it computes ----


def test_by_hand(device: torch.device) -> None:
    probs = [[0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.6, 0.2, 0.2], [0.5, 0.1, 0.4]]
    case = Case(
        torch.tensor(probs, dtype=torch.float64, device=device),
        torch.tensor([1, 1, 0, 2], device=device),
        torch.tensor([0.5, 0.3, 0.2, 0.9], dtype=torch.float64, device=device),
        torch.tensor([1, 1, -1, 3], device=device),
    )
    loss, grad = loss_and_grad(case)
    logs = torch.tensor([0.5, 0.6, 0.4], dtype=torch.float64).log()  # (0.7 + 0.3) / 2, background, 0.4
    assert loss.item() == pytest.approx(-(0.8 * logs[0] + 0.2 * logs[1] + 0.9 * logs[2]).item() / 4)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    expected[0, 1] = expected[1, 1] = -0.8 / (2 * 0.5) / 4
    expected[2, 0] = -0.2 / 0.6 / 4
    expected[3, 2] = -0.9 / 0.4 / 4
    torch.testing.assert_close(grad.cpu(), expected)


@pytest.mark.parametrize("counts", [None, [20], [11, 0, 30, 1]])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matches_twin(dtype: torch.dtype, counts: list[int] | None, device: torch.device) -> None:
    assert_matches_twin(make_case(device, dtype, counts=counts))


@pytest.mark.parametrize("num_rows", [1, 31, 33, 1025, 5000])
def test_matches_twin_at_many_sizes(num_rows: int, device: torch.device) -> None:
    assert_matches_twin(make_case(device, torch.float32, num_rows=num_rows, num_classes=20, num_clusters=50))


def test_more_clusters_than_warps(device: torch.device) -> None:
    assert_matches_twin(make_case(device, torch.float32, num_rows=700, num_clusters=700))


def test_upstream_gradient(device: torch.device) -> None:
    case = make_case(device, counts=[11, 8, 30])
    assert_matches_twin(case, torch.tensor([2.5, -0.5, 0], device=device, dtype=torch.float64))
    assert_matches_twin(make_case(device), torch.tensor(1024.0, device=device, dtype=torch.float64))


@pytest.mark.parametrize("counts", [None, [4, 0, 7]])
def test_gradcheck(counts: list[int] | None, device: torch.device) -> None:
    case = make_case(device, counts=counts, num_rows=11)
    probs = case.probs.requires_grad_()
    assert torch.autograd.gradcheck(lambda p: pcl_loss(p, *case[1:]), probs, nondet_tol=0.0)


def test_second_derivative_is_refused(device: torch.device) -> None:
    case = make_case(device)
    probs = case.probs.requires_grad_()
    (grad,) = torch.autograd.grad(pcl_loss(probs, *case[1:]), probs, create_graph=True)
    with pytest.raises(NotImplementedError, match="pcl_loss has no second derivative"):
        grad.pow(2).sum().backward()


def test_only_probs_get_a_gradient(device: torch.device) -> None:
    case = make_case(device)
    weights = case.weights.requires_grad_()
    loss = pcl_loss(case.probs.requires_grad_(), case.labels, weights, case.clusters)
    loss.backward()
    assert case.probs.grad is not None
    assert weights.grad is None


def test_probabilities_are_clamped(device: torch.device) -> None:
    case = make_case(device)
    case.probs[::2] = 0
    assert_matches_twin(case)
    case.probs.zero_()
    loss, grad = loss_and_grad(case)
    torch.testing.assert_close(loss, -torch.tensor(1e-9).log() * case.weights.mean(), check_dtype=False)
    assert not grad.any()


@pytest.mark.parametrize("kept", ["background", "members"])
def test_only_background_or_only_members(kept: str, device: torch.device) -> None:
    case = make_case(device)
    background = case.clusters == -1
    if kept == "background":
        case.labels.zero_(), case.clusters.fill_(-1)
    else:
        row = (~background).nonzero()[0]
        case.labels[background], case.clusters[background] = case.labels[row], case.clusters[row]
    assert_matches_twin(case)


def test_empty(device: torch.device) -> None:
    for counts, shape in [(None, ()), ([], (0,)), ([0, 0], (2,))]:
        loss, grad = loss_and_grad(make_case(device, num_rows=0, counts=counts))
        assert torch.equal(loss.cpu(), torch.zeros(shape, dtype=torch.float64))
        assert grad.shape == (0, 6)
    background_only = make_case(device, num_rows=8, num_classes=5)
    probs, zeros = background_only.probs[:, :1], torch.zeros(8, dtype=torch.int64, device=device)
    assert_matches_twin(Case(probs, zeros, background_only.weights, zeros - 1))


def test_counts_may_be_on_any_device(device: torch.device) -> None:
    case = make_case(device, counts=[11, 8])
    moved = case._replace(counts=case.counts.to(device))
    assert torch.equal(pcl_loss(*case), pcl_loss(*moved))


def test_module_is_the_function() -> None:
    case = make_case()
    assert torch.equal(PCLLoss()(*case), pcl_loss(*case))
    assert repr(PCLLoss()) == "PCLLoss()"


# ---- layouts ----


def strided_copies(tensor: Tensor) -> dict[str, Tensor]:
    """The same values in other strides."""
    doubled = torch.stack([tensor, torch.zeros_like(tensor)], dim=-1)
    copies = {"sliced": doubled[..., 0], "offset": torch.cat([tensor[:1], tensor])[1:]}
    if tensor.dim() == 2:
        copies["transposed"] = tensor.t().contiguous().t()
    return copies


@pytest.mark.parametrize("name", ["probs", "labels", "weights", "clusters", "counts"])
def test_any_strides(name: str, device: torch.device) -> None:
    case = make_case(device, counts=[11, 26])
    expected = loss_and_grad(case)
    for layout, copy in strided_copies(getattr(case, name)).items():
        actual = loss_and_grad(case._replace(**{name: copy}))
        assert all(map(torch.equal, actual, expected)), layout


def test_expanded_inputs_and_gradients(device: torch.device) -> None:
    case = make_case(device, counts=[11, 26])
    expanded = case._replace(probs=case.probs[:1].expand(37, -1), weights=case.weights[:1].expand(37))
    assert_matches_twin(expanded)
    upstream = torch.full((1,), 3.0, dtype=torch.float64, device=device)
    expected = loss_and_grad(case, upstream.repeat(2))
    assert all(map(torch.equal, loss_and_grad(case, upstream.expand(2)), expected))
    every_other = torch.tensor([3.0, 7, 3, 7], dtype=torch.float64, device=device)[::2]
    assert all(map(torch.equal, loss_and_grad(case, every_other), expected))


# ---- the same bits ----


@pytest.mark.parametrize("dtype", DTYPES)
def test_ten_repeats_are_bitwise_equal(dtype: torch.dtype, device: torch.device) -> None:
    case = make_case(device, dtype, counts=[2000, 1500], num_classes=20, num_clusters=15)
    first = loss_and_grad(case)
    for _ in range(9):
        assert all(map(torch.equal, loss_and_grad(case), first))


def test_bits_do_not_depend_on_threads() -> None:
    case = make_case(dtype=torch.float32, counts=[5000, 4000, 6000])
    one = loss_and_grad(case)
    torch.set_num_threads(3)
    try:
        assert all(map(torch.equal, loss_and_grad(case), one))
    finally:
        torch.set_num_threads(1)


def test_an_image_does_not_see_its_batch(device: torch.device) -> None:
    case = make_case(device, torch.float32, counts=[300, 200])
    losses, grad = loss_and_grad(case)
    for loss, part, rows in zip(losses, grad.split([300, 200]), (slice(300), slice(300, 500)), strict=True):
        alone, alone_grad = loss_and_grad(Case(*(tensor[rows] for tensor in case[:4])))
        assert torch.equal(alone, loss)
        assert torch.equal(alone_grad, part)


# ---- torch's machinery ----


@pytest.mark.parametrize("counts", [None, [5, 0, 9]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(dtype: torch.dtype, counts: list[int] | None, device: torch.device) -> None:
    case = make_case(device, dtype, counts=counts, num_rows=14)
    case = case._replace(counts=None if counts is None else case.counts.to(device))
    _, slopes = FORWARD(*case)
    loss = pcl_loss(*case)
    torch.library.opcheck(FORWARD, (case.probs.clone().requires_grad_(), *case[1:]))
    # opcheck would differentiate the gradient, which is refused: so no argument requires one
    torch.library.opcheck(BACKWARD, (torch.ones_like(loss), case.probs, case.labels, slopes, case.counts))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_full_graph(dynamic: bool, device: torch.device) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(pcl_loss, fullgraph=True, dynamic=dynamic)
    for sizes in ([5, 9], [11, 8]):
        for case in (make_case(device, counts=sizes), make_case(device, num_rows=sum(sizes))):
            expected = loss_and_grad(case)
            torch.testing.assert_close(loss_and_grad(case, function=compiled), expected, rtol=0, atol=0)


def test_export(device: torch.device) -> None:
    case = make_case(device, counts=[5, 9])
    rows, images = torch.export.Dim("rows"), torch.export.Dim("images")
    shapes = {"probs": {0: rows}, "labels": {0: rows}, "weights": {0: rows}, "clusters": {0: rows}}
    program = torch.export.export(PCLLoss(), tuple(case), dynamic_shapes={**shapes, "counts": {0: images}})
    other = make_case(device, counts=[3, 4, 5])
    assert torch.equal(program.module()(*other), pcl_loss(*other))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_autocast_keeps_the_dtype_and_computes_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    case = make_case(device, dtype)
    mixed = case._replace(weights=case.weights.float())  # autocast brings both to float32
    with torch.autocast(device.type, torch.bfloat16):
        loss, grad = loss_and_grad(mixed)
    assert loss.dtype == grad.dtype == dtype
    assert torch.equal(loss, pcl_loss(mixed.probs.float(), *mixed[1:]).to(dtype))


# ---- bad input ----


def broken(name: str, index: int, value: float) -> Case:
    """Background (4 rows), cluster 0 of class 1 (3 rows), cluster 2 of class 3 (3 rows); one bad value."""
    case = Case(
        torch.full((10, 4), 0.25),
        torch.tensor([0, 0, 0, 0, 1, 1, 1, 3, 3, 3]),
        torch.ones(10),
        torch.tensor([-1, -1, -1, -1, 0, 0, 0, 2, 2, 2]),
    )
    getattr(case, name)[index] = value
    return case


def miscounted(*counts: int) -> Case:
    return broken("weights", 0, 1)._replace(counts=torch.tensor(counts))


BAD_VALUES = [
    (broken("labels", 4, 4), r"labels\[4\] is 4, expected 0 \(background\) to 3"),
    (broken("labels", 4, -1), r"labels\[4\] is -1, expected 0 \(background\) to 3"),
    (broken("labels", 1, 2), r"labels\[1\] is 2, expected 0, because clusters\[1\] is -1 \(background\)"),
    (broken("labels", 4, 0), r"labels\[4\] is 0 \(background\), expected a class, because clusters\[4\] is"),
    (broken("labels", 8, 2), r"labels\[8\] is 2, expected 3 as in the other members of cluster 2 of image 0"),
    (broken("clusters", 5, 10), r"clusters\[5\] is 10, expected -1 .* image 0, which has 10 rows: 0 to 9"),
    (broken("clusters", 5, -2), r"clusters\[5\] is -2, expected -1"),
    (broken("probs", 4, torch.nan), r"probs\[4, 1\] is nan, expected a finite number"),
    (broken("probs", 4, torch.inf), r"probs\[4, 1\] is inf, expected a finite number"),
    (broken("weights", 9, torch.nan), r"weights\[9\] is nan, expected a finite number"),
    (broken("weights", 9, -torch.inf), r"weights\[9\] is -inf, expected a finite number"),
    (miscounted(4, 5), r"counts sum to 9, but probs has 10 rows"),
    (miscounted(4, 7), r"counts\[1\] is 7, expected 0 to the 6 rows of probs that are left"),
    (miscounted(-1, 11), r"counts\[0\] is -1, expected 0 to the 10 rows"),
    (miscounted(9, 1), r"clusters\[9\] is 2, expected -1 .* image 1, which has 1 rows"),
]


@pytest.mark.parametrize(("case", "message"), BAD_VALUES)
def test_bad_values(case: Case, message: str, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")  # a GPU checks values on request only; a CPU always
    case = Case(*(None if tensor is None else tensor.to(device) for tensor in case))
    with pytest.raises(RuntimeError, match=f"^pcl_loss: {message}"):
        pcl_loss(*case)


def test_cpu_checks_values_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    with pytest.raises(RuntimeError, match="pcl_loss: labels"):
        pcl_loss(*broken("labels", 4, 4))


BAD_ARGUMENTS = [
    ({"probs": torch.zeros(37)}, r"probs has shape \(37,\), expected 2 dimensions"),
    ({"probs": torch.zeros(37, 0)}, r"probs has shape \(37, 0\), expected \(R, C \+ 1\)"),
    ({"probs": torch.zeros(37, 6).int(), "weights": torch.zeros(37).int()}, "probs is Int, expected Double"),
    ({"labels": torch.zeros(36, dtype=torch.int64)}, r"labels has shape \(36,\), expected \(37,\)"),
    ({"labels": torch.zeros(37)}, "labels is Float, expected Long"),
    ({"weights": torch.zeros(37, 1)}, r"weights has shape \(37, 1\), expected \(37,\)"),
    ({"weights": torch.zeros(37)}, "weights is Float, expected Double"),
    ({"clusters": torch.zeros(38, dtype=torch.int64)}, r"clusters has shape \(38,\), expected \(37,\)"),
    ({"clusters": torch.zeros(37, dtype=torch.int32)}, "clusters is Int, expected Long"),
    ({"counts": torch.tensor(37)}, r"counts has shape \(\), expected 1 dimensions"),
    ({"counts": torch.tensor([37.0])}, "counts is Float, expected Long"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS)
def test_bad_arguments(changes: dict[str, Tensor], message: str, device: torch.device) -> None:
    case = make_case(device)._replace(**{name: tensor.to(device) for name, tensor in changes.items()})
    with pytest.raises(RuntimeError, match=f"^pcl_loss: {message}"):
        pcl_loss(*case)


def test_bad_backward_arguments(device: torch.device) -> None:
    case = make_case(device)
    loss, slopes = _C.pcl_loss_forward(*case)
    for arguments, message in [
        (
            (loss[None], case.probs, case.labels, slopes, None),
            r"grad has shape \(1,\), expected 0 dimensions",
        ),
        ((loss.float(), case.probs, case.labels, slopes, None), "grad is Float, expected Double"),
        ((loss, case.probs, case.labels, slopes.float(), None), "slopes is Float, expected Double"),
        ((loss, case.probs, case.labels, slopes[1:], None), r"slopes has shape \(36,\), expected \(37,\)"),
        ((loss, case.probs, case.labels[1:], slopes, None), r"labels has shape \(36,\), expected \(37,\)"),
    ]:
        with pytest.raises(RuntimeError, match=f"^pcl_loss_backward: {message}"):
            _C.pcl_loss_backward(*arguments)


# ---- the nine tensors of the original op ----


def original_loss(
    probs, labels, weights, assignment, pc_labels, _pc_probs, _pc_count, pc_weights, im_labels
) -> Tensor:
    """The original's formula, one term at a time, with the cluster means taken from probs."""
    total = probs.new_zeros(())
    for r in range(len(probs)):
        if labels[r] == 0 and im_labels[0]:
            total = total - weights[r] * probs[r, 0].log()
    for n, label in enumerate(pc_labels.long()):
        if im_labels[label]:
            total = total - pc_weights[n] * probs[(assignment == n) & (labels > 0), label].mean().log()
    return total / len(probs)


@pytest.mark.parametrize("hidden", [None, 0, 2])
def test_compat_equals_the_original(hidden: int | None, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(8, 4, generator=generator, dtype=torch.float64).softmax(dim=1)
    im_labels = torch.ones(4)
    if hidden is not None:
        im_labels[hidden] = 0
    vectors = [
        torch.tensor([0.0, 1, 1, 2, 2, 2, 0, 3]),  # labels
        torch.rand(8, generator=generator, dtype=torch.float64),  # cls_loss_weights
        torch.tensor([2.0, 0, 0, 1, 1, 1, -1, 2]),  # gt_assignment
        torch.tensor([1.0, 2, 3]),  # pc_labels
        torch.zeros(3),  # pc_probs, not read
        torch.tensor([2.0, 3, 1]),  # pc_count
        torch.tensor([0.7, 0.2, 1.5], dtype=torch.float64),  # img_cls_loss_weights
        im_labels,
    ]
    probs = probs.to(device).requires_grad_()
    vectors = [vector.to(device) for vector in vectors]
    expected = original_loss(probs, *vectors)
    expected_grad = torch.autograd.grad(expected * 3, probs)
    for arguments in (vectors, [vector[None] for vector in vectors]):  # (N,) and (1, N)
        loss = pcl_loss_compat(probs, *arguments)
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(torch.autograd.grad(loss * 3, probs), expected_grad)


def test_all_names_are_there() -> None:
    assert all(hasattr(detector.layers, name) for name in detector.layers.__all__)
    assert detector.layers.ROIPool is detector.layers.RoIPool
    assert detector.layers.ROIAlign is detector.layers.RoIAlign


# ---- on a GPU only ----


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_equals_cpu(dtype: torch.dtype) -> None:
    case = make_case("cpu", dtype, counts=[2000, 0, 1500], num_classes=20, num_clusters=15)
    expected = loss_and_grad(case)
    actual = loss_and_grad(Case(*(tensor.to(cuda) for tensor in case)))
    torch.testing.assert_close(tuple(tensor.cpu() for tensor in actual), expected)


@pytest.mark.cuda
def test_cuda_ignores_impossible_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    good = make_case(cuda, num_rows=20, num_clusters=3)
    bad = Case(*(tensor.clone() for tensor in good[:4]))
    bad.labels[[2, 3]] = torch.tensor([6, -1], device=cuda)
    bad.clusters[[4, 5]] = torch.tensor([20, -2], device=cuda)
    ignored = torch.tensor([2, 3, 4, 5])
    keep = torch.ones(20, dtype=torch.bool, device=cuda)
    keep[ignored] = False
    loss, grad = loss_and_grad(bad)
    clusters = good.clusters[keep]
    numbered = torch.where(clusters == -1, -1, clusters.clamp(min=0).unique(return_inverse=True)[1])
    part = Case(good.probs[keep], good.labels[keep], good.weights[keep], numbered)
    part_loss, part_grad = loss_and_grad(part)
    torch.testing.assert_close(loss, part_loss * 16 / 20)  # R counts ignored rows too
    torch.testing.assert_close(grad[keep], part_grad * 16 / 20)
    assert not grad[ignored].any()


@pytest.mark.cuda
def test_cuda_counts_that_do_not_fit() -> None:
    case = make_case(cuda, num_rows=20)
    for counts, rows in [([12], 12), ([-5, 12], 12), ([12, 2**62], 20), ([], 0)]:
        losses, grad = loss_and_grad(case._replace(counts=torch.tensor(counts, dtype=torch.int64)))
        assert losses.isfinite().all()
        assert not grad[rows:].any()


@pytest.mark.cuda
def test_cuda_lets_nan_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETECTOR_VALIDATE", raising=False)
    for name in ("probs", "weights"):
        case = Case(*(tensor.to(cuda) for tensor in broken(name, 5, torch.nan)[:4]))
        assert pcl_loss(*case).isnan()


@pytest.mark.cuda
def test_cuda_arguments_on_two_devices() -> None:
    case = make_case(cuda)
    for name in ("labels", "weights", "clusters"):
        with pytest.raises(RuntimeError, match=f"^pcl_loss: {name} is on cpu, but probs is on cuda:0"):
            pcl_loss(*case._replace(**{name: getattr(case, name).cpu()}))


@pytest.mark.cuda
def test_cuda_host_never_waits() -> None:
    case = make_case(cuda, counts=[300, 200])
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss_and_grad(case)
        loss_and_grad(case._replace(counts=None))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
def test_cuda_second_stream() -> None:
    case = make_case(cuda, torch.float32, counts=[3000, 2000])
    expected = loss_and_grad(case)
    stream = torch.cuda.Stream()
    busy = torch.zeros(4096, 4096, device=cuda)
    probs = torch.zeros_like(case.probs)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            busy = busy @ busy
        probs.copy_(case.probs)  # late on this stream: a kernel on another stream would read zeros
        actual = loss_and_grad(case._replace(probs=probs))
    torch.cuda.synchronize()
    assert all(map(torch.equal, actual, expected))


@pytest.mark.cuda
@pytest.mark.parametrize("counts", [None, [300, 200]])
def test_cuda_graph(counts: list[int] | None) -> None:
    case = make_case(cuda, torch.float32, counts=counts, num_rows=500)
    case = case._replace(counts=None if counts is None else case.counts.to(cuda))
    other = make_case(cuda, torch.float32, counts=counts, num_rows=500, seed=1)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        loss_and_grad(case)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = loss_and_grad(case)
    for tensor, replacement in zip(case[:4], other[:4], strict=True):
        tensor.copy_(replacement)
    graph.replay()
    assert all(map(torch.equal, captured, loss_and_grad(other)))


@pytest.mark.cuda
def test_cuda_past_two_to_the_31_elements() -> None:
    num_rows, num_columns = 2**27, 17
    assert num_rows * num_columns > 2**31
    probs = torch.full((num_rows, num_columns), 0.5, dtype=torch.float16, device=cuda)
    labels = torch.zeros(num_rows, dtype=torch.int64, device=cuda)
    clusters = labels - 1
    labels[-2:], clusters[-2:] = 16, 1
    probs[-2:, 16] = torch.tensor([0.125, 0.375], dtype=torch.float16, device=cuda)
    weights = torch.zeros(num_rows, dtype=torch.float16, device=cuda)
    weights[-2:] = 1
    upstream = torch.tensor(16384.0, dtype=torch.float16, device=cuda)
    _, grad = loss_and_grad(Case(probs, labels, weights, clusters), upstream)
    expected = torch.zeros(3, num_columns)
    expected[1:, 16] = -16384 * 2 / 0.5 / num_rows
    torch.testing.assert_close(grad[-3:].cpu().float(), expected)
    assert grad.count_nonzero() == 2


@pytest.mark.cuda
def test_cuda_more_images_than_a_grid_is_high() -> None:
    counts = torch.zeros(100_000, dtype=torch.int64)
    counts[[0, 70_000, 99_999]] = torch.tensor([10, 20, 7])
    case = make_case("cpu", counts=counts.tolist())
    expected = loss_and_grad(case)
    actual = loss_and_grad(Case(*(tensor.to(cuda) for tensor in case)))
    torch.testing.assert_close(tuple(tensor.cpu() for tensor in actual), expected)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_small_enough_for_the_sanitizer(dtype: torch.dtype) -> None:
    assert_matches_twin(make_case(cuda, dtype, counts=[40, 0, 1100], num_clusters=40))
    assert_matches_twin(make_case(cuda, dtype, num_rows=70))
