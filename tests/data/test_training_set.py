"""data/training_set.py: what of the data counts, and how a change is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from detector.data.datasets.voc import VOCDataset
from detector.data.proposals import load_proposals, save_proposals
from detector.data.training_set import TrainingSet, changed_data, describe_truth
from detector.structures import Hints, ReviewedBoxes


@pytest.fixture
def dataset(small_voc):
    return small_voc, lambda: VOCDataset(small_voc.root, "trainval", ("bird", "cat", "dog"))


def test_a_change_is_told_and_nothing_else(dataset):
    voc, read = dataset
    boxes = ReviewedBoxes(torch.tensor([[1.0, 2, 9, 9]]), torch.tensor([2]), complete=False)
    hints = Hints(torch.tensor([[3.0, 3]]), torch.tensor([0]), torch.zeros(3, dtype=torch.int64))
    before = TrainingSet(read(), {"a": boxes, "c": boxes}, {"b": hints}, None).describe()
    same = TrainingSet(read(), {"c": boxes, "a": boxes}, {"b": hints}, None)
    assert changed_data(before, same.describe()) == ""
    moved, complete = boxes.map(lambda each: each + 0), replace(boxes, complete=True)
    moved.boxes[0, 0] += 1
    for other in (moved, complete):
        now = TrainingSet(read(), {"a": boxes, "c": other}, {"b": hints}, None).describe()
        assert changed_data(before, now) == "reviewed boxes: 2 then, 2 now, not the same"
    now = TrainingSet(read(), {"a": boxes}, {}, None).describe()
    assert changed_data(before, now) == "reviewed boxes: 2 then, 1 now; images with hints: 1 then, 0 now"
    voc.split("trainval", [*"bacde"])
    now = TrainingSet(read(), {"a": boxes, "c": boxes}, {"b": hints}, None).describe()
    assert "images: 5 then, 5 now, not the same" in changed_data(before, now)


@pytest.mark.parametrize(
    ("split", "change", "expected"),
    [
        ("test", lambda each: {"boxes": each.boxes + 1}, "boxes: 6 then, 6 now, not the same"),
        ("test", lambda each: {"difficult": ~each.difficult}, "boxes: 6 then, 6 now, not the same"),
        ("test", lambda each: {"crowd": ~each.crowd}, "iscrowd regions: 0 then, 2 now"),
        ("train", lambda each: {"boxes": each.boxes + 1}, "training boxes: 6 then, 6 now, not the same"),
        ("train", lambda each: {"crowd": ~each.crowd}, "training boxes: 6 then, 6 now, not the same"),
        ("train", lambda each: {"difficult": ~each.difficult}, ""),  # on which CorLoc does not depend
    ],
)
def test_another_box_of_the_ground_truth_is_a_change(dataset, monkeypatch, split, change, expected):
    _, read = dataset
    before = describe_truth(read(), read())
    assert changed_data(before, describe_truth(read(), read())) == ""
    changed = read()
    annotation = changed.annotation(0)
    first = replace(annotation, **change(annotation))
    monkeypatch.setattr(changed, "annotation", lambda i: first if i == 0 else read().annotation(i))
    truth = (changed, read()) if split == "test" else (read(), changed)
    assert changed_data(before, describe_truth(*truth)) == expected


def test_other_proposals_of_its_images_are_a_change(dataset, tmp_path):
    _, read = dataset
    image_ids, path = [*read().image_ids, "of the test split"], tmp_path / "proposals.npz"

    def describe(boxes, *, checksums=True):
        save_proposals(path, image_ids, boxes, [(9, 9)] * len(image_ids))
        if not checksums:  # a file of numpy.savez
            with np.load(path) as file:
                np.savez(path, **{name: file[name] for name in file if name != "checksums"})
        return TrainingSet(read(), {}, {}, load_proposals(path)).describe()

    boxes = [np.array([[0, 0, 4, 4 + i]]) for i in range(len(image_ids))]
    before = describe(boxes)
    assert changed_data(before, describe(boxes, checksums=False)) == ""
    assert changed_data(before, describe([*boxes[:-1], boxes[0]])) == ""
    count = len(boxes) - 1
    for checksums in (True, False):
        moved = describe([boxes[0] + 1, *boxes[1:]], checksums=checksums)
        assert changed_data(before, moved) == f"proposals: {count} then, {count} now, not the same"
        fewer = describe([boxes[0][:0], *boxes[1:]], checksums=checksums)
        assert changed_data(before, fewer) == f"proposals: {count} then, {count - 1} now"


@pytest.mark.parametrize("before", [None, 3, [], {}, {"tags": "1, sha256 0"}])
def test_what_an_older_version_did_not_record_is_not_compared(before):
    assert changed_data(before, {"images": "5, sha256 0"}) == ""
