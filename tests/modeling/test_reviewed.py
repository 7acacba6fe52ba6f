"""Labels from reviewed boxes replace pseudo labels, in reviewed images alone."""

from dataclasses import replace

import pytest
import torch

from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.refinement import Refinement, Seeds, cluster_loss
from detector.modeling.regression import center_boxes
from detector.modeling.reviewed import only_at_objects
from detector.structures import Batch, ReviewedBoxes, boxes_to_rois

# Proposals of one image: an object, one near it, one far away, and another object.
BOXES = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 12], [50, 50, 60, 60], [20, 0, 40, 20]])
NONE = torch.zeros(0, 4)


def first_of_each_class(boxes, scores, labels):
    classes = labels.nonzero()[:, 0]
    rows = torch.arange(len(classes))
    return Seeds(rows, classes, scores[rows, classes])


RULES = [Refinement("oicr"), Refinement("mist"), Refinement("pcl", loss=cluster_loss)]
RULES += [Refinement(first_of_each_class)]


def batch_of(*reviewed: ReviewedBoxes | None) -> Batch:
    number = len(reviewed)
    return Batch(
        torch.zeros(number, 3, 64, 64, dtype=torch.uint8),
        boxes_to_rois([BOXES] * number),
        torch.tensor([[1.0, 0.0, 1.0]] * number),
        torch.tensor([len(BOXES)] * number),
        tuple("abc"[:number]),
        reviewed=reviewed if any(reviewed) else (),
    )


def some(boxes, labels, complete) -> ReviewedBoxes:
    return ReviewedBoxes(
        torch.as_tensor(boxes, dtype=torch.float32).reshape(-1, 4), torch.tensor(labels), complete
    )


SCORES = torch.rand(2, 8, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("rule", RULES)
def test_all_objects_are_known(rule: Refinement) -> None:
    reviewed = some([[0, 0, 10, 11], [20, 0, 40, 20]], [2, 0], True)
    found = rule.clusters(SCORES, batch_of(None, reviewed))
    for stream in range(2):
        assert found.labels[stream, 4:].tolist() == [3, 3, 0, 1]
        assert found.weights[stream, 4:].tolist() == [1, 1, 1, 1]
        assert found.clusters[stream, 4:].tolist() == [1, 1, -1, 3]  # numbered by the nearest proposal
        assert found.centers[stream, 4:].tolist() == [-1, 1, -1, 3]


@pytest.mark.parametrize("rule", RULES)
def test_where_some_objects_are_known_the_rest_is_ignored(rule: Refinement) -> None:
    found = rule.clusters(SCORES, batch_of(some([[0, 0, 10, 10]], [1], False), None))
    assert found.labels[0, :4].tolist() == [2, 2, 0, 0]
    assert found.weights[0, :4].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("rule", RULES)
def test_an_image_without_a_review_keeps_its_pseudo_labels(rule: Refinement) -> None:
    plain = rule.clusters(SCORES, batch_of(None, None))
    mixed = rule.clusters(SCORES, batch_of(None, some(NONE, [], True)))
    for field, expected in zip(mixed, plain, strict=True):
        assert torch.equal(field[:, :4], expected[:, :4])
    assert mixed.labels[:, 4:].count_nonzero() == 0  # nothing but background
    assert (mixed.weights[:, 4:] == 1).all()


def test_the_center_of_a_cluster_is_the_proposal_nearest_to_the_object() -> None:
    found = RULES[0].clusters(SCORES[0, :4], batch_of(some([[0, 0, 10, 12]], [0], True)))
    assert torch.equal(center_boxes(BOXES, found, torch.tensor([4]))[:2], BOXES[[1, 1]])


def test_two_objects_in_one_place_are_one_cluster() -> None:
    twice = some([[0, 0, 10, 10], [0, 0, 10, 10]], [2, 0], True)
    found = RULES[2].clusters(SCORES[:1, :4], batch_of(twice))
    assert found.labels.tolist() == [[3, 3, 0, 0]]
    probs = torch.rand(1, 4, 4).softmax(dim=2)
    assert RULES[2].loss(probs, found, torch.tensor([4])).isfinite().all()


@pytest.mark.parametrize("rule", RULES)
def test_a_loss_falls_towards_the_reviewed_labels(rule: Refinement) -> None:
    batch = batch_of(some([[0, 0, 10, 10], [20, 0, 40, 20]], [1, 0], True))
    right = torch.tensor([2, 2, 0, 1])
    logits = torch.zeros(1, 4, 4, requires_grad=True)
    found = rule.clusters(SCORES[:1, :4], batch)
    rule.loss(logits.softmax(dim=2), found, batch.counts).sum().backward()
    assert torch.equal((-logits.grad[0]).argmax(dim=1), right)


def test_of_a_fully_reviewed_image_mil_counts_the_proposals_at_objects() -> None:
    mil = torch.rand(12, 3, generator=torch.Generator().manual_seed(1))
    objects = [[0, 0, 10, 11], [0, 0, 10, 10], [20, 0, 40, 20]], [2, 2, 0]
    found = only_at_objects(mil, batch_of(None, some(*objects, True), some(*objects, False)))
    at_objects = torch.tensor([[0.0, 0, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0]])  # of two boxes of a class once
    torch.testing.assert_close(found, torch.cat([mil[:4], mil[4:8] * at_objects, mil[8:]]))
    assert torch.equal(only_at_objects(mil[:4], batch_of(None)), mil[:4])


def test_a_batch_moves_with_its_reviews() -> None:
    batch = batch_of(None, some([[0, 0, 1, 1]], [1], True))
    moved = batch.to("cpu")
    assert moved == batch
    assert moved != replace(batch, reviewed=())
    assert isinstance(RULES[0].clusters(SCORES, moved), ProposalClusters)
