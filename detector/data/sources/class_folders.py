"""Pictures in one folder for each class, in folders of splits or not."""

import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from detector.data.pictures import IMAGE_SUFFIXES, find_pictures, runs_folder
from detector.data.sources.copies import find_copies
from detector.data.sources.splits import TRAIN, VAL, split_and_rest, split_of, split_of_folders
from detector.utils.errors import DataError, counted, shortened


class _Picture(NamedTuple):
    """A picture in a folder of a class, a split, or both."""

    name: str
    label: str | None
    split: str | None


def pictures_by_class(pictures: Path) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Name, classes and split of each picture of a data set with one folder per class.

    The layouts are CLASS/a.jpg, SPLIT/CLASS/a.jpg and CLASS/SPLIT/a.jpg. Copies of a picture in the folders
    of several classes become one picture that shows all of them; it is in the validation split if one of the
    copies is. A warning counts them.

    Raises:
        DataError: a picture is in no folder, there are fewer than two classes, or a folder may be a split or
            a class.
    """
    names = find_pictures([pictures], outside=runs_folder(pictures))
    for name, file in names.items():
        if "/" not in name:
            raise DataError(
                f"{file} is in no folder that names its class, and {pictures} has no labels: "
                f"{_ask_for_labels(pictures)}, or make one folder for each class"
            )
    folders = {name: name.split("/")[:-1] for name in names}
    level = _level_of_splits(list(folders.values()))
    if level is None:
        _check_no_split(pictures, folders.values())
        found = [
            _Picture(name, parts[0].strip(), split_of_folders("/".join([*parts[1:], name])))
            for name, parts in folders.items()
        ]
    else:
        found = [_below_split(name, parts, level) for name, parts in folders.items()]
    tops = sorted({parts[level or 0] for parts in folders.values()})
    if level is None and {split for split, _ in map(split_and_rest, tops)} == {TRAIN, VAL}:
        raise DataError(
            f"{pictures}: the folders {shortened(tops)} look like splits, not like classes: move their "
            "pictures into folders of classes below train and test, such as train/cat and test/cat, or write "
            "a table (--labels)"
        )
    alike = _common_subfolders(folders.values()) if level is None else []
    if not all(map(split_of, alike)):
        warnings.warn(
            f"{pictures}: the folders {shortened(tops)} are taken for classes, though each has the folders "
            f"{shortened(alike)}: if they are splits, name them train, val and test",
            stacklevel=2,
        )
    if not (labeled := [picture for picture in found if picture.label]):
        raise DataError(
            f"{pictures}: found no labels, and the folders {shortened(tops)}, which are splits "
            f"and no classes: {_ask_for_labels(pictures)}, or make folders of classes in them"
        )
    classes = {picture.label for picture in labeled}
    if len(classes) == 1:
        raise DataError(
            f"{pictures}: found no labels and one folder, {classes.pop()!r}; a class is not learned without "
            f"pictures that do not show it: {_ask_for_labels(pictures)}, or add another folder"
        )
    if others := [picture.name for picture in found if not picture.label]:
        warnings.warn(
            f"{pictures}: {counted(len(others), 'picture is', 'pictures are')} left out because they are in "
            f"no class folder of a split: {shortened(others, 3)}",
            stacklevel=2,
        )
    return _merge_copies(pictures.resolve(), labeled)


def _level_of_splits(folders: Sequence[list[str]]) -> int | None:
    """The depth of the folders of splits, the same for all pictures; None: there are no such folders."""
    for level in range(min(map(len, folders)) + 1):
        if len({tuple(parts[:level]) for parts in folders}) > 1:
            return None
        tops = [parts[level] if len(parts) > level else "" for parts in folders]
        splits = {split_of(top) for top in tops}
        deeper = {split_of(parts[level]) for parts in folders if len(parts) > level + 1}
        if None not in splits or {TRAIN, VAL} <= deeper:
            return level
    return None


def _common_subfolders(folders: Iterable[Sequence[str]]) -> list[str]:
    """The names of the subfolders if all top folders have the same ones, at least two; else nothing."""
    below: dict[str, set[str]] = {}
    for parts in folders:
        below.setdefault(parts[0], set()).add(parts[1] if len(parts) > 1 else "")
    first, *others = below.values()
    alike = len(first) > 1 and "" not in first and len(others) > 0 and all(names == first for names in others)
    return sorted(first) if alike else []


def _below_split(name: str, folders: Sequence[str], level: int) -> _Picture:
    split = split_of(folders[level]) if len(folders) > level else None
    below = list(folders[level + 1 :])
    while below and split_of(below[0]) == split:  # as in seg_train/seg_train/forest
        below.pop(0)
    return _Picture(name, below[0].strip() if below and split else None, split)


def _check_no_split(pictures: Path, folders: Iterable[list[str]]) -> None:
    """Raise where the folder of a class is probably a split; warn of a class that is called train."""
    tops = {parts[0] for parts in folders if split_of(parts[0])}
    nested = {parts[0] for parts in folders if len(parts) > 1}
    if wrong := sorted(top for top in tops if top in nested or split_of(top) != TRAIN):
        raise DataError(
            f"{pictures}: the {'folder' if len(wrong) == 1 else 'folders'} {shortened(wrong)} beside "
            "others may be a split or a class: move the others into folders of classes below a split, such "
            "as train/cat and val/cat, or rename it if it is a class"
        )
    if tops:
        warnings.warn(
            f"{pictures}: the folder {min(tops)} is taken for a class, as those beside it are; if "
            "it is a split, move it elsewhere",
            stacklevel=3,
        )


def visible(folder: Path) -> list[Path]:
    """The files and folders in a folder that are not hidden, sorted."""
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]


def _merge_copies(root: Path, found: Sequence[_Picture]) -> list[tuple[str, tuple[str, ...], str | None]]:
    copies = find_copies([root / picture.name for picture in found])
    same: dict[str, list[_Picture]] = defaultdict(list)
    for picture in found:
        same[copies.get(root / picture.name, picture.name)].append(picture)
    merged: list[tuple[str, tuple[str, ...], str | None]] = []
    several = []
    for group in same.values():
        labels = tuple(dict.fromkeys(picture.label for picture in group if picture.label))
        if len(labels) == 1:
            merged += [(picture.name, labels, picture.split) for picture in group]
            continue
        splits = {picture.split for picture in group if picture.split}
        merged.append((group[0].name, labels, VAL if VAL in splits else next(iter(splits), None)))
        several.append(" = ".join(picture.name for picture in group))
    if several:
        warnings.warn(
            f"{counted(len(several), 'picture is', 'pictures are')} in the folders of several classes, and "
            f"taken for one picture that shows them all: {shortened(several, 3)}",
            stacklevel=3,
        )
    return merged


def _ask_for_labels(pictures: Path) -> str:
    files = [path for path in visible(pictures) if path.is_file()]
    others = [path.name for path in files if path.suffix.lower() not in IMAGE_SUFFIXES]
    table = f"is {', '.join(others)} the table? Then rename it to .csv; "
    table = table if 1 <= len(others) <= 3 else ""
    formats = "CSV, Excel, JSON lines, COCO, Label Studio, CVAT, a folder of VOC or YOLO"
    return f"{table}pass --labels FILE ({formats})"
