"""Which image labels are probably wrong, by scores of detectors that have not learned from them.

Confident learning (Northcutt, Jiang and Chuang, JAIR 2021, arXiv 1911.00068) for each class against the rest,
as an image may show several.
"""

from dataclasses import dataclass

import numpy as np

_STEPS = 50  # of Newton's method, which takes about ten
_PENALTY = 1e-2
_ROUNDS = 20  # of expectation and maximization


@dataclass(frozen=True)
class WrongTags:
    """What is estimated of the tags (N, C)."""

    probability: np.ndarray  # (N, C) float64, that the tag is wrong: false where it is there, else missing
    joint: np.ndarray  # (C, 2, 2) float64, images by tag and truth: [c, 0, 1] are missing, [c, 1, 0] false

    @property
    def expected(self) -> int:
        """How many tags are wrong."""
        return round(float(self.joint[:, 0, 1].sum() + self.joint[:, 1, 0].sum()))

    def suspects(self) -> list[tuple[int, int]]:
        """(image, class) of as many tags as are expected to be wrong, the most likely first."""
        order = np.argsort(-self.probability, axis=None, kind="stable")[: self.expected]
        return [
            (int(i), int(c)) for i, c in zip(*np.unravel_index(order, self.probability.shape), strict=True)
        ]


def find_wrong_tags(scores: np.ndarray, tags: np.ndarray, known: np.ndarray | None = None) -> WrongTags:
    """The probability of each tag to be wrong.

    Args:
        scores: (N, C) in [0, 1], how likely the image shows the class, by a model that has not seen its tags.
        tags: (N, C) bool.
        known: (N, C) bool, tags that count; the others have the probability 0. None: all.
    """
    known = np.ones_like(tags) if known is None else known
    probability, joint = np.zeros(tags.shape), np.zeros((tags.shape[1], 2, 2))
    for label in range(tags.shape[1]):
        rows = known[:, label]
        tag = tags[rows, label]
        if tag.all() or not tag.any():
            continue  # nothing to learn from
        joint[label] = confident_joint(calibrate(scores[rows, label], tag), tag)
        shown, joint[label] = fit(scores[rows, label], tag, joint[label])
        probability[rows, label] = np.where(tag, 1 - shown, shown)
    return WrongTags(probability, joint)


def calibrate(scores: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Probabilities (N,), the logistic function of the logit of scores (N,) that fits targets (N,) best.

    Its two numbers have the highest likelihood, less a small penalty, which keeps them finite.
    """
    clipped = np.clip(scores.astype(np.float64), 1e-4, 1 - 1e-4)
    inputs = np.stack([np.log(clipped / (1 - clipped)), np.ones(len(scores))], axis=1)  # (N, 2)
    weights = np.zeros(2)
    for _ in range(_STEPS):
        found = _logistic(inputs @ weights)
        curvature = inputs.T @ (inputs * (found * (1 - found))[:, None]) + _PENALTY * np.eye(2)
        step = np.linalg.solve(curvature, inputs.T @ (targets - found) - _PENALTY * weights)
        weights += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-6:
            break
    if weights[0] <= 0:  # a higher score never makes a class less likely
        return np.full(len(scores), targets.mean())
    return _logistic(inputs @ weights)


def _logistic(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(logits, -500, 500)))


def fit(scores: np.ndarray, tags: np.ndarray, joint: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probability (N,) that an image shows the class, given its score and its tag, and the joint of that.

    By expectation and maximization: the scores are calibrated to the probabilities, and with how often a tag
    is missing or false give new ones, by Bayes' rule.

    Args:
        joint: (2, 2) to begin with, of :func:`confident_joint`.
    """
    missing, false = joint[0, 1] / joint[:, 1].sum(), joint[1, 0] / joint[:, 0].sum()
    tagged = calibrate(scores, tags)
    shown = posterior(((tagged - false) / max(1 - missing - false, 1e-9)).clip(0, 1), tags, joint)
    for _ in range(_ROUNDS):
        joint = np.array([[(1 - shown) @ ~tags, shown @ ~tags], [(1 - shown) @ tags, shown @ tags]])
        shown = posterior(calibrate(scores, shown), tags, joint)
    return shown, joint


def confident_joint(tagged: np.ndarray, tags: np.ndarray) -> np.ndarray:
    """How many images have the tag (row 1) or not, and show the class (column 1) or not, (2, 2).

    An image counts as showing the class if the probability of its tag is at least the mean of those that have
    it, and as not showing it likewise; of both, the more likely. Rows are scaled to all images with that tag.

    Args:
        tagged: (N,) probability of the tag.
        tags: (N,) bool, some of them and not all.
    """
    both = np.stack([1 - tagged, tagged], axis=1)  # (N, 2)
    means = np.array([both[~tags, 0].mean(), both[tags, 1].mean()])
    confident = both >= means - 1e-9  # equal ones, too, despite rounding
    truth = np.where(confident, both, -1.0).argmax(axis=1)
    counts = np.zeros((2, 2))
    chosen = confident.any(axis=1)
    np.add.at(counts, (tags[chosen].astype(int), truth[chosen]), 1)
    np.fill_diagonal(counts, counts.diagonal().clip(min=1))
    return counts / counts.sum(axis=1, keepdims=True) * np.bincount(tags, minlength=2)[:, None]


def posterior(prior: np.ndarray, tags: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """The probability (N,) that an image shows the class, once its tag is known, by Bayes' rule.

    Args:
        prior: (N,) without the tag.
        joint: of :func:`confident_joint`, which says how often a tag is missing or false.
    """
    of_shown, of_others = np.where(tags[:, None], joint[1, ::-1], joint[0, ::-1]).T / joint.sum(axis=0)[
        ::-1, None
    ].clip(1e-9)
    return of_shown * prior / (of_shown * prior + of_others * (1 - prior)).clip(1e-12)
