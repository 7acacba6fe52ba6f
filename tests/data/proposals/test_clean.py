import torch
from hypothesis import given
from hypothesis import strategies as st

from detector.data.proposals import clean_proposals


def test_sides_of_min_size_go_and_longer_ones_stay():
    boxes = torch.tensor([[0, 0, 2, 9], [0, 0, 9, 2], [0, 0, 2.01, 2.01], [4, 4, 4, 4]])
    kept = clean_proposals(boxes, min_size=2, stride=1, max_count=9)
    assert kept.tolist() == [boxes[2].tolist()]


def test_duplicates_on_the_grid_go_and_the_first_stays():
    boxes = torch.tensor([[8, 8, 40, 40], [8, 8, 80, 40], [9, 7, 41, 39], [8, 8, 40, 40], [13, 8, 40, 40.0]])
    assert clean_proposals(boxes, min_size=0, stride=8, max_count=9).tolist() == boxes[[0, 1, 4]].tolist()
    assert clean_proposals(boxes, min_size=0, stride=8, max_count=2).tolist() == boxes[:2].tolist()


def reference(boxes, min_size, stride, max_count):
    kept, cells = [], set()
    for box in boxes.tolist():
        cell = tuple(round(side / stride) for side in box)
        if box[2] - box[0] > min_size and box[3] - box[1] > min_size and cell not in cells:
            cells.add(cell)
            kept.append(box)
    return kept[:max_count]


@given(
    st.lists(st.tuples(*[st.integers(0, 40)] * 4), max_size=40),
    st.integers(0, 4),
    st.sampled_from([1, 4, 8]),
    st.integers(0, 20),
)
def test_cleaning_equals_a_slow_reference(rows, min_size, stride, max_count):
    boxes = torch.tensor(rows, dtype=torch.float32).reshape(-1, 4)
    kept = clean_proposals(boxes, min_size=min_size, stride=stride, max_count=max_count)
    assert kept.shape[1:] == (4,)
    assert kept.tolist() == reference(boxes, min_size, stride, max_count)
