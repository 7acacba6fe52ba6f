from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

from detector.structures import Annotation, Batch, Detections, Sample


def batch():
    return Batch(
        images=torch.ones(2, 3, 4, 4),
        rois=torch.zeros(3, 5),
        labels=torch.zeros(2, 6),
        counts=torch.tensor([1, 2]),
        image_ids=("a", "b"),
    )


def test_training_types_hold_no_true_boxes():
    assert {field.name for field in fields(Sample)} == {
        "image",
        "proposals",
        "labels",
        "image_id",
        "flipped",
        "normalization",
        "pixel",
    }
    assert {field.name for field in fields(Batch)} == {
        "images",
        "rois",
        "labels",
        "counts",
        "image_ids",
        "sizes",
        "normalization",
        "pixels",
    }


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
