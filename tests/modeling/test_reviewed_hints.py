"""Seeds of images with points and counts."""

import pytest
import torch

from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.refinement import Refinement, Seeds, cluster_loss
from detector.structures import Batch, Hints, boxes_to_rois

# Two objects of one class, a box around both, a part of the first, and an object far away.
BOXES = torch.tensor([[0, 0, 10, 10], [12, 0, 22, 10], [0, 0, 22, 10], [0, 0, 4, 4], [50, 0, 60, 10.0]])
# Of the two classes; the box around both scores best.
SCORES = torch.tensor([[0.3, 0.1], [0.2, 0.1], [0.9, 0.2], [0.1, 0.3], [0.5, 0.8]])


def all_rows(boxes, scores, labels):
    """Every proposal is a seed of the class that scores more."""
    return Seeds(torch.arange(len(boxes)), scores.argmax(dim=1), scores.amax(dim=1))


RULES = [Refinement("oicr"), Refinement("mist", {"top_share": 1.0}), Refinement("pcl", loss=cluster_loss)]
RULES += [Refinement(all_rows)]


def hints(points=(), labels=(), counts=(0, 0)) -> Hints:
    xy = torch.tensor(points, dtype=torch.float32).reshape(-1, 2)
    return Hints(xy, torch.tensor(labels, dtype=torch.int64), torch.tensor(counts))


def batch_of(*each: Hints | None) -> Batch:
    number = len(each)
    return Batch(
        torch.zeros(number, 3, 64, 64, dtype=torch.uint8),
        boxes_to_rois([BOXES] * number),
        torch.tensor([[1.0, 1.0]] * number),
        torch.tensor([len(BOXES)] * number),
        tuple("abc"[:number]),
        hints=each if any(each) else (),
    )


def seeds(found, image=0):
    """Class of each seed of an image by its row."""
    rows = slice(image * len(BOXES), (image + 1) * len(BOXES))
    labels, centers = found.labels[rows], found.centers[rows]
    return {row: int(labels[row]) - 1 for row in (centers >= 0).nonzero()[:, 0].tolist()}


@pytest.mark.parametrize("rule", RULES)
def test_a_point_is_the_best_box_that_holds_no_other_of_its_class(rule: Refinement) -> None:
    both = hints([[8, 8], [15, 5]], [0, 0])
    found = rule.clusters(SCORES, batch_of(both))
    of_class = {row: label for row, label in seeds(found).items() if label == 0}
    assert of_class == {0: 0, 1: 0}
    torch.testing.assert_close(found.weights[:2], SCORES[:2, 0])
    one = rule.clusters(SCORES, batch_of(hints([[15, 5]], [0])))
    assert [row for row, label in seeds(one).items() if label == 0] == [2]  # the best, as it holds one point


@pytest.mark.parametrize("rule", RULES)
def test_points_of_two_classes_share_no_seed(rule: Refinement) -> None:
    found = rule.clusters(SCORES, batch_of(hints([[55, 5], [56, 6]], [0, 1])))
    assert seeds(found) == {4: 0}  # the only box there is the first class's


@pytest.mark.parametrize("rule", RULES)
def test_a_point_outside_of_all_proposals_has_no_seed(rule: Refinement) -> None:
    found = rule.clusters(SCORES, batch_of(hints([[40, 40], [40, 40]], [0, 1])))
    assert seeds(found) == {}
    assert found.weights.tolist() == [0] * 5


def test_a_count_keeps_the_best_seeds() -> None:
    rule = Refinement(all_rows)
    plain = seeds(rule.clusters(SCORES, batch_of(None)))
    assert plain == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1}
    found = rule.clusters(SCORES, batch_of(hints(counts=(2, 1))))
    assert seeds(found) == {0: 0, 2: 0, 4: 1}
    assert seeds(rule.clusters(SCORES, batch_of(hints(counts=(0, 9))))) == plain


@pytest.mark.parametrize("rule", RULES)
def test_other_images_keep_their_pseudo_labels(rule: Refinement) -> None:
    scores = torch.stack([SCORES.repeat(2, 1), SCORES.flip(0).repeat(2, 1)])  # of two streams
    plain = rule.clusters(scores, batch_of(None, None))
    mixed = rule.clusters(scores, batch_of(None, hints([[8, 8]], [1])))
    for field, expected in zip(mixed, plain, strict=True):
        assert torch.equal(field[:, :5], expected[:, :5])
    first = ProposalClusters(*(field[0] for field in mixed))
    assert [row for row, label in seeds(first, image=1).items() if label == 1] == [2]
    probs = torch.rand(2, 10, 3).softmax(dim=2)
    assert rule.loss(probs, mixed, torch.tensor([5, 5])).isfinite().all()


@pytest.mark.parametrize("rule", RULES)
def test_hints_without_content_change_nothing(rule: Refinement) -> None:
    plain, same = (rule.clusters(SCORES, batch_of(each)) for each in (None, hints()))
    assert seeds(plain) == seeds(same)
    assert torch.equal(plain.labels, same.labels)
    torch.testing.assert_close(plain.weights, same.weights)


@pytest.mark.parametrize("rule", RULES)
def test_a_batch_with_hints_may_have_no_proposals(rule: Refinement) -> None:
    none = Batch(
        torch.zeros(1, 3, 64, 64, dtype=torch.uint8),
        torch.zeros(0, 5),
        torch.tensor([[1.0, 1.0]]),
        torch.tensor([0]),
        ("a",),
        hints=(hints([[8, 8]], [0]),),
    )
    found = rule.clusters(torch.zeros(2, 0, 2), none)
    assert [field.shape for field in found] == [(2, 0)] * 4
    assert rule.loss(torch.zeros(2, 0, 3), found, none.counts).tolist() == [0, 0]
