"""proposal_clusters: invalid arguments, and what test_contract.py does not cover."""

import math

import pytest
import torch
from cluster_cases import METHODS, Case, assert_same, broken, make_case, several_streams
from torch import Tensor

from detector.layers import assign_to_seeds, proposal_clusters, reference

OP = torch.ops.detector.proposal_clusters.default


def test_expanded(device: torch.device) -> None:
    case = make_case([50, 60]).to(device)
    same = case._replace(boxes=case.boxes[:1].expand(110, 4), scores=case.scores[:1].expand(110, 5))
    repeated = same._replace(boxes=same.boxes.contiguous(), scores=same.scores.contiguous())
    assert_same(proposal_clusters(*same, method="pcl"), proposal_clusters(*repeated, method="pcl"))


# ---- invalid arguments ----


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
    if device.type == "cuda":  # a GPU checks values on request only
        monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    with pytest.raises(RuntimeError, match=f"^proposal_clusters: {message}"):
        proposal_clusters(*case.to(device), method=method)


def test_too_many_proposals(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETECTOR_VALIDATE", "1")
    case = make_case([65536], 1, positive=1).to(device)
    with pytest.raises(RuntimeError, match=r"^proposal_clusters: counts\[0\] is 65536, expected at most"):
        proposal_clusters(*case, method="oicr")


BAD_ARGUMENTS = [
    ({"boxes": torch.zeros(10)}, r"boxes has shape \(10,\), expected \(sum R, 4\)"),
    ({"boxes": torch.zeros(10, 5)}, r"boxes has shape \(10, 5\), expected \(sum R, 4\)"),
    ({"boxes": torch.zeros(10, 4).half()}, "boxes is Half, expected Double or Float"),
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
    with pytest.raises(RuntimeError, match="max_centers is 0, expected at least 1"):
        proposal_clusters(*case, method="pcl", max_centers=0)


FRACTIONS = ["graph_iou", "nms_iou", "member_iou", "ignore_iou", "ignore_cover", "cover_iou", "top_share"]


@pytest.mark.parametrize("value", [2.0, -0.1, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FRACTIONS)
def test_fractions_out_of_range(name: str, value: float) -> None:
    method = "mist" if name == "nms_iou" else "pcl"
    with pytest.raises((ValueError, RuntimeError), match=f"{name} is {value:g}, expected .*1"):
        proposal_clusters(*make_case([6, 4], 3), method=method, **{name: value})


# method, edge_iou, max_centers, top_share, member_iou, ignore_iou, ignore_cover, cover_iou
GOOD_OPTIONS = {
    "method": 0, "edge_iou": 0.4, "max_centers": 5, "top_share": 0.15, "member_iou": 0.5, "ignore_iou": 0.1,
    "ignore_cover": 0.9, "cover_iou": 0.2,
}  # fmt: skip
BAD_OPTIONS = [("method", 3), ("method", -1), ("max_centers", 0), ("top_share", 0.0)]
BAD_OPTIONS += [
    (name, value)
    for name in GOOD_OPTIONS
    if name not in ("method", "max_centers")
    for value in (2.0, -0.1, math.nan, math.inf)
]


@pytest.mark.parametrize(("name", "value"), BAD_OPTIONS)
def test_bad_options_of_the_op(name: str, value: float, device: torch.device) -> None:
    case = make_case([6, 4], 3).to(device)
    case = case._replace(scores=case.scores[None])
    with pytest.raises(RuntimeError, match=f"^proposal_clusters: {name} is {value:g}, expected"):
        OP(*case, *(GOOD_OPTIONS | {name: value}).values())


def test_huge_max_centers(device: torch.device) -> None:
    case = make_case([60, 40], 3, positive=1).to(device)
    most, more = (proposal_clusters(*case, method="pcl", max_centers=n) for n in (100, 2**40))
    assert_same(more, most)


@pytest.mark.parametrize("value", [0.0, 1.0])
@pytest.mark.parametrize("method", METHODS)
def test_boundary_values_of_options(method: str, value: float, device: torch.device) -> None:
    case = make_case([60, 40], 3, positive=1).to(device)
    options = dict.fromkeys(FRACTIONS, value) | {"top_share": 1.0}
    expected = reference.proposal_clusters(*case, method=method, **options)
    assert_same(proposal_clusters(*case, method=method, **options), expected)


@pytest.mark.parametrize(
    ("rows", "classes", "weights", "message"),
    [
        ([0, 3], [1], [0.5, 0.6], r"classes has shape \(1,\), expected \(2,\), as rows"),
        ([0, 3], [1, 1], [0.5], r"weights has shape \(1,\), expected \(2,\), as rows"),
        ([0, -1], [1, 1], [0.5, 0.6], "rows has -1, expected distinct numbers from 0 to 3"),
        ([0, 4], [1, 1], [0.5, 0.6], "rows has 4, expected distinct numbers from 0 to 3"),
        ([2, 2], [1, 0], [0.5, 0.6], "rows has 2 twice, expected distinct numbers"),
        ([[0, 3]], [[1, 1]], [[0.5, 0.6]], r"rows has shape \(1, 2\), expected 1 dimension"),
        ([0.0, 3.0], [1, 1], [0.5, 0.6], "rows is torch.float32, expected torch.int64"),
        ([0, 3], [1.0, 1.0], [0.5, 0.6], "classes is torch.float32, expected torch.int64"),
        ([0, 3], [1, 1], [1, 1], "weights is torch.int64, expected a floating dtype"),
        ([0, 3], [1, -1], [0.5, 0.6], "classes has -1, expected 0 or more"),
    ],
)
def test_bad_seeds(rows: list, classes: list, weights: list, message: str) -> None:
    boxes = torch.tensor([[0.0, 0, 4, 4]]).repeat(4, 1)
    with pytest.raises(RuntimeError, match=f"^assign_to_seeds: {message}"):
        assign_to_seeds(boxes, *map(torch.tensor, (rows, classes, weights)))


def test_bad_boxes_options_and_devices_of_seeds() -> None:
    boxes, rows, weights = torch.zeros(4, 4), torch.tensor([0, 3]), torch.tensor([0.5, 0.6])
    with pytest.raises(RuntimeError, match=r"^assign_to_seeds: boxes has shape \(4, 3\), expected \(R, 4\)"):
        assign_to_seeds(boxes[:, :3], rows, rows, weights)
    for wrong, message in [
        (boxes.half(), "boxes is torch.float16, expected torch.float32 or torch.float64"),  # areas overflow
        (boxes * torch.nan, r"boxes\[0\] is \(nan, nan, nan, nan\), expected finite x1 <= x2"),
        (-torch.arange(16.0).view(4, 4), r"boxes\[0\] is .*, expected finite x1 <= x2 and y1 <= y2"),
    ]:
        with pytest.raises(RuntimeError, match=f"^assign_to_seeds: {message}"):
            assign_to_seeds(wrong, rows, rows, weights)
    for name in ("member_iou", "ignore_iou", "ignore_cover", "cover_iou"):
        for value in (-1.0, 2.0, torch.nan):
            with pytest.raises(RuntimeError, match=f"^assign_to_seeds: {name} is {value:g}, expected 0 to 1"):
                assign_to_seeds(boxes, rows, rows, weights, **{name: value})
    for name, arguments in [
        ("rows", (rows.to("meta"), rows, weights)),
        ("classes", (rows, rows.to("meta"), weights)),
        ("weights", (rows, rows, weights.to("meta"))),
    ]:
        with pytest.raises(RuntimeError, match=f"^assign_to_seeds: {name} is on meta, but boxes is on cpu"):
            assign_to_seeds(boxes, *arguments)


def test_export_of_seeds_with_any_number_of_boxes() -> None:
    class Assign(torch.nn.Module):
        def forward(self, boxes: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
            return tuple(assign_to_seeds(boxes, rows, rows, boxes[rows, 2]))

    first, other = ((make_case([n]).boxes, torch.arange(n // 3)) for n in (9, 15))
    shapes = ({0: torch.export.Dim("boxes")}, {0: torch.export.Dim("seeds")})
    program = torch.export.export(Assign(), first, dynamic_shapes=shapes)
    for actual, expected in zip(program.module()(*other), Assign()(*other), strict=True):
        assert torch.equal(actual, expected)


def test_seeds_under_vmap() -> None:
    boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 2], [5, 5, 9, 9]])
    seeds = torch.tensor([[0, 2], [1, 2]]), torch.tensor([[0, 1], [1, 0]]), torch.rand(2, 2)
    found = torch.vmap(lambda *seeds: tuple(assign_to_seeds(boxes, *seeds)))(*seeds)
    for i, each in enumerate(zip(*seeds, strict=True)):
        expected = assign_to_seeds(boxes, *each)
        assert all(torch.equal(a[i], e) for a, e in zip(found, expected, strict=True))
