"""Labels that say that a picture shows no class: `none`, `nichts davon`, or what the user names."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from detector.data.sheets.words import NOBODY_KNOWS, header_key, is_nothing
from detector.data.sources.tagged import Tagged
from detector.utils.errors import DataError, counted, shortened

_CONTRADICTED = 0.2  # share of pictures beside whose `none` another label may be, as people disagree

logger = logging.getLogger(__name__)


def without_no_class(tagged: Sequence[Tagged], named: Sequence[str] = ()) -> list[Tagged]:
    """The pictures without the labels that are no class.

    Such are those that the user names, and words such as `none` that never stand beside a class or have a
    box.

    Raises:
        DataError: no picture has a label that the user names, or no class is left.
    """
    labels = Counter(label for picture in tagged for label in picture.labels)
    asked = {label for name in named for label in _labels_of(name, labels)}
    if unknown := [name for name in named if not _labels_of(name, labels)]:
        raise DataError(
            f"--no-class {unknown[0]!r}: no picture has this label, but {shortened(sorted(labels))}"
        )
    beside = Counter(label for picture in tagged if len(picture.labels) > 1 for label in picture.labels)
    classes = {label for label, count in beside.items() if count > _CONTRADICTED * labels[label]}
    classes |= {box.label for picture in tagged for box in picture.boxes or ()}
    nothing = [label for label in labels if label in asked or (is_nothing(label) and label not in classes)]
    if labels and len(nothing) == len(labels):
        raise DataError(
            f"the only labels are {shortened(nothing)}, which say that a picture shows no class: give the "
            "class that is meant another name"
        )
    for label in nothing:
        logger.info(
            "%r says that no class is shown, in %s; if it is a class, give it another name there",
            *(label, counted(labels[label], "picture", "pictures")),
        )
    kept = [
        picture._replace(labels=tuple(label for label in picture.labels if label not in nothing))
        for picture in tagged
    ]
    unknown = [x for x in labels if header_key(x) in NOBODY_KNOWS and x not in classes and x not in nothing]
    known = [picture for picture in kept if not {*picture.labels} & {*unknown}]
    if not known or not any(picture.labels for picture in known):
        return kept
    if unknown:
        logger.info(
            "%s: nobody knows what is shown, so %s left out; give a class another name",
            shortened([*map(repr, unknown)], 3),
            counted(len(kept) - len(known), "picture is", "pictures are"),
        )
    return known


def _labels_of(name: str, labels: Iterable[str]) -> list[str]:
    """The labels that a name means: the same one, else those that differ in capitals or punctuation."""
    alike = [label for label in labels if header_key(label) == header_key(name)]
    return [name] if name in alike else alike
