"""Splits tagged pictures into training and validation, by scene."""

import hashlib
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from detector.data.sources.splits import TRAIN, VAL
from detector.data.sources.tagged import Tagged
from detector.utils.errors import DataError, counted, shortened

_VAL_SHARE = 0.2
_LEAST_SCENES = 4  # of each class, for a split by scene
# Least share of the wanted validation pictures of a class, and largest share of all its pictures.
_LEAST_SHARE, _MOST_TESTED = 0.25, 0.5
_MOST_SHARE = 1.5 * _VAL_SHARE  # of all pictures, to test on
_MOST_LISTED = 4  # scenes that a message names
SPLIT_BY = ("auto", "scene", "picture")


def split_pictures(tagged: Sequence[Tagged], by: str = "auto") -> tuple[list[Tagged], list[Tagged], str]:
    """Training and validation pictures, and a description of the split; it depends on the names alone.

    Pictures of one scene belong in one split: otherwise test results are too optimistic. Scenes are
    recognized by names such as street_001.jpg and street_002.jpg. If a class then has too few scenes to
    divide, or one scene has nearly all of its pictures, or scenes are so large that far more than a fifth of
    all pictures would be tested on, single pictures are divided. Copies of a picture stay
    together.

    Args:
        by: "scene", "picture", or "auto": by scene where the rule above allows it.
    """
    parts = [[picture for picture in tagged if picture.split == split] for split in (TRAIN, VAL)]
    others = [picture.name for picture in tagged if picture.split is None]
    if others and len(others) < len(tagged):
        warnings.warn(
            f"{counted(len(others), 'picture is', 'pictures are')} left out because they are in none "
            f"of the existing splits: {shortened(others, 3)}",
            stacklevel=2,
        )
    if all(parts):
        return parts[0], parts[1], "the splits that are there"
    if any(parts):
        there, missing = ("train", "test") if parts[0] else ("test", "train")
        tagged = parts[0] or parts[1]
        warnings.warn(
            f"there are pictures to {there} on, but none to {missing} on: the {len(tagged)} existing ones "
            "are divided",
            stacklevel=2,
        )
    scenes = _join_copies(_group(tagged, _scene))
    singles = _join_copies(_group(tagged, str))
    if by == "picture" or (by == "auto" and not _LEAST_SCENES <= len(scenes) < len(singles)):
        reason = "picture, as the file names do not tell scenes" if by == "auto" else "picture"
        return *_divide(singles, _choose(singles)), reason
    chosen = _choose(scenes)
    told = ", ".join(f"{name.strip('_- ') or '(no name)'} ({len(scenes[name])})" for name in _largest(scenes))
    told = f"{len(scenes)} scenes in the file names, such as {told}"
    if by == "auto" and (label := _badly_divided_class(scenes, chosen)):
        return *_divide(singles, _choose(singles)), f"picture, as of {told}, too few show {label!r}"
    tested = sum(len(scenes[name]) for name in chosen)
    if by == "auto" and tested > _MOST_SHARE * len(tagged):  # as of one scene with a third of all
        return *_divide(singles, _choose(singles)), f"picture, as {told}, are too large to divide"
    return *_divide(scenes, chosen), f"scene: {told}; --split-by picture divides them"


def check_split(train: Sequence[Tagged], val: Sequence[Tagged], source: str) -> set[str]:
    """The classes of the training pictures.

    Raises:
        DataError: there are too few pictures, or those to test on show other classes.
    """
    if not train or not val:
        uses = Counter(label for picture in (*train, *val) for label in picture.labels)
        count = counted(len(train) + len(val), "tagged picture", "tagged pictures")
        alone = (
            f"; each label, such as {next(iter(uses))!r}, is that of one alone"
            if max(uses.values(), default=0) == 1
            else ""
        )
        raise DataError(f"{source}: {count}, too few for training and testing{alone}")
    classes, tested = ({label for picture in part for label in picture.labels} for part in (train, val))
    if unseen := sorted(tested - classes):
        raise DataError(
            f"{source}: the pictures to test on show {shortened(unseen)}, but none to train on does: correct "
            "the labels, or add pictures to train on"
        )
    return classes


def _divide(scenes: Mapping[str, Sequence[Tagged]], chosen: set[str]) -> tuple[list[Tagged], list[Tagged]]:
    train = [picture for name, scene in scenes.items() if name not in chosen for picture in scene]
    return train, [picture for name in sorted(chosen) for picture in scenes[name]]


def _largest(scenes: Mapping[str, Sequence[Tagged]]) -> list[str]:
    return sorted(scenes, key=lambda name: (-len(scenes[name]), name))[:_MOST_LISTED]


def _badly_divided_class(scenes: Mapping[str, Sequence[Tagged]], chosen: set[str]) -> str | None:
    """A class with too few scenes, or with nearly all pictures in one split, as from a single camera."""
    per_class = Counter(label for scene in scenes.values() for label in _labels(scene))
    total, tested = Counter[str](), Counter[str]()
    for name, scene in scenes.items():
        shown = Counter(label for picture in scene for label in picture.labels)
        total += shown
        tested += shown if name in chosen else Counter()
    for label, count in sorted(total.items()):
        least = _LEAST_SHARE * _VAL_SHARE * count
        if per_class[label] < _LEAST_SCENES or not least <= tested[label] <= _MOST_TESTED * count:
            return label
    return None


def _join_copies(groups: dict[str, list[Tagged]]) -> dict[str, list[Tagged]]:
    """Merge groups that have copies of the same picture, under the first of their names."""
    names: dict[str, str] = {}  # of each group, or of the one that it joined
    owner: dict[str, str] = {}

    def find(name: str) -> str:
        while names.setdefault(name, name) != name:
            name = names[name]
        return name

    for name, group in groups.items():
        for picture in group:
            if picture.content:
                first, second = find(owner.setdefault(picture.content, name)), find(name)
                names[max(first, second)] = min(first, second)
    joined: dict[str, list[Tagged]] = defaultdict(list)
    for name, group in groups.items():
        joined[find(name)] += group
    return joined


def _group(tagged: Iterable[Tagged], key: Callable[[str], str]) -> dict[str, list[Tagged]]:
    """Group pictures by a key of their names: names, unlike paths, are the same on every machine."""
    groups: dict[str, list[Tagged]] = defaultdict(list)
    for picture in tagged:
        groups[key(unicodedata.normalize("NFC", picture.name))].append(picture)
    return groups


def _choose(scenes: Mapping[str, Sequence[Tagged]]) -> set[str]:
    """Scenes for validation: for each class, rarest first, until it has its share; one scene is left over."""
    order = sorted(scenes, key=lambda name: hashlib.sha256(name.encode()).digest())
    counts = Counter(label for scene in scenes.values() for picture in scene for label in picture.labels)
    chosen: set[str] = set()
    settled: set[str] = set()
    for label in [*sorted(counts, key=lambda label: (counts[label], label)), None]:
        members = [name for name in order if (label in _labels(scenes[name])) or label is None]
        wanted = _VAL_SHARE * sum(len(scenes[name]) for name in members)
        has = sum(len(scenes[name]) for name in members if name in chosen)
        for name in members:
            if name not in settled and has + len(scenes[name]) / 2 <= wanted:
                chosen.add(name)
                has += len(scenes[name])
            settled.add(name)
    return chosen


def _labels(scene: Iterable[Tagged]) -> set[str]:
    return {label for picture in scene for label in picture.labels}


def _scene(name: str) -> str:
    """The name without the number at its end: without what follows the last letter of any script."""
    scene = str(PurePosixPath(name).with_suffix(""))
    while scene and scene[-1] != "/" and unicodedata.category(scene[-1])[0] not in "LM":  # letters and marks
        scene = scene[:-1]
    return scene
