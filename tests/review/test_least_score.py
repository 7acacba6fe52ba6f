"""The least score that is suggested from reviewed images."""

from review_cases import CLASSES

from detector.data.formats.review import ReviewImage
from detector.data.formats.review_file import replay, start_of
from detector.data.labeled_box import LabeledBox
from detector.review.least_score import saved_actions, suggest_least_score

BIRD, CAR = CLASSES
ACCEPT = {"kind": "accept_all", "complete": True}


def reviewed(*boxes: LabeledBox, rejected: str = "", actions=()):
    start = start_of(ReviewImage("0.png", (100, 100), boxes), CLASSES)
    rejects = [{"kind": "reject", "id": f"d{number}"} for number in map(int, rejected)]
    return start, replay(start, [*rejects, *actions, ACCEPT], CLASSES, (100, 100))


def test_what_showing_a_box_saves() -> None:
    boxes = (
        LabeledBox(BIRD, (0, 0, 20, 20), 0.9),  # the best bird is shown at any score
        LabeledBox(BIRD, (1, 0, 20, 20), 0.8),  # the same bird again
        LabeledBox(BIRD, (50, 50, 80, 80), 0.6),  # right
        LabeledBox(BIRD, (50, 0, 80, 20), 0.5),  # off: drawn anew
        LabeledBox(BIRD, (0, 80, 20, 100), 0.4),  # nothing
        LabeledBox(CAR, (0, 80, 20, 100), 0.3),
    )
    drawn = {"kind": "change", "id": "d3", "box": [50, 0, 80, 30], "how": "drawn"}
    saved = saved_actions(*reviewed(*boxes, rejected="14", actions=[drawn]))
    assert sorted(saved, reverse=True) == [(0.8, -1), (0.6, 1), (0.5, 0), (0.4, -1)]


def test_the_least_score_hides_what_was_rejected_and_shows_what_was_right() -> None:
    right = LabeledBox(BIRD, (50, 50, 80, 80), 0.42)
    wrong = LabeledBox(BIRD, (0, 80, 20, 100), 0.33)
    best = LabeledBox(BIRD, (0, 0, 20, 20), 0.9)
    images = [reviewed(best, right, wrong, rejected="2")] * 10
    assert suggest_least_score(images) == 0.4
    assert suggest_least_score(images[:9]) is None
    assert suggest_least_score([reviewed(best, wrong, rejected="1")] * 10) == 1.0
    assert suggest_least_score([reviewed()] * 10) == 1.0
