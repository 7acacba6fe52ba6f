"""Thresholds of scores: the highest F1, measured with boxes or estimated from tags."""

import numpy as np
import pytest
import torch

from detector.evaluation.thresholds import FALLBACK, best_threshold, choose_thresholds, tagged_hits
from detector.structures import Annotation, Detections

BOX, ELSEWHERE = [0.0, 0, 10, 10], [50.0, 50, 60, 60]


def found(name: str, *rows: tuple[float, int, list[float]]) -> Detections:
    """Detections (score, label, box), best first."""
    scores, labels, boxes = zip(*rows, strict=True) if rows else ((), (), ())
    return Detections(
        name, torch.tensor(boxes).reshape(-1, 4), torch.tensor(scores), torch.tensor(labels).long()
    )


def truth(name: str, labels: list[int], boxes: list[list[float]] | None = None) -> Annotation:
    boxes = [BOX] * len(labels) if boxes is None else boxes
    return Annotation(
        name, torch.tensor(boxes).reshape(-1, 4), torch.tensor(labels).long(), torch.zeros(len(labels)).bool()
    )


def test_the_highest_f1_by_hand() -> None:
    # F1 after each of four detections of three objects: 2/4, 2/5, 4/6, 4/7.
    value, rule, f1 = best_threshold(np.array([0.9, 0.8, 0.6, 0.1]), np.array([1, 0, 1, 0]), 3, "boxes")
    assert (value, rule, f1) == (pytest.approx(0.35), "boxes", pytest.approx(4 / 6))
    value, _, _ = best_threshold(np.array([0.9, 0.8]), np.array([1, 1]), 2, "boxes")
    assert value == pytest.approx(0.4)  # all are shown: halfway to 0
    # The best cut is between equal scores, where no threshold is.
    value, _, f1 = best_threshold(np.array([0.9, 0.5, 0.5]), np.array([1, 1, 0]), 2, "boxes")
    assert (value, f1) == (pytest.approx(0.25), pytest.approx(4 / 5))


def test_of_equal_f1_fewer_boxes_are_shown() -> None:
    # 2/3, 2/4, then 4/6 again.
    value, _, _ = best_threshold(np.array([0.9, 0.5, 0.4, 0.3]), np.array([1, 0, 0, 1]), 2, "boxes")
    assert value == pytest.approx(0.7)


def test_nothing_is_known_without_detections_or_objects() -> None:
    nothing = np.zeros(0)
    assert best_threshold(nothing, nothing, 3, "tags") == (FALLBACK, "none", 0)
    assert best_threshold(np.array([0.9]), np.array([0.0]), 0, "tags") == (FALLBACK, "none", 0)


def test_no_threshold_is_better_than_that_with_boxes() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        scores = np.sort(generator.integers(1, 30, 40) / 30)[::-1]
        hits, objects = generator.random(40) < scores, 25
        value, _, f1 = best_threshold(scores, hits, objects, "boxes")
        tried = np.linspace(0, 1, 301)
        f1s = [2 * hits[scores > each].sum() / ((scores > each).sum() + objects) for each in tried]
        assert f1 == pytest.approx(max(f1s))
        assert 2 * hits[scores > value].sum() / ((scores > value).sum() + objects) == pytest.approx(f1)


def test_tags_tell_how_many_of_the_best_count() -> None:
    # Of the tagged images, one has two detections above half of its best and one has one: 1.5 objects each.
    scores = [np.array([0.8, 0.6, 0.3]), np.array([0.9, 0.2]), np.array([0.7]), np.array([0.5])]
    tags, known = torch.tensor([True, True, False, False]), torch.tensor([True, True, True, False])
    every, hits, per_image = tagged_hits(scores, tags, known, torch.ones(4).bool())
    assert every.tolist() == [0.8, 0.6, 0.3, 0.9, 0.2, 0.7]
    assert hits.tolist() == pytest.approx([1, 0.5, 0, 1, 0.5, 0])
    assert per_image == pytest.approx(1.5)


def test_boxes_decide_where_all_images_have_them_and_tags_where_none_has() -> None:
    # Class 0 is found at 0.9 and 0.6, class 1 is wrong at 0.8 and right at 0.2.
    images = [
        found("a", (0.9, 0, BOX), (0.8, 1, ELSEWHERE), (0.2, 1, BOX)),
        found("b", (0.6, 0, BOX), (0.5, 0, ELSEWHERE)),
        found("c", (0.4, 0, BOX)),
    ]
    truths = [truth("a", [0, 1]), truth("b", [0]), truth("c", [])]
    labels = torch.tensor([[1, 1], [1, 0], [0, 0]]).bool()
    known = torch.ones_like(labels)
    first, second = choose_thresholds(images, truths, labels, known)
    assert (first.rule, first.value, first.f1) == ("boxes", pytest.approx(0.55), 1.0)
    assert (second.rule, second.value) == ("boxes", pytest.approx(0.1))
    first, second = choose_thresholds(images, [None] * 3, labels, known)
    assert (first.rule, second.rule) == ("tags", "tags")
    assert first.value == pytest.approx(0.45)  # of image b two are expected, image c has no tag
    assert second.value == pytest.approx(0.5)  # the best one of image a counts, wherever it is


def test_an_image_with_boxes_counts_for_what_it_is_beside_tags() -> None:
    images = [found(name, (0.9, 0, BOX), (0.1, 0, ELSEWHERE)) for name in "abcd"]
    labels = torch.ones(4, 1).bool()
    (of_tags,) = choose_thresholds(images, [None] * 4, labels, labels)
    assert of_tags.f1 == 1.0
    wrong = truth("a", [0], [ELSEWHERE])
    (chosen,) = choose_thresholds(images, [wrong, None, None, None], labels, labels)
    assert (chosen.rule, chosen.f1) == ("tags", pytest.approx(6 / 8))
