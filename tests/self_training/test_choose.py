"""What a weak detector found, as boxes to learn from."""

from dataclasses import replace

import pytest
import torch

from detector.self_training.choose import agreement, pseudo_boxes
from detector.structures import Annotation, Hints, ReviewedBoxes, Scores

BOXES = torch.tensor([[0, 0, 10, 10], [1, 0, 10, 10], [20, 20, 30, 40], [50, 0, 60, 10]]).float()


def scores(*rows):
    scores = torch.tensor(rows)
    return Scores("a", BOXES[:, None].expand(-1, scores.shape[1], 4), scores)


@pytest.mark.parametrize(
    ("threshold", "expected"), [(1.0, {(0, 0), (1, 2)}), (0.5, {(0, 0), (0, 3), (1, 2)}), (0.0, None)]
)
def test_the_best_of_each_label_and_those_above_the_threshold(threshold, expected):
    given = scores([0.9, 0.1, 0.7], [0.8, 0.1, 0.9], [0.2, 0.3, 0.9], [0.6, 0.2, 0.9])
    found = pseudo_boxes(given, torch.tensor([1.0, 1.0, 0.0]), score_threshold=threshold)
    pairs = zip(found.labels.tolist(), found.boxes.tolist(), strict=True)
    rows = {(label, BOXES.tolist().index(box)) for label, box in pairs}
    # Row 1 is suppressed by row 0; class 2 is not shown.
    assert rows == (expected or {(0, 0), (0, 2), (0, 3), (1, 0), (1, 2), (1, 3)})
    assert found.scores.tolist() == sorted(found.scores.tolist(), reverse=True)


def test_the_threshold_may_be_a_share_of_the_best_score_of_the_class():
    given = scores([0.4, 0.1], [0.1, 0.8], [0.3, 0.1], [0.1, 0.5])
    options = {"score_threshold": 0.6, "nms_threshold": 1.0}
    assert len(pseudo_boxes(given, torch.ones(2), **options)) == 2
    found = pseudo_boxes(given, torch.ones(2), relative=True, **options)
    assert {label: found.scores[found.labels == label].tolist() for label in (0, 1)} == {
        0: pytest.approx([0.4, 0.3]),
        1: pytest.approx([0.8, 0.5]),
    }


def test_a_box_in_a_larger_one_of_its_class_is_dropped():
    whole, part, other = [0, 0, 100, 100], [0, 0, 30, 30], [90, 90, 130, 130]
    boxes = torch.tensor([whole, part, other], dtype=torch.float32)[:, None].expand(-1, 2, 4)
    given = Scores("a", boxes, torch.tensor([[0.7, 0.1], [0.9, 0.8], [0.6, 0.1]]))
    found = pseudo_boxes(given, torch.ones(2), score_threshold=0.5, drop_inside=0.85)
    kept = {
        (label, tuple(box)) for label, box in zip(found.labels.tolist(), found.boxes.tolist(), strict=True)
    }
    assert kept == {(0, tuple(whole)), (0, tuple(other)), (1, tuple(part))}
    assert len(pseudo_boxes(given, torch.ones(2), score_threshold=0.5)) == 4


@pytest.mark.parametrize(("share", "left"), [(0.5, 2), (0.7, 1), (0.0, 1)])
def test_a_box_that_disjoint_ones_of_its_class_fill_is_a_group(share, left):
    whole, parts = [0, 0, 100, 100], [[0, 0, 100, 28], [0, 72, 100, 100], [0, 72, 90, 95]]  # 56 %
    boxes = torch.tensor([whole, *parts], dtype=torch.float32)[:, None]
    given = Scores("a", boxes, torch.tensor([[0.9], [0.8], [0.7], [0.6]]))
    found = pseudo_boxes(given, torch.ones(1), score_threshold=0.5, drop_groups=share, drop_inside=0.85)
    assert found.boxes.tolist() == (boxes[1:3, 0] if left == 2 else boxes[:1, 0]).tolist()


def test_a_box_with_one_part_is_no_group():
    boxes = torch.tensor([[0, 0, 100, 100], [0, 0, 90, 100], [0, 0, 80, 100]]).float()[:, None]
    given = Scores("a", boxes, torch.tensor([[0.9], [0.8], [0.7]]))
    found = pseudo_boxes(given, torch.ones(1), score_threshold=0.5, nms_threshold=1.0, drop_groups=0.5)
    assert len(found) == 3


def test_boxes_near_one_that_is_found_move_it():
    boxes = torch.tensor([[0, 0, 10, 10], [0, 0, 10, 20], [0, 0, 10, 60], [2, 2, 2, 9]]).float()[:, None]
    given = Scores(
        "a", boxes.expand(-1, 2, 4), torch.tensor([[0.6, 0.0], [0.2, 0.0], [0.9, 0.0], [0.9, 0.0]])
    )
    found = pseudo_boxes(given, torch.ones(2), score_threshold=0.5, voting_iou=0.5)
    first = torch.tensor([[0, 0, 10, 60], [0, 0, 10, (0.6 * 10 + 0.1 * 20) / 0.7]])  # by score x IoU
    torch.testing.assert_close(found.boxes[found.labels == 0], first)
    # Where all scores are zero, near boxes count by their IoU alone.
    torch.testing.assert_close(found.boxes[found.labels == 1], torch.tensor([[0, 0, 10, 20 / 1.5]]))


def test_a_label_gets_a_box_even_where_all_scores_are_zero():
    found = pseudo_boxes(scores(*[[0.0, 0.0]] * 4), torch.tensor([0.0, 1.0]), score_threshold=0.5)
    assert (found.labels.tolist(), found.boxes.tolist()) == ([1], [BOXES[0].tolist()])


def test_a_box_that_was_clipped_to_nothing_is_not_taken():
    boxes = torch.tensor([[5.0, 0, 5, 20], [0, 0, 9, 9]])[:, None]
    found = pseudo_boxes(Scores("a", boxes, torch.tensor([[0.9], [0.1]])), torch.ones(1), score_threshold=0.5)
    assert found.boxes.tolist() == [[0, 0, 9, 9]]


def test_no_label_or_no_proposal_gives_no_box():
    assert len(pseudo_boxes(scores(*[[0.9]] * 4), torch.zeros(1), score_threshold=0.5).boxes) == 0
    nothing = Scores("a", torch.zeros(0, 1, 4), torch.zeros(0, 1))
    assert pseudo_boxes(nothing, torch.ones(1), score_threshold=0.5).boxes.shape == (0, 4)


def test_agreement_by_hand():
    truth = Annotation("a", BOXES[[0, 2, 3]], torch.tensor([0, 1, 1]), torch.zeros(3, dtype=torch.bool))
    labels = torch.tensor([0, 0, 0, 1])  # right, right, no, right
    found = Annotation("a", BOXES, labels, torch.zeros(4, dtype=torch.bool))
    assert agreement([found], [truth]) == {"count": 4, "precision": 75.0, "recall": pytest.approx(200 / 3)}
    crowd = replace(truth, crowd=torch.tensor([False, False, True]))  # a region of many objects is no object
    assert agreement([found], [crowd]) == {"count": 4, "precision": 50.0, "recall": 50.0}
    empty = Annotation("a", BOXES[:0], labels[:0], torch.zeros(0, dtype=torch.bool))
    assert agreement([empty], [truth]) == {"count": 0, "precision": 0.0, "recall": 0.0}


REVIEWED = ReviewedBoxes(torch.tensor([[0.0, 0, 10, 11]]), torch.tensor([1]), complete=False)


def test_a_complete_review_is_all_that_is_learned():
    complete = replace(REVIEWED, complete=True)
    found = pseudo_boxes(scores(*[[0.9, 0.8]] * 4), torch.ones(2), score_threshold=0.1, reviewed=complete)
    assert torch.equal(found.boxes, REVIEWED.boxes)
    assert (found.labels.tolist(), found.scores.tolist()) == ([1], [1.0])


@pytest.mark.parametrize(("threshold", "others"), [(0.5, [(0, 2), (1, 3)]), (0.8, [(0, 2)])])
def test_reviewed_boxes_replace_the_best_of_their_class_and_suppress_others(threshold, others):
    given = scores([0.1, 0.9], [0.1, 0.1], [0.2, 0.1], [0.1, 0.7])  # of class 1, row 0 is the reviewed object
    found = pseudo_boxes(given, torch.ones(2), score_threshold=threshold, reviewed=REVIEWED)
    assert torch.equal(
        found.boxes, torch.cat([REVIEWED.boxes, *(BOXES[[row]] for _, row in sorted(others, reverse=True))])
    )
    assert found.labels.tolist() == [1, *(label for label, _ in sorted(others, reverse=True))]


def hints(points=(), labels=(), counts=(0, 0)) -> Hints:
    xy = torch.tensor(points, dtype=torch.float32).reshape(-1, 2)
    return Hints(xy, torch.tensor(labels, dtype=torch.int64), torch.tensor(counts))


def rows(found):
    return [
        (label, BOXES.tolist().index(box))
        for label, box in zip(found.labels.tolist(), found.boxes.tolist(), strict=True)
    ]


HINTED = scores([0.1, 0.6], [0.2, 0.5], [0.9, 0.4], [0.8, 0.3])


@pytest.mark.parametrize("threshold", [0.05, 1.0])
def test_a_point_is_the_best_box_that_holds_it(threshold):
    given = hints([[5, 5], [55, 5], [99, 99]], [0, 0, 0])
    found = pseudo_boxes(HINTED, torch.zeros(2), score_threshold=threshold, hints=given)
    assert rows(found) == [(0, 1), (0, 3)]  # no box holds the last point
    torch.testing.assert_close(found.scores, torch.tensor([0.2, 0.8]))


def test_a_box_with_two_points_of_its_class_is_not_taken():
    given = hints([[5, 5], [0.5, 5]], [0, 0])  # row 1 holds the first alone
    assert rows(pseudo_boxes(HINTED, torch.ones(2), score_threshold=1.0, hints=given)) == [(0, 1), (1, 0)]
    two_classes = hints([[5, 5], [0.5, 5]], [0, 1])
    assert rows(pseudo_boxes(HINTED, torch.ones(2), score_threshold=1.0, hints=two_classes)) == [
        (0, 1),
        (1, 0),
    ]


def test_a_count_limits_the_boxes_of_a_class_and_labels_the_image():
    given = hints(counts=(0, 2))
    assert rows(pseudo_boxes(HINTED, torch.zeros(2), score_threshold=0.0, hints=given)) == [(1, 0), (1, 2)]
    plain = pseudo_boxes(HINTED, torch.ones(2), score_threshold=0.0)
    assert pseudo_boxes(HINTED, torch.ones(2), score_threshold=0.0, hints=hints()) == plain


def test_reviewed_boxes_count_and_hints_do_not():
    options = {"score_threshold": 0.5, "reviewed": REVIEWED}
    plain = pseudo_boxes(HINTED, torch.ones(2), **options)
    assert pseudo_boxes(HINTED, torch.ones(2), hints=hints([[55, 5]], [0]), **options) == plain


def test_hints_of_an_image_without_proposals():
    nothing = Scores("a", torch.zeros(0, 2, 4), torch.zeros(0, 2))
    given = hints([[5, 5]], [0], (0, 2))
    assert pseudo_boxes(nothing, torch.ones(2), score_threshold=0.5, hints=given).boxes.shape == (0, 4)
