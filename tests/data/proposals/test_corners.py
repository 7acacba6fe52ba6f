import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.data.proposals import corners
from detector.data.proposals.corners import corner_boxes
from detector.structures import box_iou


def board(height=200, width=260):
    """Vertical conductors without any corner inside the image."""
    image = np.zeros((height, width, 3), np.uint8)
    image[:, 20::40] = image[:, 21::40] = image[:, 22::40] = 255
    return image


def test_the_first_box_lies_on_the_defect():
    image = board()
    image[90:110, 100:126] = 255  # a blob on the conductor at 100
    boxes = torch.from_numpy(corner_boxes(image, sides=(16, 40)))
    defect = torch.tensor([[98.0, 88.0, 128.0, 112.0]])
    assert box_iou(defect, boxes).max() > 0.6
    assert box_iou(defect, boxes[:3]).max() > 0.4
    assert not torch.equal(boxes, torch.from_numpy(corner_boxes(board(), sides=(16, 40)))[: len(boxes)])


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 40), st.floats(1, 30), st.floats(1, 4), st.integers(0, 9))
def test_boxes_lie_in_the_image_and_overlap_little(height, width, shortest, ratio, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    sides = (shortest, shortest * ratio)
    boxes = corner_boxes(image, sides=sides)
    np.testing.assert_array_equal(boxes, corner_boxes(image, sides=sides))
    assert boxes.dtype == np.float32
    assert len(boxes) >= 1
    x1, y1, x2, y2 = boxes.T
    assert min(x1.min(), y1.min()) >= 0
    assert x2.max() <= width
    assert y2.max() <= height
    assert ((x1 < x2) & (y1 < y2)).all()
    overlaps = box_iou(torch.from_numpy(boxes), torch.from_numpy(boxes)).fill_diagonal_(0)
    assert overlaps.max() <= 0.6 + 1e-6


def test_the_best_boxes_of_many_are_kept(monkeypatch):
    boxes = corner_boxes(board(60, 80), sides=(4, 8))
    assert len(boxes) > 100
    monkeypatch.setattr(corners, "_MAX_BOXES", 100)
    np.testing.assert_array_equal(corner_boxes(board(60, 80), sides=(4, 8)), boxes[:100])


def test_more_corners_come_first():
    image = np.zeros((60, 120, 3), np.uint8)
    image[20:40, 20:40] = 60
    image[20:40, 80:100] = 255
    first = corner_boxes(image, sides=(20, 28))[0]
    assert first[0] > 60


@pytest.mark.parametrize(
    ("sides", "message"),
    [((8, 4), r"not \(8, 4\)"), ((0, 4), r"at least 1, not \(0, 4\)"), ((4,), r"not \(4,\)")],
)
def test_bad_sides(sides, message):
    with pytest.raises(ValueError, match=message):
        corner_boxes(np.zeros((9, 9, 3), np.uint8), sides=sides)


def test_an_image_of_too_many_pixels(monkeypatch):
    monkeypatch.setattr(corners, "_MAX_PIXELS", 80)
    with pytest.raises(ValueError, match=r"9 x 9 pixels is too large for corners: set INPUT\.TILE"):
        corner_boxes(np.zeros((9, 9, 3), np.uint8))
