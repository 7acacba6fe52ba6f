"""What the test of a detector says of keys that do not change it."""

import pytest

from detector.inference.results import ignored_keys


@pytest.mark.parametrize("overrides", [("TEST.NMS", 0.4), {"TEST.NMS": 0.4}])
def test_keys_of_the_weak_detector_are_ignored_for_a_student(overrides):
    told = ignored_keys(overrides, student=True)
    assert told.startswith("TEST.NMS changes nothing for a student, which has SELF_TRAIN.SIZES")
    assert ignored_keys(overrides, student=False) == ""


def test_keys_of_a_student_are_ignored_for_the_weak_detector():
    overrides = {"SELF_TRAIN.SIZES": (64,), "TEST.PICTURES": 3}
    assert ignored_keys(overrides, student=False).startswith("SELF_TRAIN.SIZES changes nothing for the weak")
    assert ignored_keys(overrides, student=True) == ""


@pytest.mark.parametrize("student", [False, True])
def test_a_key_of_both_is_ignored_for_none(student):
    assert ignored_keys(("TEST.SCORE_THRESHOLD", 0.1), student=student) == ""
