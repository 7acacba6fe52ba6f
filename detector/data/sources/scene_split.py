"""The split of tagged pictures into those to train and to test on, by scene."""

import hashlib
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from detector.data.sources.splits import TRAIN, VAL
from detector.data.sources.tagged import Tagged
from detector.utils.errors import counted, shortened

_VAL_SHARE = 0.2
_LEAST_SCENES = 4  # of each class, for a split by scene


def split_pictures(tagged: Sequence[Tagged]) -> tuple[list[Tagged], list[Tagged], str]:
    """Training and validation pictures, and by what they were split; the same for the same names.

    Shots of one scene belong in one split, or the results are too good. Names such as street_001.jpg and
    street_002.jpg tell scenes, unless that leaves a class too few scenes to divide.
    """
    parts = [[each for each in tagged if each.split == split] for split in (TRAIN, VAL)]
    others = [each.name for each in tagged if each.split is None]
    if others and len(others) < len(tagged):
        warnings.warn(
            f"{counted(len(others), 'picture is', 'pictures are')} left out, as in none of the splits "
            f"that are there: {shortened(others, 3)}",
            stacklevel=2,
        )
    if all(parts):
        return parts[0], parts[1], "the splits that are there"
    if any(parts):
        there, missing = ("train", "test") if parts[0] else ("test", "train")
        tagged = parts[0] or parts[1]
        warnings.warn(
            f"there are pictures to {there} on, and none to {missing} on: the {len(tagged)} that are there "
            "are divided",
            stacklevel=2,
        )
    scenes = _group(tagged, _scene)
    reason = "scene, as the file names tell"
    per_class = Counter(label for scene in scenes.values() for label in _labels(scene))
    if min(per_class.values(), default=0) < _LEAST_SCENES or len(scenes) == len(tagged):
        scenes = _group(tagged, str)
        reason = "picture, as the file names do not tell scenes"
    chosen = _choose(scenes)
    train = [each for name, scene in scenes.items() if name not in chosen for each in scene]
    return train, [each for name in sorted(chosen) for each in scenes[name]], reason


def _group(tagged: Iterable[Tagged], key: Callable[[str], str]) -> dict[str, list[Tagged]]:
    """The pictures by a key of their names, which, unlike their paths, are the same on every machine."""
    groups: dict[str, list[Tagged]] = defaultdict(list)
    for each in tagged:
        groups[key(unicodedata.normalize("NFC", each.name))].append(each)
    return groups


def _choose(scenes: Mapping[str, Sequence[Tagged]]) -> set[str]:
    """Scenes for validation, by class, rarest first, until it has its share of each; one at least stays."""
    order = sorted(scenes, key=lambda name: hashlib.sha256(name.encode()).digest())
    counts = Counter(label for scene in scenes.values() for each in scene for label in each.labels)
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
    return {label for each in scene for label in each.labels}


def _scene(name: str) -> str:
    """The name without the number at its end: without what follows the last letter of any script."""
    scene = str(PurePosixPath(name).with_suffix(""))
    while scene and scene[-1] != "/" and unicodedata.category(scene[-1])[0] not in "LM":  # letters and marks
        scene = scene[:-1]
    return scene
