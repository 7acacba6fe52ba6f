"""Classes that are hard or impossible to learn from image labels, and how often to draw rare ones."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

_RARE = 4  # a class with so many times fewer images than one of nearly the same name is probably misspelt
_MOST_SHOWN = 10  # classes of a line, and pairs of classes


def repeat_factors(labels: np.ndarray, threshold: float) -> np.ndarray:
    """How often to draw each image while others are drawn once (LVIS, Gupta et al., arXiv 1908.03195, A.1).

    A class that the share f < `threshold` of the images shows has the factor sqrt(threshold / f), others 1;
    an image has the largest factor of its classes.

    Args:
        labels: (N, C) bool.
        threshold: in [0, 1]; 0: all factors are 1.

    Returns:
        (N,) float64, at least 1.
    """
    shares = np.maximum(labels.mean(axis=0), 1 / len(labels))  # (C,); no image has a class that none shows
    factors = np.maximum(1, np.sqrt(threshold / shares))
    return np.where(labels, factors, 1.0).max(axis=1, initial=1.0)


def doubtful_classes(
    name: str,
    images_per_class: Mapping[str, int],
    num_images: int,
    images_without_class: Mapping[str, int] | None = None,
) -> list[str]:
    """One line for each kind of problem, with the classes it concerns and what to do; usually none.

    A class that no image shows, or every image, cannot be learned: image labels then say nothing about where
    its objects are. A class whose name is nearly that of another is probably a misspelt label.

    Args:
        name: what the lines call the data set.
        images_per_class: the number of images that show each class.
        num_images: the number of images of the data set.
        images_without_class: the number of images that are known not to show each class; None: all others.
    """
    lines = []
    counts = images_per_class
    if absent := [each for each in counts if counts[each] == 0]:
        lines.append(
            f"{name}: no image shows {_listed(absent)}, which cannot be learned: add images that do, or "
            "leave the class out of DATASETS.CLASSES"
        )
    absent_in = images_without_class or {each: num_images - counts[each] for each in counts}
    hidden = [each for each in counts if 0 < counts[each] < num_images and absent_in[each] == 0]
    if hidden:
        lines.append(
            f"{name}: no image is known not to show {_listed(hidden)}, which cannot be learned: where the "
            "label is not there, it is unknown; label some of these images"
        )
    if everywhere := [each for each in counts if 0 < counts[each] == num_images]:
        lines.append(
            f"{name}: all {num_images} images show {_listed(everywhere)}, which cannot be learned from image "
            "labels: add images that do not show it"
        )
    return lines + _misspelt(name, counts, num_images)


def _misspelt(name: str, counts: Mapping[str, int], num_images: int) -> list[str]:
    """One line for each pair of classes of which one is probably a misspelling of the other."""
    plain = {each: _plain(each) for each in counts}
    lines = []
    for pair in combinations(counts, 2):
        rare, frequent = sorted(pair, key=counts.__getitem__)
        if plain[rare] == plain[frequent]:
            difference = "only in capitals, spaces or punctuation"
        # "car" and "cat" are both real classes of VOC and COCO, with a similar number of images.
        elif 0 < counts[rare] * _RARE <= counts[frequent] and one_edit_apart(plain[rare], plain[frequent]):
            difference = "in one letter"
        else:
            continue
        lines.append(
            f"{name}: class {rare!r}, in {counts[rare]} of {num_images} images, differs {difference} from "
            f"{frequent!r}, in {counts[frequent]}: did you mean {frequent!r}? Correct the labels, unless "
            "they are two classes"
        )
    more = [f"{name}: {len(lines) - _MOST_SHOWN} more pairs of classes have nearly the same name"]
    return lines[:_MOST_SHOWN] + (more if len(lines) > _MOST_SHOWN else [])


def one_edit_apart(first: str, second: str) -> bool:
    """Whether one letter replaced, inserted, removed or exchanged with its neighbor makes one the other."""
    if first == second or abs(len(first) - len(second)) > 1:
        return False
    start = 0
    while first[start : start + 1] == second[start : start + 1]:
        start += 1
    first, second = first[start:], second[start:]
    return (
        first[1:] == second[1:]
        or first[1:] == second
        or first == second[1:]
        or (first[:2] == second[1::-1] and first[2:] == second[2:])
    )


def _plain(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum()) or name


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(map(repr, names[:_MOST_SHOWN])) + more
