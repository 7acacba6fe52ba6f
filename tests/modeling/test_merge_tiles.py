"""Detections of tiles merged to those of the picture."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from detector.data.tiles import Tiling, tiles_of
from detector.modeling.merge_tiles import merge_tiles
from detector.structures import Detections, clip_boxes

TILING = Tiling(100, 0.25)


def detections(boxes: Tensor, scores: Tensor | None = None, labels: Tensor | None = None) -> Detections:
    scores = torch.ones(len(boxes)) if scores is None else scores
    labels = torch.zeros(len(boxes), dtype=torch.int64) if labels is None else labels
    return Detections("a", boxes, scores, labels)


def seen_in_tiles(
    objects: Detections, tiles: Tensor, with_whole: bool, jitter: float = 0.0
) -> list[Detections]:
    """What a perfect detector finds: in each tile what it shows, and in the whole what no tile holds."""
    found = []
    for row, (x1, y1, x2, y2) in enumerate(tiles.tolist()):
        corner = torch.tensor([x1, y1, x1, y1])
        noise = (torch.rand(objects.boxes.shape) * 2 - 1) * jitter
        shown = clip_boxes(objects.boxes + noise - corner, y2 - y1, x2 - x1) + corner
        visible = (shown[:, 2:] - shown[:, :2]).amin(dim=1) > 0
        if row == len(tiles) - 1:
            visible = (tiles_of(objects.boxes, tiles) == row) & with_whole
        found.append(detections(shown[visible], objects.scores[visible], objects.labels[visible]))
    return found


def same_boxes(found: Tensor, expected: Tensor, within: float = 0.0) -> bool:
    if len(found) != len(expected) or len(expected) == 0:
        return len(found) == len(expected)
    far = (found[:, None] - expected).abs().amax(dim=2)
    return bool((far.amin(dim=0) <= within).all() and (far.amin(dim=1) <= within).all())


@st.composite
def scenes(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """The tiles of a random grid, and objects that do not overlap, of which many touch."""
    size, overlap = draw(st.integers(40, 120)), draw(st.floats(0.2, 0.75))
    tiles = Tiling(size, overlap).boxes(draw(st.integers(30, 400)), draw(st.integers(121, 400)))
    width, height = tiles[-1, 2:].tolist()
    columns = sorted(draw(st.sets(st.integers(0, width), min_size=2, max_size=6)))
    objects = []
    for x1, x2 in pairwise(columns):  # columns touch, and so do boxes of one
        ends = sorted(draw(st.sets(st.integers(0, height), min_size=2, max_size=5)))
        objects += [[x1, y1, x2, y2] for y1, y2 in pairwise(ends)]
    boxes = torch.tensor(objects).float()
    return tiles, boxes[(boxes[:, 2:] - boxes[:, :2]).amin(dim=1) >= 6]


@given(scenes(), st.booleans(), st.integers(0, 2**31))
@settings(max_examples=50)
def test_an_object_cut_by_any_edge_is_one_box_and_objects_that_touch_stay_apart(
    scene: tuple[Tensor, Tensor], with_whole: bool, seed: int
) -> None:
    tiles, boxes = scene
    scores = torch.rand(len(boxes), generator=torch.Generator().manual_seed(seed)) / 2 + 0.5
    merged = merge_tiles(
        seen_in_tiles(detections(boxes, scores), tiles, with_whole), tiles, nms_threshold=0.5
    )
    assert same_boxes(merged.boxes, boxes, within=2.0)
    assert merged.scores.tolist() == scores.sort(descending=True).values.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_boxes_that_are_not_exact_are_merged_as_well(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    tiles = TILING.boxes(340, 410)
    grid = torch.cartesian_prod(torch.arange(4), torch.arange(4)).float() * 100
    corners = grid + torch.rand(16, 2, generator=generator) * 30
    boxes = torch.cat([corners, corners + 15 + torch.rand(16, 2, generator=generator) * 50], dim=1)
    boxes = boxes[(boxes[:, 2] <= 410) & (boxes[:, 3] <= 340)]
    found = seen_in_tiles(detections(boxes), tiles, with_whole=True, jitter=1.5)
    merged = merge_tiles(found, tiles, nms_threshold=0.5)
    assert same_boxes(merged.boxes, boxes, within=4.0)


def test_an_object_over_four_tiles_is_joined_with_its_best_score() -> None:
    tiles = TILING.boxes(175, 175)  # four
    thing = detections(torch.tensor([[10.0, 20, 170, 160]]))
    found = seen_in_tiles(thing, tiles, with_whole=False)
    found = [
        detections(each.boxes, torch.full((len(each),), 0.5 + row / 10)) for row, each in enumerate(found)
    ]
    merged = merge_tiles(found, tiles, nms_threshold=0.5)
    assert merged.boxes.tolist() == [[10, 20, 170, 160]]
    assert merged.scores.tolist() == pytest.approx([0.8])


def test_tiles_without_overlap_are_joined_at_their_edge() -> None:
    tiles = Tiling(100, 0).boxes(100, 200)
    boxes = torch.tensor([[60.0, 10, 140, 40], [60, 40, 140, 80]])
    found = seen_in_tiles(detections(boxes), tiles, with_whole=False)
    assert same_boxes(merge_tiles(found, tiles, nms_threshold=0.5).boxes, boxes)


def test_boxes_of_two_classes_are_not_joined() -> None:
    tiles = TILING.boxes(100, 175)
    left, right = torch.tensor([[10.0, 20, 100, 80]]), torch.tensor([[75.0, 20, 170, 80]])
    found = [
        detections(left),
        detections(right, labels=torch.ones(1, dtype=torch.int64)),
        detections(left[:0]),
    ]
    assert same_boxes(merge_tiles(found, tiles, nms_threshold=0.5).boxes, torch.cat([left, right]))


def test_a_sure_part_is_not_dropped_for_an_unlikely_whole() -> None:
    tiles = TILING.boxes(100, 175)
    part, guess = torch.tensor([[60.0, 20, 100, 80]]), torch.tensor([[76.0, 0, 170, 100], [40, 0, 140, 100]])
    nothing = detections(part[:0])
    found = [detections(part, torch.tensor([0.9])), nothing, detections(guess[1:], torch.tensor([0.01]))]
    merged = merge_tiles(found, tiles, nms_threshold=0.5)
    assert merged.boxes[0].tolist() == part[0].tolist()
    found[2] = detections(guess[1:], torch.tensor([0.5]))
    assert merge_tiles(found, tiles, nms_threshold=0.5).boxes.tolist() == guess[1:].tolist()


def test_a_picture_without_objects_has_no_boxes() -> None:
    tiles = TILING.boxes(200, 300)
    nothing = [detections(torch.zeros(0, 4))] * len(tiles)
    assert len(merge_tiles(nothing, tiles, nms_threshold=0.5)) == 0
