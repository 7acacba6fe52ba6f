"""Reads tagged pictures from a spreadsheet: finds the picture of each name and merges the labels of its rows.

All problems are reported in one error, grouped by cause.
"""

import logging
import math
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from detector.data.datasets.image_table import picture_name
from detector.data.datasets.sheet import SheetRow, columns_of, read_sheet
from detector.data.datasets.sheet_cells import flag
from detector.data.datasets.sheet_columns import (
    UNNAMED,
    Columns,
    NamedColumns,
    allows_several,
    find_columns,
    notes_on_others,
)
from detector.data.datasets.sheet_labels import join_spellings, split_labels
from detector.data.datasets.sheet_rows import fill_names, without_remarks, without_totals
from detector.data.datasets.sheet_words import MAYBE, NO, YES
from detector.data.images import in_any_form, read_image_size
from detector.data.labeled_box import LabeledBox
from detector.data.picture_index import PictureIndex, readings
from detector.data.pictures import IMAGE_SUFFIXES, files_below
from detector.data.sources.class_folders import runs_folder
from detector.data.sources.missing_names import find_affixes, hints_on_missing
from detector.data.sources.splits import split_of_cell
from detector.data.sources.tagged import Tagged, locate, places_of_pictures
from detector.utils.errors import DataError, counted, shortened
from detector.utils.files import check_printable

_MOST_WORDS, _FEW_TEXTS = 3, 5  # of the name of a class; so many longer ones may be mistakes
_LEAST_REPEATED = 0.2  # share of pictures with equal lines from which lines are taken for answers of people

logger = logging.getLogger(__name__)


class _Line(NamedTuple):
    """What a row says of its picture."""

    line: int
    name: str
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    split: str | None
    box: tuple[float, ...] | None  # as in the table; None: the row has none


class _Problems:
    """Problems grouped by cause; each has the number of a line and what is wrong there."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[int, str]]] = defaultdict(list)

    def add(self, cause: str, line: int, what: str) -> None:
        self.found[cause].append((line, what))

    def check(self, path: Path, hints: Sequence[str] = ()) -> None:
        """Raise a DataError that counts each cause, with three examples."""
        if not self.found:
            return
        told = []
        for cause, cases in self.found.items():
            examples = [f"{what} (line {line})" for line, what in cases]
            told.append(f"  {counted(len(cases), 'line', 'lines')}: {cause}: {shortened(examples, 3)}")
        raise DataError(
            "\n".join([f"{path} cannot be used as it is:", *told, *(f"  {hint}" for hint in hints)])
        )


def read_sheet_source(
    path: Path,
    pictures: Path,
    *,
    class_names: Sequence[str] = (),
    skip_missing: bool = False,
    named: NamedColumns = UNNAMED,
) -> list[Tagged]:
    """The tagged pictures of a spreadsheet, each once, with the labels of all its lines.

    Args:
        pictures: the folder to search for pictures; that of the table is searched as well.
        class_names: spellings of classes to follow, such as those of another table.
        skip_missing: leave out lines whose picture does not exist.
        named: the columns that the user names.

    Raises:
        DataError: lists all problems by cause.
    """
    rows = without_remarks(read_sheet(path))
    if any(cell.startswith("[{") and '"original_width"' in cell for row in rows[:20] for cell in row.cells):
        raise DataError(
            f"{path} is a table of Label Studio with regions as JSON in its cells: export the project as JSON"
        )
    folder, places = pictures.resolve(), places_of_pictures(pictures, path)
    index = PictureIndex(folder, files_below(folder, IMAGE_SUFFIXES, outside=runs_folder(pictures)))

    def exists(text: str) -> bool:
        return bool(text) and (_find_exact(text, places) is not None or bool(index.find(text)))

    columns = find_columns(rows, exists, path, named)
    logger.info("%s: %s", path, columns.describe())
    problems = _Problems()
    rows, notes = without_totals(rows[columns.first :], columns.header, columns.picture, exists)
    rows, filled = fill_names(rows, columns.picture, columns.labels)
    notes += [*filled, *([] if named.labels else notes_on_others(rows, columns))]
    lines = _read_lines(rows, columns, path, problems, notes)
    known = {name.casefold(): name for name in class_names}
    lines = [
        row._replace(labels=tuple(known.get(each.casefold(), each) for each in row.labels)) for row in lines
    ]
    found, missing = _find_all(lines, index, places, problems)
    if missing and (by_affix := find_affixes([row.name for row in missing], index, set(found.values()))):
        before, after, files = by_affix
        warnings.warn(
            f"{path}: {counted(len(missing), 'name', 'names')} without a picture, such as "
            f"{missing[0].name!r}, {'are' if len(missing) > 1 else 'is'} read as {before}NAME{after}",
            stacklevel=3,
        )
        found |= {row.line: (file, folder) for row, file in zip(missing, files, strict=True)}
        missing = []
    if missing and skip_missing:
        warnings.warn(
            f"{path}: {counted(len(missing), 'line is', 'lines are')} left out because there is no such "
            f"picture: {shortened([row.name for row in missing], 3)}",
            stacklevel=3,
        )
    elif missing:
        for unmatched in missing:
            problems.add(f"no such picture is below {pictures}", unmatched.line, repr(unmatched.name))
    tagged = _merge_rows([row for row in lines if row.line in found], found, columns, problems, path)
    if problems.found:
        for picture in tagged:
            try:
                read_image_size(picture.file)
            except (OSError, DataError):
                problems.add("the picture cannot be read", picture.line, picture.name)
        names = [] if skip_missing else [row.name for row in missing]
        problems.check(path, hints_on_missing(names, index, folder, path))
    if not tagged:
        raise DataError(f"{path}: none of its {len(lines)} lines names a picture that is below {pictures}")
    return tagged


def _read_lines(
    rows: Sequence[SheetRow], columns: Columns, path: Path, problems: _Problems, notes: Sequence[str]
) -> list[_Line]:
    """The content of each row, with labels in their most frequent spelling; tells `notes` with others."""
    cells = columns_of(rows)
    cells += [[""] * len(rows)] * (len(columns.header) - len(cells))  # a header may be longer than all rows
    names, unknown, others = _names_of_rows(rows, cells, columns, problems)
    counts = Counter(name for classes in [*names, *unknown] for name in classes)
    texts = [name for name in counts if len(name.split()) > _MOST_WORDS]
    if len(texts) > max(_FEW_TEXTS, len(counts) / 2) and 2 * len(counts) > sum(counts.values()):
        titles = ", ".join(map(columns.title, (*columns.labels, *columns.classes)))
        raise DataError(
            f"{path}: {titles} has texts such as {texts[0][:80]!r}, expected names of classes, each of which "
            "several pictures show: write them into a column labels, with cat;dog for two of them"
        )
    spelling, told = join_spellings(counts)
    if notes := [*notes, *others, *told]:
        warnings.warn(f"{path}: " + ";\n  ".join(notes), stacklevel=4)
    lines = []
    for place, row in enumerate(rows):
        if not (name := cells[columns.picture][place]):
            problems.add("no picture is named", row.line, repr(",".join(row.cells)[:60]))
            continue
        labels, maybe = ({spelling[label]: None for label in part[place]} for part in (names, unknown))
        for label in (*labels, *maybe):
            try:
                check_printable(label)
            except DataError as error:
                problems.add("a label cannot be used", row.line, str(error))
        stated = None
        if columns.split is not None and (text := cells[columns.split][place]).casefold() != "unassigned":
            try:
                stated = split_of_cell(text, columns.header[columns.split])
            except DataError as error:
                problems.add("the split cannot be told", row.line, str(error))
        box = _box([cells[i][place] for i in columns.boxes], row.line, columns, problems)
        lines.append(_Line(row.line, name, tuple(labels), tuple(maybe.keys() - labels), stated, box))
    return lines


def _names_of_rows(
    rows: Sequence[SheetRow], cells: Sequence[Sequence[str]], columns: Columns, problems: _Problems
) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """The classes of each row, the classes that it may show, and notes on how the cells were read."""
    names: list[list[str]] = [[] for _ in rows]
    notes = []
    for i in columns.labels:
        several = len(columns.labels) > 1 or allows_several(columns.header[i])
        split, told = split_labels(cells[i], several=several)
        if columns.boxes and len(columns.labels) == 1:  # a line is one box, of one class
            split, told = [[cell] if cell else [] for cell in cells[i]], []
        notes += told
        for known, new in zip(names, split, strict=True):
            # pandas prints what a second or third column lacks as None.
            known += [name for name in new if name != "None"] if len(columns.labels) > 1 else new
    if columns.confirmed is not None:
        denied = [place for place, cell in enumerate(cells[columns.confirmed]) if float(cell) == 0]
        for place in denied:
            names[place].clear()
        title = columns.title(columns.confirmed)
        notes.append(
            f"{counted(len(denied), 'line', 'lines')} with 0 in {title}: the picture does not show it"
        )
    unknown = split_labels(cells[columns.unknown], several=True)[0] if columns.unknown is not None else []
    unknown = unknown or [[] for _ in rows]
    # -1 is absent in lists of -1 and 1, such as CelebA's.
    flags = {cell.casefold() for i in columns.classes for cell in cells[i]}
    absent = {"-1", "-1.0"} if not flags & {"0", "0.0"} and flags & {"1", "1.0"} else set()
    counts = {i: [cell for cell in cells[i] if cell.isdecimal() and int(cell) > 1] for i in columns.classes}
    if counted_in := [i for i, found in counts.items() if found]:
        example = f"{counts[counted_in[0]][0]} in {shortened([*map(columns.title, counted_in)], 2)}"
        notes.append(
            f"numbers such as {example} are taken for counts of objects: from 1 on, a picture shows the class"
        )
    for i in columns.classes:
        name = columns.header[i].rstrip(" ?:")
        for place, cell in enumerate(cells[i]):
            if flag(cell):
                names[place].append(name)
            elif cell in MAYBE - absent:
                unknown[place].append(name)
            elif flag(cell) is None and cell not in absent:
                problems.add(
                    f"neither yes nor no in the column of a class ({_some(YES)}; {_some(NO)}, nothing)",
                    rows[place].line,
                    f"{cell!r} in {columns.title(i)}",
                )
    if any({*cells[i]} <= {"0", "1", ""} for i in columns.labels):
        notes.append(
            "0 and 1 are taken for two classes; if 0 means that a picture does not show the class, give the "
            "column the name of the class as its header"
        )
    return names, unknown, notes


def _some(words: set[str]) -> str:
    return ", ".join(word for word in ("1", "x", "yes", "0", "no") if word in words)


def _box(texts: Sequence[str], line: int, columns: Columns, problems: _Problems) -> tuple[float, ...] | None:
    if not any(texts):
        return None
    try:
        x1, y1, x2, y2 = (float(text.replace(",", ".")) for text in texts)
    except ValueError:
        problems.add("a box is not four numbers", line, " ".join(texts))
        return None
    if columns.boxes_have_sizes:
        x2, y2 = x1 + x2, y1 + y2
    if not all(map(math.isfinite, (x1, y1, x2, y2))) or x1 > x2 or y1 > y2:
        problems.add("a box is inverted", line, " ".join(texts))
        return None
    return x1, y1, x2, y2


def _find_all(
    lines: Sequence[_Line], index: PictureIndex, places: Sequence[Path], problems: _Problems
) -> tuple[dict[int, tuple[Path, Path]], list[_Line]]:
    """The file of each line and the folder that its name is relative to; and the lines without a picture."""
    found: dict[int, tuple[Path, Path]] = {}
    missing = []
    named: dict[Path, str] = {}  # the name by which the index found each picture
    folder = places[0].resolve()
    for row in lines:
        if there := _find_exact(row.name, places):
            found[row.line] = there
            continue
        files = index.find(row.name)
        if not files:
            missing.append(row)
        elif len(files) > 1:
            several = [file.relative_to(folder).as_posix() for file in files]
            problems.add("several pictures have the name", row.line, f"{row.name!r}: {shortened(several, 2)}")
        elif named.setdefault(files[0], row.name) != row.name:
            problems.add(
                "another line names the same picture by another path",
                row.line,
                f"{row.name!r} and {named[files[0]]!r}: {files[0].relative_to(folder).as_posix()}",
            )
        else:
            found[row.line] = files[0], folder
    return found, missing


def _find_exact(text: str, places: Sequence[Path]) -> tuple[Path, Path] | None:
    """The file at exactly this path, and the folder that its name is relative to."""
    for reading in readings(text)[:2]:
        try:
            name = picture_name(reading)
        except DataError:
            continue
        if (path := Path(reading)).is_absolute():
            if os.path.isfile(in_any_form(path)):
                return in_any_form(path), Path(path.as_posix().removesuffix(name))
        else:
            picture = locate(Tagged(Path(name), ()), places)
            if os.path.isfile(picture.file) and picture.file.suffix.lower() in IMAGE_SUFFIXES:
                return picture.file, picture.root
    return None


def _merge_rows(
    lines: Sequence[_Line],
    found: Mapping[int, tuple[Path, Path]],
    columns: Columns,
    problems: _Problems,
    path: Path,
) -> list[Tagged]:
    """One entry per picture, with the labels, boxes and split of all its lines."""
    groups: dict[Path, list[_Line]] = defaultdict(list)
    for row in lines:
        groups[found[row.line][0].resolve()].append(row)
    _warn_of_answers([*groups.values()], columns, path)
    scale = bool(columns.boxes) and all(side <= 1 for row in lines for side in row.box or ())
    tagged = []
    for group in groups.values():
        first = group[0]
        file, root = found[first.line]
        labels = {label: None for row in group for label in row.labels}
        splits = {row.split: row for row in group if row.split}
        if len(splits) > 1:
            problems.add("a picture is in two splits", group[-1].line, repr(first.name))
        boxes = _boxes(group, file, scale=scale) if columns.boxes else None
        unknown = {label: None for row in group for label in row.unknown if label not in labels}
        tagged.append(
            Tagged(
                file,
                tuple(labels),
                () if boxes is not None else tuple(unknown),
                split=next(iter(splits), None),
                boxes=boxes,
                root=root,
                line=first.line,
            )
        )
    return tagged


def _warn_of_answers(groups: Sequence[Sequence[_Line]], columns: Columns, path: Path) -> None:
    """Warn where lines of one picture contradict each other, as the answers of several people do.

    Lines with yes or no for each class do if they differ; lines with one label each, which may be a list of
    all labels, if others of them are the same.
    """
    answers = [[frozenset(row.labels) for row in group] for group in groups if len(group) > 1]
    repeated = sum(len({*each}) < len(each) for each in answers)
    differing = [number for number, each in enumerate(answers) if len({*each}) > 1]
    of_people = repeated >= _LEAST_REPEATED * len(answers) and not columns.boxes and columns.confirmed is None
    if not differing or not (columns.classes or of_people):
        return
    several = [group for group in groups if len(group) > 1]
    first = several[differing[0]]
    told = " and ".join([*dict.fromkeys(repr(", ".join(row.labels)) for row in first)][:3])
    warnings.warn(
        f"{path}: the lines of {counted(len(differing), 'picture', 'pictures')} differ, such as those of "
        f"{first[0].name!r}, which say {told}: a picture gets the labels of all its lines. If several "
        "people answered, keep one line of each picture, with what most of them say",
        stacklevel=4,
    )


def _boxes(group: Sequence[_Line], file: Path, *, scale: bool) -> tuple[LabeledBox, ...] | None:
    """The boxes of a picture; None if a line has a label but no box: they are incomplete."""
    if any((row.box is None) != (not row.labels) or len(row.labels) > 1 for row in group):
        return None
    factors = (1.0, 1.0)
    if scale:
        try:
            height, width = read_image_size(file, apply_orientation=True)
        except (OSError, DataError):
            return None  # reported where the pictures are read
        factors = width, height
    return tuple(
        LabeledBox(row.labels[0], tuple(side * factors[i % 2] for i, side in enumerate(row.box)))
        for row in group
        if row.box
    )
