import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from detector.data.proposals.grid import grid_boxes
from detector.structures import box_iou


def image(height, width):
    return np.empty((height, width, 3), np.uint8)


@given(st.integers(1, 300), st.integers(1, 300))
def test_boxes_lie_in_the_image_differ_and_begin_with_the_largest(height, width):
    boxes = grid_boxes(image(height, width))
    assert boxes.dtype == np.float32
    x1, y1, x2, y2 = boxes.T
    assert min(x1.min(), y1.min()) == 0
    assert (x2.max(), y2.max()) == (width, height)
    assert ((x1 < x2) & (y1 < y2)).all()
    assert len(np.unique(boxes, axis=0)) == len(boxes)
    assert boxes[0].tolist() == [0, 0, width, height]
    assert (np.diff((x2 - x1) * (y2 - y1)) <= 0.01).all()


@given(st.floats(0.25, 1), st.floats(0.25, 1), st.floats(0, 1), st.floats(0, 1))
def test_no_box_of_a_fourth_of_the_sides_or_more_is_missed(w, h, x, y):
    width, height = 320, 240
    w, h = w * width, h * height
    x, y = x * (width - w), y * (height - h)
    box = torch.tensor([[x, y, x + w, y + h]])
    assert box_iou(box, torch.from_numpy(grid_boxes(image(height, width)))).max() > 0.5


def test_the_number_of_boxes_does_not_depend_on_the_size():
    for height, width in ((100, 150), (500, 333), (375, 500), (1000, 1501)):
        assert len(grid_boxes(image(height, width))) == 1999
