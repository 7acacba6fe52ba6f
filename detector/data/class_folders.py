"""Pictures in one folder for each class, and the names of folders that are splits instead."""

import filecmp
import warnings
from collections.abc import Sequence
from pathlib import Path

from detector.data.pictures import IMAGE_SUFFIXES, find_pictures
from detector.utils.errors import DataError, counted

TRAIN, VAL = "train", "val"
SPLITS = {"train": TRAIN, "trainval": TRAIN, "val": VAL, "valid": VAL, "test": VAL}


def pictures_by_class(pictures: Path) -> list[tuple[str, str, str | None]]:
    """Name, class and split of the pictures in folders of classes, or in such folders below train and val.

    Raises:
        DataError: a picture is in no folder, or the folders are splits, or one alone.
    """
    found, root = [], pictures.resolve()
    for name, file in find_pictures([pictures], outside=drawn_by_runs(pictures)).items():
        *folders, _ = name.split("/")
        split = SPLITS.get(folders[0].lower()) if len(folders) > 1 else None
        if not folders:
            raise DataError(
                f"{file} is in no folder that names its class, and {pictures} has no labels: "
                f"{_ask_for_labels(pictures)}, or make one folder for each class"
            )
        found.append((name, folders[1] if split else folders[0], split))
    classes = {label for _, label, _ in found}
    if {label.lower() for label in classes} <= SPLITS.keys():
        raise DataError(
            f"{pictures}: found no labels, and the folders {', '.join(sorted(classes))}, which are splits "
            f"and no classes: {_ask_for_labels(pictures)}, or make folders of classes in them"
        )
    if len(classes) == 1:
        raise DataError(
            f"{pictures}: found no labels and one folder, {classes.pop()!r}; a class is not learned without "
            f"pictures that do not show it: {_ask_for_labels(pictures)}, or add another folder"
        )
    _warn_of_copies(root, found)
    return found


def drawn_by_runs(pictures: Path) -> Path | None:
    """The folder of runs, in which this program draws pictures; None if it is around the given ones."""
    root, runs = pictures.resolve(), Path("runs").resolve()
    return None if runs in (root, *root.parents) else runs


def visible(folder: Path) -> list[Path]:
    """The files and folders in a folder that are not hidden, sorted."""
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]


def _warn_of_copies(root: Path, found: Sequence[tuple[str, str, str | None]]) -> None:
    """Warn where copies of a file, of the same name, are in folders of several classes."""
    first: dict[tuple[str, int], tuple[str, str]] = {}
    copies = []
    for name, label, _ in found:
        file = root / name
        other, other_label = first.setdefault((file.name, file.stat().st_size), (name, label))
        if other_label != label and filecmp.cmp(root / other, file, shallow=False):
            copies.append(f"{name} of {other}")
    if copies:
        warnings.warn(
            f"{counted(len(copies), 'picture is a copy', 'pictures are copies')} from the folder of another "
            f"class, such as {copies[0]}: each says that the other class is absent; list such a picture "
            "once, with all its classes, in a table (--labels)",
            stacklevel=2,
        )


def _ask_for_labels(pictures: Path) -> str:
    files = [path for path in visible(pictures) if path.is_file()]
    others = [path.name for path in files if path.suffix.lower() not in IMAGE_SUFFIXES]
    table = f"is {', '.join(others)} the table? Its suffix must be .csv or .jsonl; "
    table = table if 1 <= len(others) <= 3 else ""
    return f"{table}pass --labels FILE (CSV, JSON lines, COCO, Label Studio, CVAT, a folder of VOC or YOLO)"
