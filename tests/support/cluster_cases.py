"""Test inputs for proposal_clusters, and comparison of results."""

from typing import NamedTuple

import numpy as np
import torch
from op_contract import DTYPES
from torch import Tensor

from detector.layers import ProposalClusters

METHODS = ["pcl", "oicr", "mist"]
BOXES = ["anywhere", "on a grid", "without area", "repeated"]
SCORES = ["even", "peaked", "saturated", "over many orders", "few levels", "all equal"]


class Case(NamedTuple):
    """The tensor arguments of proposal_clusters."""

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
    """A random case and options, determined by `number`."""
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
    options = {"method": str(draw.choice(METHODS)), "max_centers": int(draw.choice([1, 3, 5, 5]))}
    if draw.random() < 0.3:
        options["ignore_cover"] = float(draw.choice([0.5, 0.9, 1.0]))
        options["cover_iou"] = float(draw.choice([0.0, 0.25]))
    return case, options


def several_streams(case: Case) -> Case:
    return case._replace(scores=torch.stack([torch.zeros_like(case.scores), case.scores]))


def broken(name: str, index: tuple[int, ...], value: float) -> Case:
    case = make_case([6, 4], 3, positive=1)
    getattr(case, name)[index] = value
    return case


def assert_same(actual: ProposalClusters, expected: ProposalClusters) -> None:
    for name, one, other in zip(ProposalClusters._fields, actual, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one.cpu(), other.cpu()), name
