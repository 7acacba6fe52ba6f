"""The split of each picture as a data set defines it: in lists, YOLO's data.yaml, or names of folders."""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from detector.data.formats import yolo
from detector.data.sources.splits import (
    TRAIN,
    VAL,
    by_stem,
    match_lines,
    split_and_rest,
    split_of,
    split_of_folders,
)
from detector.utils.errors import counted, shortened
from detector.utils.files import read_json, read_text

IMAGE_FOLDERS = ("images", "jpegimages", "imgs", "img", "pictures")  # of all images of a data set
_FIRST_LIST = re.compile(r'\ufeff?\s*\{\s*"([^"]+)"\s*:\s*\[')
_LISTS = ("ImageSets/Main/*.txt", "ImageSets/*.txt", "*.txt", "meta/*.txt", "splits/*.txt")


def stated_splits(folder: Path, names: Sequence[str], files: Sequence[Path]) -> list[str | None]:
    """TRAIN, VAL or None for each picture: by YOLO's file, else by lists in the folder, else by folder names.

    A picture in both splits is in VAL. Folder names count if they give every picture a split, or if both
    splits occur.

    Args:
        folder: the one of the labels.
        names: names of the pictures in the labels.
        files: their files.
    """
    for found in (_by_yolo(folder, names, files), listed_splits(folder, names)):
        if any(found):
            return found
    splits = [split_of_folders(name) for name in names]
    return splits if all(splits) or {TRAIN, VAL} <= {*splits} else [None] * len(names)


def listed_splits(folder: Path, names: Sequence[str]) -> list[str | None]:
    """TRAIN, VAL or None for each picture, by lists in the folder, or beside it if it is `images`."""
    places = [folder, folder.parent] if folder.name.lower() in IMAGE_FOLDERS else [folder]
    for place in places:
        for found in (_by_numbers(place, names), _by_json(place, names), _by_lists(place, names)):
            if any(found):
                return found
    return [None] * len(names)


def _by_numbers(folder: Path, names: Sequence[str]) -> list[str | None]:
    """The splits of CUB-200-2011: images.txt has the path of each number, train_test_split.txt its 0 or 1."""
    paths, flags = folder / "images.txt", folder / "train_test_split.txt"
    if not (paths.is_file() and flags.is_file()):
        return [None] * len(names)
    rows = [
        dict(line.split(maxsplit=1) for line in read_text(file, "list").split("\n") if len(line.split()) > 1)
        for file in (paths, flags)
    ]
    known, found, others = by_stem(names), {"0": set[str](), "1": set[str]()}, list[str]()
    for number, path in rows[0].items():
        if (flag := rows[1].get(number, "").strip()) in found:
            members, unknown = match_lines([path], known)
            found[flag] |= members
            others += unknown
    return _merge(names, found["1"], found["0"], str(flags), others)


def is_split_file(path: Path) -> bool:
    """Whether a JSON file begins like one with a list for each split: {"train": [...], "val": [...]}."""
    if path.suffix.lower() != ".json":
        return False
    with open(path, "rb") as file:
        first = _FIRST_LIST.match(file.read(1000).decode(errors="replace"))
    return first is not None and split_of(first[1]) is not None


def _by_json(folder: Path, names: Sequence[str]) -> list[str | None]:
    """The splits of a JSON file with a list of pictures for each, or of lists that begin with a picture."""
    found: dict[str, set[str]] = {TRAIN: set(), VAL: set()}
    others, sources = list[str](), list[str]()
    known = by_stem(names)
    for path in sorted([*folder.glob("*.json"), *folder.glob("splits/*.json")]):
        if not is_split_file(path):
            continue
        for key, entries in read_json(path, "split file").items():
            if (split := split_of(key)) and isinstance(entries, list):
                texts = (entry[0] if isinstance(entry, list) and entry else entry for entry in entries)
                members, unknown = match_lines(map(str, texts), known)
                found[split] |= members
                others += unknown
        sources.append(path.name)
    return _merge(names, found[TRAIN], found[VAL], f"{folder}: {shortened(sources, 4)}", sorted({*others}))


def _merge(
    names: Sequence[str], train: set[str], val: set[str], source: str, others: Sequence[str]
) -> list[str | None]:
    """The split of each name: VAL for names in both lists. Two equal lists define no split."""
    if train == val:
        return [None] * len(names)
    if both := sorted(train & val):
        warnings.warn(
            f"{source}: {counted(len(both), 'picture is', 'pictures are')} both to train and to test on, "
            f"used for testing: {shortened(both, 3)}",
            stacklevel=4,
        )
    if others:
        warnings.warn(
            f"{source}: {counted(len(others), 'line names', 'lines name')} no picture with labels: "
            f"{shortened(others, 3)}",
            stacklevel=4,
        )
    return [VAL if name in val else TRAIN if name in train else None for name in names]


def _by_lists(folder: Path, names: Sequence[str]) -> list[str | None]:
    """The splits of lists such as ImageSets/Main/train.txt."""
    known = by_stem(names)
    train, val, either = set[str](), set[str](), set[str]()
    unknown, sources = [], []
    for path, split in _lists(folder):
        members, others = match_lines(read_text(path, "split file").split("\n"), known)
        if members:  # otherwise it may be a text about the test
            whole = path.stem.lower().endswith("trainval")  # train.txt and val.txt are more exact
            (either if whole else train if split == TRAIN else val).update(members)
            unknown += others
            sources.append(path.name)
    return _merge(
        names, train | (either - val), val, f"{folder}: {shortened(sources, 4)}", sorted({*unknown})
    )


def _lists(folder: Path) -> Iterator[tuple[Path, str]]:
    """The lists whose names are those of splits, else those of classes in splits, such as cat_train.txt."""
    for pattern in _LISTS:
        paths = sorted(folder.glob(pattern))
        stems = {path.stem for path in paths}
        # VOC has the class train: train_train.txt, train_val.txt.
        plain = [path for path in paths if "train_train" not in stems or not path.stem.startswith("train_")]
        chosen = [(path, split) for path in plain if (split := split_of(path.stem))]
        if not chosen and "ImageSets" in pattern:
            chosen = [(path, split) for path in paths if (split := split_of(path.stem.rpartition("_")[2]))]
        if chosen:
            yield from chosen
            return


def _by_yolo(folder: Path, names: Sequence[str], files: Sequence[Path]) -> list[str | None]:
    """The splits of data.yaml, whose entries are folders or lists of pictures."""
    root, entries = folder.resolve(), yolo.read_splits(folder)
    found: dict[str, set[str]] = {TRAIN: set(), VAL: set()}
    unknown: list[str] = []
    for key, entry in entries:
        split = split_of(key)
        if split is None or (place := _place(entry, root)) is None:
            continue
        if place.is_dir():
            found[split] |= {
                name for name, file in zip(names, files, strict=True) if file.is_relative_to(place)
            }
        else:
            lines = read_text(place, "list of images").split("\n")
            members, others = match_lines(lines, by_stem(names))
            found[split] |= members
            unknown += others
    if entries and not found[TRAIN] | found[VAL]:
        warnings.warn(
            f"{folder}: its split is ignored because none of its paths exist: "
            f"{shortened([f'{key}: {entry}' for key, entry in entries], 3)}",
            stacklevel=4,
        )
    return _merge(names, found[TRAIN], found[VAL], str(folder), sorted({*unknown}))


def _place(entry: str, root: Path) -> Path | None:
    """The folder or list that an entry names: as given, else without its first folders.

    Roboflow writes ../train/images for train/images; others write the path on another machine.
    """
    path = PurePosixPath(entry.replace("\\", "/"))
    whole = (root / path).resolve()
    if whole.exists() and (whole.is_relative_to(root) or whole.is_file()):
        return whole
    parts = [part for part in path.parts if part not in ("..", "/")]
    stated = [index for index, part in enumerate(parts) if split_and_rest(Path(part).stem)[0]]
    for start in range(max(stated, default=len(parts) - 1) + 1):
        if (place := root.joinpath(*parts[start:])).exists():
            return place
    return None


def named_as_test(places: Iterable[Path]) -> list[str]:
    """The names of files and folders that look like a test split, for a warning."""
    return [path.name for path in places if split_and_rest(path.stem)[0] == VAL]
