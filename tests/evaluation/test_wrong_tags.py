"""Confident learning of image labels."""

import numpy as np
import pytest

from detector.evaluation.wrong_tags import calibrate, confident_joint, find_wrong_tags

# n, share of images that show the class, of missing and false tags; what cleanlab 2.9.0 finds:
# compute_confident_joint(tags, [1 - scores, scores], calibrate=True), whose entries are rounded
CLEANLAB = [
    (40, 0.3, 0.3, 0.0, [[29, 6], [1, 4]]),
    (200, 0.4, 0.1, 0.1, [[103, 21], [14, 62]]),
    (500, 0.1, 0.4, 0.01, [[399, 60], [3, 38]]),
    (30, 0.5, 0.0, 0.0, [[7, 2], [2, 19]]),
]


def test_the_joint_is_that_of_cleanlab():
    rng = np.random.default_rng(0)
    for count, share, missing, false, expected in CLEANLAB:
        truth = rng.random(count) < share
        tags = np.where(truth, rng.random(count) >= missing, rng.random(count) < false)
        scores = np.clip(np.where(truth, 0.6, 0.3) + 0.2 * rng.standard_normal(count), 0.01, 0.99)
        np.testing.assert_array_equal(confident_joint(scores, tags).round(), expected)


def made_up(missing: float, false: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, tags and the truth of 2,000 images of three classes that are easy to tell."""
    rng = np.random.default_rng(1)
    truth = rng.random((2000, 3)) < [0.5, 0.3, 0.1]
    tags = np.where(truth, rng.random(truth.shape) >= missing, rng.random(truth.shape) < false)
    logits = np.where(truth, 3.0, -3.0) + 1.2 * rng.standard_normal(truth.shape)
    return 1 / (1 + np.exp(-logits)), tags, truth


@pytest.mark.parametrize(("missing", "false"), [(0.1, 0.0), (0.4, 0.0), (0.1, 0.05), (0.0, 0.05)])
def test_wrong_tags_are_found(missing, false):
    scores, tags, truth = made_up(missing, false)
    found, wrong = find_wrong_tags(scores, tags), tags != truth
    order = np.argsort(-found.probability, axis=None)[: wrong.sum()]
    assert wrong.ravel()[order].mean() > 0.9
    assert found.expected == pytest.approx(wrong.sum(), rel=0.3)
    images, labels = zip(*found.suspects(), strict=True)
    precision = wrong[images, labels].mean()
    assert found.probability[images, labels].mean() == pytest.approx(precision, abs=0.2)


def test_right_tags_are_hardly_doubted():
    scores, tags, _ = made_up(0.0, 0.0)
    assert find_wrong_tags(scores, tags).expected < 0.02 * tags.size


def test_unknown_tags_and_classes_that_all_images_show_are_not_doubted():
    scores, tags, _ = made_up(0.4, 0.0)
    known = np.ones_like(tags)
    known[:1000] = False
    tags[:, 2] = True
    found = find_wrong_tags(scores, tags, known)
    assert (found.probability[:1000] == 0).all()
    assert (found.probability[:, 2] == 0).all()
    assert found.probability[1000:, 0].max() > 0.5


def test_calibration_reaches_the_share_of_tags():
    scores, tags, _ = made_up(0.4, 0.0)
    tagged = calibrate(scores[:, 0], tags[:, 0])
    assert tagged.mean() == pytest.approx(tags[:, 0].mean(), abs=0.01)
    assert (np.diff(tagged[np.argsort(scores[:, 0])]) >= 0).all()
    upside_down = calibrate(1 - scores[:, 0], tags[:, 0])
    assert upside_down.std() < 1e-9
