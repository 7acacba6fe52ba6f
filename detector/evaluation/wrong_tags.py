"""Which image labels are probably wrong, by scores of detectors that have not learned from them.

Confident learning (Northcutt, Jiang and Chuang, JAIR 2021, arXiv 1911.00068) for each class against the rest,
as an image may show several.
"""

from dataclasses import dataclass

import numpy as np

_STEPS = 50  # of Newton's method, which takes about ten
_PENALTY = 1e-2
_ROUNDS = 3  # of calibration and Bayes' rule; with many, fewer and fewer tags are doubted


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

    How often tags are missing and false is taken to be the same for all classes, and estimated by confident
    learning. Bayes' rule gives the probabilities that images show a class, to which scores are then
    calibrated anew, a few times. Where many tags are wrong, fewer than there are are doubted.

    Args:
        scores: (N, C) in [0, 1], how likely the image shows the class, by a model that has not seen its tags.
        tags: (N, C) bool.
        known: (N, C) bool, tags that count; the others have the probability 0. None: all.
    """
    known = np.ones_like(tags) if known is None else known
    shown, joint = np.where(known, tags, 0.0), np.zeros((tags.shape[1], 2, 2))
    usable = [c for c in range(tags.shape[1]) if 0 < tags[known[:, c], c].sum() < known[:, c].sum()]
    for step in range(_ROUNDS + 1):
        prior = {c: calibrate(scores[known[:, c], c], shown[known[:, c], c]) for c in usable}
        for c in usable if step == 0 else ():
            joint[c] = confident_joint(prior[c], tags[known[:, c], c])
        missing, false = rates(joint)
        for c, rows in ((c, known[:, c]) for c in usable):
            if step == 0:  # these are the probabilities of tags
                prior[c] = ((prior[c] - false) / max(1 - missing - false, 1e-9)).clip(0, 1)
            shown[rows, c] = posterior(prior[c], tags[rows, c], missing, false)
        for c, rows in ((c, known[:, c]) for c in usable):
            tag, likely = tags[rows, c], shown[rows, c]
            joint[c] = [[(1 - likely) @ ~tag, likely @ ~tag], [(1 - likely) @ tag, likely @ tag]]
    probability = np.where(tags, 1 - shown, shown)
    probability[~known] = 0
    return WrongTags(probability, joint)


def rates(joint: np.ndarray) -> tuple[float, float]:
    """The share of missing tags among images that show a class, and of false ones among the others.

    Args:
        joint: (C, 2, 2) of :class:`WrongTags`.
    """
    (_, missing), (false, _) = joint.sum(axis=0) / joint.sum(axis=(0, 1)).clip(1e-9)
    return float(missing), float(false)


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


def posterior(prior: np.ndarray, tags: np.ndarray, missing: float, false: float) -> np.ndarray:
    """The probability (N,) that an image shows the class: `prior` (N,), once its tag (N,) bool is known."""
    of_shown = np.where(tags, 1 - missing, missing) * prior
    of_others = np.where(tags, false, 1 - false) * (1 - prior)
    return of_shown / (of_shown + of_others).clip(1e-12)
