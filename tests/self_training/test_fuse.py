"""Boxes of a teacher beside those of a weak detector."""

from dataclasses import replace

import pytest
import torch

from detector.self_training.fuse import (
    Support,
    Trust,
    advice,
    disagreement,
    estimate_trust,
    fuse,
    select,
    support,
)
from detector.structures import Detections, Scores, TeacherBoxes

A, B, C = [0.0, 0, 10, 10], [50.0, 0, 60, 10], [0.0, 50, 10, 60]
NEAR_A = [0.0, 0, 10, 14]


def found(*boxes, labels=None, scores=None):
    count = len(boxes)
    labels = torch.tensor(labels or [0] * count, dtype=torch.int64)
    values = torch.tensor(scores or [0.9] * count)
    return TeacherBoxes(torch.tensor(boxes).reshape(-1, 4), values, labels)


def ours(*boxes, labels=None):
    labels = torch.tensor(labels or [0] * len(boxes), dtype=torch.int64)
    return Detections("a", torch.tensor(boxes).reshape(-1, 4), torch.full((len(boxes),), 0.5), labels)


def trust(precision=1.0, recall=1.0, agreement=1.0, threshold=0.0, unfound=0.0, classes=2):
    values = (threshold, precision, recall, 0.0, agreement, unfound)
    return Trust(*(torch.full((classes,), value) for value in values))


BOTH = torch.tensor([1.0, 1.0])


def test_without_trust_it_is_what_the_tags_give() -> None:
    own = ours(A, B, C, labels=[0, 0, 1])
    made = fuse(own, found(NEAR_A, [20.0, 20, 30, 30]), BOTH, trust(precision=0.0))
    assert (made.boxes.tolist(), made.labels.tolist()) == (own.boxes.tolist(), own.labels.tolist())
    assert made.scores.tolist() == [1, 1, 1]
    assert fuse(own, None, BOTH, trust()).boxes.equal(own.boxes)


def test_with_full_trust_it_is_what_the_teacher_found_filtered_by_the_tags() -> None:
    teacher = found(NEAR_A, C, B, labels=[0, 0, 1])
    made = fuse(ours(A, B), teacher, torch.tensor([1.0, 0.0]), trust())
    assert made.boxes.tolist() == [NEAR_A, C]
    assert made.scores.tolist() == [1, 1]


def test_between_them_boxes_of_one_object_are_averaged_and_others_weighted() -> None:
    made = fuse(ours(A, B), found(NEAR_A, C), BOTH, trust(precision=0.75, unfound=0.5))
    assert made.boxes.tolist() == [[0, 0, 10, 13], C, B]
    assert made.scores.tolist() == pytest.approx([1, 0.75, 1 - 0.375])


def test_a_class_learns_from_its_source_alone() -> None:
    doubted, mine, teacher = trust(precision=0.5), ours(A, B, labels=[0, 1]), found(C, NEAR_A, labels=[0, 1])
    made = fuse(mine, teacher, BOTH, doubted.learn_from(["tags", "teacher"]))
    assert sorted(zip(made.labels.tolist(), made.boxes.tolist(), strict=True)) == [(0, A), (1, NEAR_A)]
    assert made.scores.tolist() == [1, 1]
    same = doubted.learn_from(["both", "both"])
    assert all(value.equal(getattr(same, key)) for key, value in vars(doubted).items())


def test_of_a_box_in_one_of_the_teacher_either_is_right() -> None:
    part, whole, elsewhere = [0.0, 0, 4, 4], A, B
    made = fuse(ours(part, elsewhere), found(whole), BOTH, trust(precision=0.6, unfound=0.5))
    assert made.boxes.tolist() == [elsewhere, whole, part]
    assert made.scores.tolist() == pytest.approx([1 - 0.6 * 0.5, 0.6, 0.4])


def test_a_class_of_which_the_teacher_found_nothing_keeps_our_boxes() -> None:
    made = fuse(ours(A, B, labels=[0, 1]), found(C), BOTH, trust())
    assert {tuple(box) for box in made.boxes.tolist()} == {tuple(B), tuple(C)}


def test_reviewed_boxes_stay_first_and_are_all_of_a_complete_image() -> None:
    own = ours(A, B)
    made = fuse(own, found(NEAR_A, C), BOTH, trust(), fixed=1)
    assert made.boxes.tolist() == [A, C]
    assert fuse(own, found(C), BOTH, trust(), fixed=2, complete=True).boxes.equal(own.boxes)


def test_masks_without_a_class_low_scores_and_repeated_boxes_are_left_out() -> None:
    teacher = found(A, NEAR_A, B, C, A, labels=[0, 0, 0, -1, 1], scores=[0.9, 0.8, 0.2, 0.9, 0.9])
    chosen = select(teacher, BOTH, trust(threshold=0.5))
    assert chosen.boxes.tolist() == [A, A]
    assert chosen.labels.tolist() == [0, 1]


def test_empty_sides() -> None:
    assert len(fuse(ours(), found(), BOTH, trust())) == 0
    assert fuse(ours(), found(A), BOTH, trust()).boxes.tolist() == [A]
    assert fuse(ours(A), found(), BOTH, trust()).boxes.tolist() == [A]


SAID = {"best": 0.8, "confirmed": 1.0, "inside": -torch.inf, "anywhere": 0.0, "chance": 0.3}


def estimated(boxes_of, images=200, agrees=None, **said):
    """The trust in one class, which every second image shows; `boxes_of` gives the boxes of an image.

    Args:
        agrees: of a row, whether the weak detector supports its boxes; None: there is none.
        said: the other fields of what the weak detector says, in each image.
    """
    shown = torch.arange(images)[:, None] % 2 == 0
    teacher = [boxes_of(row, bool(shown[row, 0])) for row in range(images)]
    supports = None
    if agrees is not None:
        of_class = {key: torch.tensor([value]) for key, value in (SAID | said).items()}
        supports = [
            Support(torch.full((len(each),), float(agrees(row))), **of_class)
            for row, each in enumerate(teacher)
        ]
    return estimate_trust(teacher, shown, torch.ones_like(shown), supports)


def test_the_trust_in_a_perfect_a_blind_and_a_silent_teacher() -> None:
    perfect = estimated(lambda row, shows: found(A) if shows else found())
    assert float(perfect.of_boxes) == pytest.approx(1, abs=0.02)
    assert float(perfect.recall) == 1
    blind = estimated(lambda row, shows: found(A) if row % 3 else found())
    assert float(blind.of_boxes) < 0.1
    silent = estimated(lambda row, shows: found())
    assert (float(silent.of_boxes), float(silent.recall)) == (0, 0)


def test_half_of_the_images_missed_is_recall_and_boxes_in_others_are_false() -> None:
    half = estimated(lambda row, shows: found(A) if shows and row % 4 == 0 else found())
    assert float(half.recall) == 0.5
    assert float(half.of_boxes) > 0.95
    extra = estimated(lambda row, shows: found(A, B) if shows else found(B))
    assert float(extra.precision) == pytest.approx(0.43, abs=0.03)  # 0.5, less what may be chance
    assert float(extra.denied) == 1


def test_few_boxes_are_trusted_less_than_many() -> None:
    def three_of_four(row, shows):
        return found(A) if row % 16 < (12 if shows else 3) else found()

    precisions = [float(estimated(three_of_four, images).precision) for images in (16, 64, 256, 1024)]
    assert precisions == sorted(precisions)
    assert precisions[0] < 0.55
    assert precisions[-1] == pytest.approx(5 / 6, abs=0.04)


def test_the_threshold_is_set_by_the_tags() -> None:
    noisy = estimated(lambda row, shows: found(A, B, scores=[0.8, 0.3]) if shows else found(C, scores=[0.3]))
    assert float(noisy.thresholds) == pytest.approx(0.8)
    assert float(noisy.of_boxes) > 0.95


def test_unknown_tags_and_images_that_the_teacher_has_not_seen_do_not_count() -> None:
    shown = torch.tensor([[True]] * 20 + [[True], [False], [False]])
    known = torch.ones_like(shown)
    known[-1] = False
    teacher = [found(A)] * 20 + [None, found(), found(A)]
    trusted = estimate_trust(teacher, shown, known, None)
    assert (float(trusted.recall), float(trusted.denied)) == (1, 0)


def test_where_no_image_is_without_the_class_the_weak_detector_alone_judges() -> None:
    shown = torch.ones(50, 1, dtype=torch.bool)
    assert float(estimate_trust([found(A)] * 50, shown, shown, None).precision) == 1


def test_a_perfect_teacher_is_trusted_although_the_weak_detector_is_not_perfect() -> None:
    def trusted(**keys):
        return float(estimated(lambda row, shows: found(A) if shows else found(), **keys).of_boxes)

    assert trusted(agrees=lambda row: row % 10 < 8) > 0.85  # as often as the weak detector is right
    assert trusted(agrees=lambda row: row % 10 < 2) == 0  # as often as by chance
    assert 0.3 < trusted(agrees=lambda row: row % 20 < 12) < 0.6
    assert trusted(agrees=lambda row: False) == 0
    # It takes its own boxes for worse than others: it cannot tell.
    assert trusted(agrees=lambda row: False, best=0.2) > 0.95


def test_a_weak_detector_that_finds_parts_is_no_evidence_against_wholes() -> None:
    def trusted(anywhere):
        said = {"agrees": lambda row: False, "inside": 0.9, "anywhere": anywhere}
        return float(estimated(lambda row, shows: found(A) if shows else found(), **said).of_boxes)

    assert trusted(0.1) > 0.95  # ours lie in its boxes, others do not
    assert trusted(0.9) == 0  # its boxes hold anything, as the whole image does


def test_the_weak_detector_supports_boxes_with_nothing_much_better_beside() -> None:
    boxes = torch.tensor([A, NEAR_A, [0.0, 0, 30, 10], B])[:, None].expand(-1, 2, 4)
    scores = Scores("a", boxes, torch.tensor([[0.8, 0.1], [0.3, 0.1], [0.1, 0.1], [0.1, 0.5]]))
    teacher = found(A, NEAR_A, [0.0, 0, 40, 10], B, C, A, labels=[0, 0, 0, 0, 0, -1])
    said = support(teacher, scores, BOTH > 0)
    assert said.agreed[:5].tolist() == [1, 1, 0, 1, 0]  # B is another place; nothing is at C
    assert said.agreed[5].isnan()
    assert said.best.tolist() == pytest.approx([0.8, 0.5])
    assert said.confirmed.tolist() == pytest.approx([0.9, -torch.inf])
    assert said.inside.tolist() == pytest.approx([0.9, -torch.inf])
    assert said.anywhere.tolist() == pytest.approx([1, 0])  # its boxes of the first class hold all of ours
    # Elsewhere than A or NEAR_A: the wide box, which A beats, and B. Elsewhere than B: all.
    assert said.chance.tolist() == pytest.approx([0.5, 1])
    assert support(teacher, scores, BOTH < 0).agreed.isnan().all()  # the image shows neither class
    empty = support(found(A), Scores("a", torch.zeros(0, 2, 4), torch.zeros(0, 2)), BOTH > 0)
    assert (empty.agreed.tolist(), empty.best.tolist(), empty.chance.tolist()) == ([0], [0, 0], [0, 0])
    assert len(support(found(), scores, BOTH > 0).agreed) == 0


def test_boxes_that_the_teacher_lacks_count_as_much_as_they_are_likely_to_be_right() -> None:
    def unfound(**keys):
        return float(estimated(lambda row, shows: found(A) if shows else found(), **keys).unfound)

    always, never = {"agrees": lambda row: True}, {"confirmed": -torch.inf}
    assert unfound(**always) == 0  # it has all of ours
    assert unfound(**always, **never) == pytest.approx(0.8)  # it has none of ours, so it tells nothing
    assert unfound() == 0  # there are no boxes of ours


def test_a_teacher_disagrees_with_tags_and_with_the_weak_detector() -> None:
    shown, known = torch.tensor([True, False]), torch.tensor([True, True])
    values = trust(recall=0.75, threshold=0.5)  # finds no class in images without it
    none = torch.zeros(2)
    said = Support(torch.zeros(0), torch.tensor([0.25, 0.5]), torch.tensor([0.9, 0.9]), none, none, none)
    elsewhere = replace(said, confirmed=torch.tensor([0.4, 0.4]))

    def of(teacher, support=None, known=known):
        return disagreement(teacher, shown, known, values, support)

    assert of(found(A)) == 0
    assert of(found()) == of(found(A, scores=[0.4])) == 0.75  # it lacks the class
    assert of(found(A, B, labels=[0, 1])) == 1  # it has another one
    assert of(found(A, B, labels=[0, 1]), known=torch.tensor([True, False])) == 0
    assert (of(found(A), said), of(found(A), elsewhere)) == (0, 0.25)


def test_advice() -> None:
    assert advice(trust().describe(["a", "b"])["a"] | {"denied": 0.0}) == "alone"
    assert advice(trust(recall=0.5).describe(["a", "b"])["b"]) == "with tags"
    nobody = trust(agreement=torch.nan).describe(["a", "b"])["a"]
    assert (nobody["of_boxes"], nobody["agreement"], advice(nobody)) == (1, None, "with tags")
    assert advice(trust(precision=0.05).describe(["a", "b"])["b"]) == "not"
