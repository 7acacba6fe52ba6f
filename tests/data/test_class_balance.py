"""Classes that cannot be learned, and labels that are probably misspelt."""

import numpy as np
import pytest

from detector.data.class_balance import doubtful_classes, one_edit_apart, repeat_factors


def test_a_sound_set_is_passed_without_a_word():
    assert doubtful_classes("set", {"car": 30, "cat": 12, "dog": 3, "plant": 9}, 40) == []
    assert doubtful_classes("set", {"cell": 30}, 40) == []  # one class, with images that do not show it


def test_classes_of_no_image_are_named_in_one_line():
    (line,) = doubtful_classes("set", {"cat": 5, "cow": 0, "whale": 0}, 9)
    assert "no image shows 'cow', 'whale'" in line
    assert "DATASETS.CLASSES" in line


@pytest.mark.parametrize("counts", [{"cell": 9}, {"cell": 9, "nucleus": 4}, {"cell": 9, "nucleus": 0}])
def test_a_class_of_every_image_is_named(counts):
    line = doubtful_classes("set", counts, 9)[-1]
    assert "all 9 images show 'cell'" in line
    assert "add images that do not show it" in line


@pytest.mark.parametrize(
    ("rare", "frequent"),
    [("catt", "cat"), ("brid", "bird"), ("dg", "dog"), ("cow", "caw"), ("Cat", "cat"), ("bigcat", "big cat")],
)
def test_a_label_that_is_nearly_another_is_named(rare, frequent):
    for names in ((rare, frequent), (frequent, rare)):
        counts = {name: 1 if name == rare else 8 for name in names}
        (line,) = doubtful_classes("set", counts, 20)
        assert f"class {rare!r}, in 1 of 20 images, differs" in line
        assert f"did you mean {frequent!r}?" in line


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("cat", "cart", True),
        ("cat", "at", True),
        ("cat", "ca", True),
        ("cat", "cta", True),
        ("cat", "act", True),
        ("cat", "cap", True),
        ("a", "", True),
        ("cat", "cat", False),
        ("", "", False),
        ("cat", "tac", False),
        ("cat", "cats!", False),
        ("abcd", "badc", False),
    ],
)
def test_one_edit(first, second, expected):
    assert one_edit_apart(first, second) is expected
    assert one_edit_apart(second, first) is expected


def test_a_class_that_is_nowhere_known_to_be_absent():
    counts = {"cat": 4, "dog": 4}
    (line,) = doubtful_classes("set", counts, 9, {"cat": 0, "dog": 3})
    assert "known not to show 'cat'" in line


def test_repeat_factors_of_images():
    labels = np.zeros((100, 3), dtype=bool)
    labels[:50, 0] = labels[49:53, 1] = True  # half of the images, and 4 of them
    factors = repeat_factors(labels, 0.16)
    assert factors[49:53] == pytest.approx([2.0] * 4)  # sqrt(0.16 / 0.04)
    assert (np.delete(factors, range(49, 53)) == 1).all()
    assert (repeat_factors(labels, 0.0) == 1).all()


def test_many_classes_are_not_all_listed():
    (line,) = doubtful_classes("set", {f"{'ab'[i % 2] * (i + 1)}": 0 for i in range(0, 60, 5)}, 9)
    assert line.count("'") == 20
    assert "and 2 more" in line


def test_many_pairs_are_not_all_listed():
    lines = doubtful_classes("set", dict.fromkeys(["cat", "Cat", "CAT", "c.at", "c a t", "ca-t"], 3), 9)
    assert len(lines) == 11
    assert "5 more pairs" in lines[-1]
