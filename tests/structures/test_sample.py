from dataclasses import FrozenInstanceError, fields, replace
from typing import get_type_hints

import pytest
import torch

from detector.structures import Annotation, Batch, Detections, Hints, ReviewedBoxes, Sample


def batch():
    return Batch(
        images=torch.ones(2, 3, 4, 4),
        rois=torch.zeros(3, 5),
        labels=torch.zeros(2, 6),
        counts=torch.tensor([1, 2]),
        image_ids=("a", "b"),
    )


def test_training_types_hold_no_true_boxes():
    """But reviewed boxes, points and counts, which are types of their own and absent by default."""
    assert {field.name for field in fields(Sample)} == {
        "image",
        "proposals",
        "labels",
        "image_id",
        "flipped",
        "pixel",
        "unknown",
        "reviewed",
        "hints",
    }
    assert {field.name for field in fields(Batch)} == {
        "places",
        "tiles",
        "weights",
        "images",
        "rois",
        "labels",
        "counts",
        "image_ids",
        "sizes",
        "pixels",
        "unknown",
        "reviewed",
        "hints",
    }
    types = get_type_hints(Sample)
    assert (types["reviewed"], types["hints"]) == (ReviewedBoxes | None, Hints | None)
    types = get_type_hints(Batch)
    assert types["reviewed"] == tuple[ReviewedBoxes | None, ...]
    assert types["hints"] == tuple[Hints | None, ...]
    assert (batch().reviewed, batch().hints) == ((), ())


def test_batches_do_not_change():
    with pytest.raises(FrozenInstanceError):
        batch().images = torch.zeros(1)


def test_moving_a_batch_leaves_counts_on_the_cpu():
    moved = batch().to("meta")
    assert {tensor.device.type for tensor in (moved.images, moved.rois, moved.labels)} == {"meta"}
    assert moved.counts.device.type == "cpu"
    assert moved.image_ids == ("a", "b")


@pytest.mark.cuda
def test_pinned_batches():
    pinned = batch().pin_memory()
    assert all(tensor.is_pinned() for tensor in (pinned.images, pinned.rois, pinned.labels))
    assert torch.equal(pinned.images, batch().images)


def test_annotations_without_outlines_and_crowds():
    boxes = torch.tensor([[0.0, 0, 2, 3], [1, 1, 5, 5]])
    annotation = Annotation("a", boxes, torch.tensor([0, 1]), torch.zeros(2, dtype=torch.bool))
    assert annotation.crowd.tolist() == [False, False]
    assert annotation.areas.tolist() == [6, 16]
    assert annotation.areas.dtype == torch.float64


def detections(image_id="a", score=0.5, names=("cat",)):
    return Detections(
        image_id, torch.tensor([[0.0, 0, 2, 3]]), torch.tensor([score]), torch.tensor([0]), names
    )


def test_equality_is_that_of_all_values():
    assert detections() == detections()
    for other in (detections("b"), detections(score=0.4), detections(names=()), None, "a"):
        assert detections() != other
    two = Detections("a", torch.zeros(2, 4), torch.zeros(2), torch.zeros(2, dtype=torch.int64))
    assert detections(names=()) != two
    assert two == replace(two)
    assert two != replace(two, scores=two.scores.double())
    assert batch() == batch()
    assert batch() != batch().to("meta")
    assert [detections("b"), detections()].index(detections()) == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(detections())


FOUND = Detections(
    "a.jpg",
    torch.arange(12.0).reshape(3, 4),
    torch.tensor([0.9, 0.8, 0.4]),
    torch.tensor([1, 0, 1]),
    ("cat", "dog", "cat"),
)


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (0, [0]),
        (-1, [2]),
        (slice(1, None), [1, 2]),
        (torch.tensor([2, 0]), [2, 0]),
        (FOUND.labels == 1, [0, 2]),
        (FOUND.scores > 1, []),
    ],
)
def test_detections_are_selected_by_integers_slices_and_masks(index, rows):
    chosen = FOUND[index]
    assert len(chosen) == len(rows)
    assert chosen.boxes.equal(FOUND.boxes[rows])
    assert chosen.scores.equal(FOUND.scores[rows])
    assert chosen.labels.equal(FOUND.labels[rows])
    assert chosen.names == tuple(FOUND.names[row] for row in rows)
    assert replace(FOUND, names=())[index].names == ()


def test_detections_iterate_and_check_their_indices():
    assert [each.name for each in FOUND] == ["cat", "dog", "cat"]
    for index in (3, -4, torch.tensor([3]), torch.tensor([True])):
        with pytest.raises(IndexError):
            FOUND[index]


def test_detections_move_to_a_device():
    moved = FOUND.to("meta")
    assert {tensor.device.type for tensor in (moved.boxes, moved.scores, moved.labels)} == {"meta"}
    assert moved.names == FOUND.names


def test_the_repr_of_detections_counts_boxes_by_class():
    assert repr(FOUND) == "Detections('a.jpg', 3 boxes: 2 x cat (best 0.90), 1 x dog (best 0.80))"
    assert repr(replace(FOUND, names=())[:1]) == "Detections('a.jpg', 1 box: 1 x class 1 (best 0.90))"
    assert repr(FOUND[:0]) == "Detections('a.jpg', 0 boxes)"
