"""Finds what the columns of a spreadsheet hold: pictures, class names, one class each, the split, boxes.

Cells count more than headers: a column holds pictures if its cells are names of existing files.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from detector.data.sheets.answers import Answers, answers_of_scores, find_answers, in_words
from detector.data.sheets.cells import (
    are_numbers,
    are_repeated_words,
    are_scores,
    are_splits,
    flag,
    is_file_name,
    is_index,
    number,
)
from detector.data.sheets.file import SheetRow
from detector.data.sheets.header import second_header, split_header, without_units
from detector.data.sheets.label_columns import find_label_columns, is_class
from detector.data.sheets.words import (
    CONFIRMED,
    CORNER_AND_SIZE,
    CORNERS,
    CORRECTED,
    FOLDERS,
    LABELS,
    NO,
    PICTURE,
    UNKNOWN,
    YES,
    header_key,
    is_about,
    words_of,
)
from detector.data.sources.splits import find_split_column, split_of_cell
from detector.utils.errors import DataError, shortened

_PICTURE_WORD = re.compile(r"photo|foto|image|imagen|picture|bild|img|datei|file", re.IGNORECASE)
_MAY_BE_OTHERS = ("dataset", "set", "usage", "partition", "phase")
_SAMPLE = 300  # rows whose names are looked up to find the column of pictures


class NamedColumns(NamedTuple):
    """The columns that the user names, each by its header or its number from 1; the others are found."""

    picture: str | None = None
    labels: tuple[str, ...] = ()  # of class names, or of one class each


UNNAMED = NamedColumns()


class Columns(NamedTuple):
    """The columns by what they hold, from 0."""

    first: int  # the first row below the header; 0: there is none
    header: tuple[str, ...]  # of each column, "" without one
    picture: int
    folder: int | None  # what the names in `picture` are in
    labels: tuple[int, ...]  # names of classes
    classes: tuple[int, ...]  # 0 or 1, or another of YES and NO, for the class of the header
    unknown: int | None
    confirmed: int | None  # 1 or 0: whether the picture shows the class of `labels`
    split: int | None
    boxes: tuple[int, ...]  # four columns, or none
    boxes_have_sizes: bool  # x, y, width, height instead of x1, y1, x2, y2
    left_out: tuple[int, ...]
    answers: Answers  # in the columns of `classes`, where cells are not plain yes and no
    notes: tuple[str, ...]  # for the user, on how cells are read

    def describe(self) -> str:
        """Which columns are read, for the user."""
        what = [
            ("pictures", [self.picture, *([self.folder] if self.folder is not None else [])]),
            ("labels", self.labels),
            ("a class each", self.classes),
        ]
        what += [("unknown labels", [self.unknown] if self.unknown is not None else [])]
        what += [("whether they are shown", [self.confirmed] if self.confirmed is not None else [])]
        what += [("split", [self.split] if self.split is not None else []), ("boxes", self.boxes)]
        left_out = [self.header[i] or self.title(i) for i in self.left_out]
        told = [
            f"{name} in {shortened([self.title(i) for i in numbers], 6)}" for name, numbers in what if numbers
        ]
        return "; ".join([*told, *([f"not read: {shortened(left_out, 6)}"] if left_out else [])])

    def title(self, column: int) -> str:
        return repr(self.header[column]) if self.header[column] else f"column {column + 1}"


def find_columns(
    rows: Sequence[SheetRow],
    is_picture: Callable[[str], int],
    path: Path,
    named: NamedColumns = UNNAMED,
) -> Columns:
    """The columns of a table.

    Args:
        rows: at least one.
        is_picture: how many pictures a cell may name.

    Raises:
        DataError: none names pictures, or which one has the classes is not clear, or there is no column of a
            name in `named`; the message lists the columns.
    """
    titles, header, below = split_header(rows, is_picture, path)
    first = titles + (1 if any(header) else 0)
    keys = [header_key(cell) for cell in header]
    split = find_split_column(header)
    other = split >= 0 and header_key(header[split]) in _MAY_BE_OTHERS  # the name of a data set, or its usage
    if split < 0 or (other and not any(_is_split(cell, header[split]) for cell in below[split])):
        split = next((i for i, cells in enumerate(below) if are_splits(cells)), -1)
    picture = _picture_column(below, header, keys, split, is_picture, path, named)
    if any(header) and (lower := second_header(header, below, picture)):
        header, keys, first = lower, [header_key(cell) for cell in lower], first + 1
        below = [column[1:] for column in below]
    below, units = without_units(below, picture, is_picture)
    first += units
    unknown = next((i for i, key in enumerate(keys) if key in UNKNOWN), None)
    boxes, have_sizes = _find_boxes(below, keys, any(header), taken={picture, split, unknown})
    folder = _folder_column(below, keys, picture, is_picture)
    taken = {picture, split, unknown, *boxes}
    rest = [i for i, cells in enumerate(below) if i not in taken and any(cells)]
    answers = find_answers({i: below[i] for i in rest if keys[i] not in LABELS and not is_about(header[i])})
    plain = [in_words(cells, answers.get(i, {})) for i, cells in enumerate(below)]
    labels, classes, of_scores, note = _label_columns(rest, plain, header, keys, path, named)
    answers |= of_scores
    labels += _labels_without_header(labels, below, header)
    labels, asked = _questions(labels, rest, below, header)
    denying = (i for i in rest if keys[i] in CONFIRMED and i not in (*labels, *classes) and _denies(below[i]))
    confirmed = next(denying, None) if len(labels) == 1 else None
    confirmed = asked if confirmed is None else confirmed
    skipped = [", ".join(filter(None, row.cells)) for row in rows[first - units : first]]
    told = (
        f"below the header, {shortened([*map(repr, skipped)], 2)} is left out as no picture" if units else ""
    )
    left_out = [i for i in rest if i not in (*labels, *classes, confirmed, folder)]
    return Columns(
        first=first,
        header=header,
        picture=picture,
        folder=folder,
        labels=tuple(labels),
        classes=tuple(classes),
        unknown=unknown,
        confirmed=confirmed,
        split=None if split < 0 else split,
        boxes=boxes,
        boxes_have_sizes=have_sizes,
        left_out=tuple(left_out),
        answers={i: found for i, found in answers.items() if i in classes},
        notes=tuple(filter(None, (note, told))),
    )


def names_file_and_labels(header: Sequence[str]) -> bool:
    """Whether a line is the header file,labels or file,labels,unknown, or one with synonyms of these."""
    keys = [header_key(cell) for cell in header]
    if len(keys) not in (2, 3):
        return False
    return keys[0] in PICTURE and keys[1] in LABELS and all(key in UNKNOWN for key in keys[2:])


def _folder_column(
    below: Sequence[Sequence[str]], keys: Sequence[str], picture: int, is_picture: Callable[[str], int]
) -> int | None:
    """The column with the folders of the names: one with such a header, or that tells equal names apart."""
    names = [*enumerate(below[picture][:_SAMPLE])]
    several = [(k, name) for k, name in names if is_picture(name) > 1]
    for i, key in enumerate(keys):
        if i == picture:
            continue
        if key in FOLDERS and any(is_picture(f"{below[i][k]}/{name}") for k, name in names):
            return i
        if several and all(is_picture(f"{below[i][k]}/{name}") == 1 for k, name in several):
            return i
    return None


def _find_pictures(
    below: Sequence[Sequence[str]], keys: Sequence[str], split: int, is_picture: Callable[[str], int]
) -> int | None:
    """The column whose cells mostly name pictures; of several, the one with the most specific header."""
    best: list[tuple[int, int, float, int]] = []
    for column, cells in enumerate(below):
        filled = [cell for cell in cells if cell]
        some = filled[:: max(1, len(filled) // _SAMPLE)]
        if not some or column == split:
            continue
        share = sum(map(bool, map(is_picture, some))) / len(some)
        names = sum(map(is_file_name, some)) / len(some)
        rank = -PICTURE.index(keys[column]) if keys[column] in PICTURE else -len(PICTURE)
        known = rank > -len(PICTURE)
        if share > 0 or names >= 0.5 or known:
            # Numbers without a header are pandas' index, even where pictures are called 0.jpg.
            sure = (
                3
                if share >= 0.5 and (known or names > 0)
                else 2
                if share >= 0.5
                else 1
                if names >= 0.5
                else 0
            )
            best.append((sure, rank, share, -column))
    return -max(best)[3] if best else None


def _find_boxes(
    below: Sequence[Sequence[str]], keys: Sequence[str], has_header: bool, taken: set[int | None]
) -> tuple[tuple[int, ...], bool]:
    """The four columns of boxes, and whether they are x, y, width and height."""
    for forms, have_sizes in ((CORNERS, False), (CORNER_AND_SIZE, True)):
        for form in forms:
            if all(key in keys for key in form):
                return tuple(keys.index(key) for key in form), have_sizes
    numbers = [i for i, cells in enumerate(below) if i not in taken and any(cells) and are_numbers(cells)]
    if not has_header and len(numbers) == 4:  # a.jpg,x1,y1,x2,y2,cat; Google's has empty columns between
        x1, y1, x2, y2 = ([number(cell) for cell in below[i]] for i in numbers)
        if all(a <= c and b <= d for a, b, c, d in zip(x1, y1, x2, y2, strict=True)):
            return tuple(numbers), False
    return (), False


def _picture_column(
    below: Sequence[Sequence[str]],
    header: Sequence[str],
    keys: Sequence[str],
    split: int,
    is_picture: Callable[[str], int],
    path: Path,
    named: NamedColumns,
) -> int:
    if named.picture:
        return _column(named.picture, header, below, path)[0]
    if (found := _find_pictures(below, keys, split, is_picture)) is None:
        words = [i for i, cell in enumerate(header) if _PICTURE_WORD.search(cell) and any(below[i])]
        words += [i for i, cells in enumerate(below) if is_index(cells, header[i])]
        if words:  # names that lack a part that all pictures have
            return words[0]
        raise DataError(
            f"{path}: none of its columns names pictures ({_shown(header, below)}); if one does, name it, as "
            f"in --image-column {shlex.quote(_name(0, header))}"
        )
    return found


def _label_columns(
    rest: Sequence[int],
    below: Sequence[Sequence[str]],
    header: Sequence[str],
    keys: Sequence[str],
    path: Path,
    named: NamedColumns,
) -> tuple[list[int], list[int], dict[int, dict[str, str]], str]:
    """The columns of class names, those of one class each, the answers in scores, and a note on them."""
    if named.labels:
        own = [i for name in named.labels for i in _column(name, header, below, path)]
        classes = [i for i in own if is_class(below[i], keys[i])]
        scored = [i for i in own if i not in classes and keys[i] not in LABELS and are_scores(below[i])]
        answers, note = answers_of_scores({i: below[i] for i in scored})
        if scored and not answers and len(own) > 1:
            _refuse_scores(own, header, below, path)
        classes += [i for i in scored if answers]
        return [i for i in own if i not in classes], classes, answers, note
    labels, classes, candidates = find_label_columns(rest, below, header, keys)
    scored = [i for i in rest if i not in classes and header[i] and not is_about(header[i])]
    scored = [i for i in scored if are_scores(below[i])]
    if not labels and not candidates and len(scored) > max(1, len(classes)):
        answers, note = answers_of_scores({i: below[i] for i in sorted([*scored, *classes])})
        if answers:
            return [], [*answers], answers, note
    if labels or classes:
        return labels, classes, {}, ""
    if not candidates:
        _refuse_scores([i for i in rest if not is_about(header[i])], header, below, path)
    columns = _shown(header, below)
    if not candidates:
        raise DataError(
            f"{path}: none of its columns has classes ({columns}). Expected one with their names, cat;dog "
            "for two of them, or one for each class, with 0 and 1, or x and nothing; --label-column HEADER "
            "names one that was not recognized"
        )
    if len(last := [i for i in candidates if words_of(header[i]) & CORRECTED]) == 1:
        return last, [], {}, f"of {', '.join(header[i] for i in candidates[:4])}, {header[last[0]]!r} is read"
    may = " or ".join(repr(_name(i, header)) for i in candidates[:4])
    example = shlex.quote(_name(candidates[0], header))
    raise DataError(
        f"{path}: which of its columns has the classes is not clear ({columns}). It may be {may}: name it, "
        f"as in --label-column {example}, once for each of several; columns of one class each have 0 and 1, "
        "or x and nothing"
    )


def _refuse_scores(
    columns: Sequence[int], header: Sequence[str], below: Sequence[Sequence[str]], path: Path
) -> None:
    if scores := [i for i in columns if header[i] and are_scores(below[i])]:
        cell, titles = max(below[scores[0]], key=len), shortened([repr(header[i]) for i in scores], 4)
        raise DataError(
            f"{path}: scores or codes such as {cell!r} in {titles} do not say which classes a picture shows: "
            "write 1 where it shows the class, else 0"
        )


def _column(name: str, header: Sequence[str], below: Sequence[Sequence[str]], path: Path) -> list[int]:
    """The columns that the user means by a header, or by a number from 1."""
    same = [i for i, cell in enumerate(header) if cell == name]
    same = same or [i for i, cell in enumerate(header) if cell and header_key(cell) == header_key(name)]
    if not same and name.isdecimal() and 0 < int(name) <= len(header):
        same = [int(name) - 1]
    if not same:
        raise DataError(f"{path} has no column {name!r}; its columns are {_shown(header, below)}")
    return same


def _name(column: int, header: Sequence[str]) -> str:
    """What :func:`_column` finds a column by."""
    return header[column] or str(column + 1)


def _labels_without_header(
    labels: Sequence[int], below: Sequence[Sequence[str]], header: Sequence[str]
) -> list[int]:
    """The columns without a header beside that of labels that have some of them, as in `a.jpg,cat,dog`."""
    if len(labels) != 1 or not header[labels[0]]:
        return []
    known = {cell for cell in below[labels[0]] if cell}
    found = []
    for i in range(labels[0] + 1, len(header)):
        filled = [cell for cell in below[i] if cell]
        if header[i] or not filled or 2 * sum(cell in known for cell in filled) < len(filled):
            break
        found.append(i)
    return found


def _questions(
    labels: list[int], rest: Sequence[int], below: Sequence[Sequence[str]], header: Sequence[str]
) -> tuple[list[int], int | None]:
    """The column of classes where that of labels has yes and no alone, and is beside one of questions."""
    answers = {cell.casefold() for i in labels for cell in below[i] if cell}
    if len(labels) != 1 or not answers <= YES | NO or all(map(str.isdecimal, answers)):
        return labels, None
    asked = [i for i in rest if i not in labels and are_repeated_words(below[i]) and not is_about(header[i])]
    return (asked, labels[0]) if len(asked) == 1 else (labels, None)


def _is_split(cell: str, title: str) -> bool:
    try:
        return split_of_cell(cell, title) is not None
    except DataError:
        return False


def _denies(cells: Sequence[str]) -> bool:
    """Whether all cells say yes or no, or how many, and some say no."""
    answers = [flag(cell) for cell in cells if cell]
    return None not in answers and False in answers


def _shown(header: Sequence[str], below: Sequence[Sequence[str]]) -> str:
    """The columns by header and first cell, for an error."""
    firsts = [next(filter(None, cells), "") for cells in below]
    columns = [
        f"{name!r}: {cell[:40]!r}" if name else repr(cell[:40])
        for name, cell in zip(header, firsts, strict=True)
    ]
    return shortened(columns, 8)
