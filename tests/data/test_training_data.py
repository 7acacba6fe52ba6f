"""data/training_data.py: what of the data counts, and how a change is told."""

from dataclasses import replace

import pytest
import torch

from detector.data.training_data import changed_data, describe_data
from detector.data.voc import VOCDataset
from detector.structures import Hints, ReviewedBoxes


@pytest.fixture
def dataset(small_voc):
    return small_voc, lambda: VOCDataset(small_voc.root, "trainval", ("bird", "cat", "dog"))


@pytest.mark.filterwarnings("ignore:.*have no object")
def test_a_change_is_told_and_nothing_else(dataset):
    voc, read = dataset
    boxes = ReviewedBoxes(torch.tensor([[1.0, 2, 9, 9]]), torch.tensor([2]), complete=False)
    hints = Hints(torch.tensor([[3.0, 3]]), torch.tensor([0]), torch.zeros(3, dtype=torch.int64))
    before = describe_data(read(), {"a": boxes, "c": boxes}, {"b": hints})
    assert changed_data(before, describe_data(read(), {"c": boxes, "a": boxes}, {"b": hints})) == ""
    moved, complete = boxes.map(lambda each: each + 0), replace(boxes, complete=True)
    moved.boxes[0, 0] += 1
    for other in (moved, complete):
        now = describe_data(read(), {"a": boxes, "c": other}, {"b": hints})
        assert changed_data(before, now) == "reviewed boxes: 2 then, 2 now, not the same"
    now = describe_data(read(), {"a": boxes}, {})
    assert changed_data(before, now) == "reviewed boxes: 2 then, 1 now; images with hints: 1 then, 0 now"
    voc.split("trainval", [*"bacde"])
    now = describe_data(read(), {"a": boxes, "c": boxes}, {"b": hints})
    assert "images: 5 then, 5 now, not the same" in changed_data(before, now)


@pytest.mark.parametrize("before", [None, 3, [], {}, {"tags": "1, sha256 0"}])
def test_what_an_older_version_did_not_record_is_not_compared(before):
    assert changed_data(before, {"images": "5, sha256 0"}) == ""
