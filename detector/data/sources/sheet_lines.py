"""Reads what each row of a spreadsheet says of its picture; all problems are reported together, by cause."""

import math
import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from detector.data.sheets.answers import in_words
from detector.data.sheets.cells import flag, marks
from detector.data.sheets.columns import Columns
from detector.data.sheets.file import SheetRow, columns_of
from detector.data.sheets.labels import join_spellings, split_labels, without_counts, without_scores
from detector.data.sheets.words import LABELS, MAYBE, NO, YES, allows_several, header_key, is_nothing
from detector.data.sources.splits import split_of_cell
from detector.utils.errors import DataError, counted, shortened
from detector.utils.files import check_printable

_BEFORE = re.compile(r"[/[]|\s[-:]\s|(?<=\w)[.:](?=\w)")  # the end of what all names of classes begin with
_CLASS_IS = {*LABELS, "data", "has", "is", "contains", "with"}
_MOST_WORDS, _FEW_TEXTS = 3, 5  # of the name of a class; so many longer ones may be mistakes


class Line(NamedTuple):
    """What a row says of its picture."""

    line: int
    name: str
    labels: tuple[str, ...]
    unknown: tuple[str, ...]
    split: str | None
    box: tuple[float, ...] | None  # as in the table; None: the row has none


class Problems:
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


def read_lines(
    rows: Sequence[SheetRow], columns: Columns, path: Path, problems: Problems, notes: Sequence[str]
) -> list[Line]:
    """The content of each row, with labels in their most frequent spelling; tells `notes` with others."""
    cells = columns_of(rows)
    cells += [[""] * len(rows)] * (len(columns.header) - len(cells))  # a header may be longer than all rows
    cells = [in_words(of_column, columns.answers.get(i, {})) for i, of_column in enumerate(cells)]
    names, unknown, others = _names_of_rows(rows, cells, columns, problems, path)
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
        lines.append(Line(row.line, name, tuple(labels), tuple(maybe.keys() - labels), stated, box))
    return lines


def _names_of_rows(
    rows: Sequence[SheetRow],
    cells: Sequence[Sequence[str]],
    columns: Columns,
    problems: Problems,
    path: Path,
) -> tuple[list[list[str]], list[list[str]], list[str]]:
    """The classes of each row, the classes that it may show, and notes on how the cells were read."""
    names: list[list[str]] = [[] for _ in rows]
    notes = []
    for i in columns.labels:
        several = len(columns.labels) > 1 or allows_several(columns.header[i])
        split, told = split_labels(cells[i], several=several)
        if columns.boxes and len(columns.labels) == 1:  # a line is one box, of one class
            split, told = [[cell] if cell else [] for cell in cells[i]], []
        split, of_scores = without_scores(split)
        split, of_counts = without_counts(split)
        notes += [*told, *of_scores, *of_counts]
        for known, new in zip(names, split, strict=True):
            # pandas prints what a second or third column lacks as None.
            known += [name for name in new if name != "None"] if len(columns.labels) > 1 else new
    if columns.labels and not columns.classes and not columns.boxes:
        empty = sum(not any(cells[i][place] for i in columns.labels) for place in range(len(rows)))
        if empty:
            titles = ", ".join(map(columns.title, columns.labels))
            notes.append(
                f"{counted(empty, 'line', 'lines')} with nothing in {titles}: the picture shows no class; "
                "leave out those that nobody has looked at"
            )
    if columns.confirmed is not None:
        denied = [place for place, cell in enumerate(cells[columns.confirmed]) if cell and not flag(cell)]
        for place in denied:
            names[place].clear()
        no = cells[columns.confirmed][denied[0]]
        notes.append(
            f"{counted(len(denied), 'line', 'lines')} with {no} in {columns.title(columns.confirmed)}: the "
            "picture does not show it"
        )
    unknown = split_labels(cells[columns.unknown], several=True)[0] if columns.unknown is not None else []
    unknown = unknown or [[] for _ in rows]
    notes += _add_flags(rows, cells, columns, problems, names, unknown)
    for i in columns.labels:
        answers = sorted({cell.casefold() for cell in cells[i] if cell})
        if len(answers) > 1 and {*answers} <= YES | NO | MAYBE and not all(map(str.isdecimal, answers)):
            raise DataError(
                f"{path}: {columns.title(i)} has {shortened(answers, 3)} alone, which are no classes: "
                "its header has to name the class, or --label-column the column with the classes"
            )
    if any({*cells[i]} <= {"0", "1", ""} for i in columns.labels):
        notes.append(
            "0 and 1 are taken for two classes; if 0 means that a picture does not show the class, give the "
            "column the name of the class as its header"
        )
    return names, unknown, notes


def _add_flags(
    rows: Sequence[SheetRow],
    cells: Sequence[Sequence[str]],
    columns: Columns,
    problems: Problems,
    names: Sequence[list[str]],
    unknown: Sequence[list[str]],
) -> list[str]:
    """Add to the classes of each row, and to those that it may show, what the columns of one class say."""
    notes = []
    # -1 is absent in lists of -1 and 1, such as CelebA's.
    flags = {cell.casefold() for i in columns.classes for cell in cells[i]}
    absent = {"-1", "-1.0"} if not flags & {"0", "0.0"} and flags & {"1", "1.0"} else set()
    counts = {i: [cell for cell in cells[i] if cell.isdecimal() and int(cell) > 1] for i in columns.classes}
    if counted_in := [i for i, found in counts.items() if found]:
        example = f"{counts[counted_in[0]][0]} in {shortened([*map(columns.title, counted_in)], 2)}"
        notes.append(
            f"numbers such as {example} are taken for counts of objects: from 1 on, a picture shows the class"
        )
    unsure = []
    titles = [columns.header[i].rstrip(" ?:") for i in columns.classes]
    titles, before = _without_common(titles) if titles else (titles, "")
    if before:
        notes.append(f"{before!r} before the name of each class is left out")
    nothing = [i for i in columns.classes if counts[i] and is_nothing(columns.header[i])]
    most = [
        max((int(cells[i][k]) for i in columns.classes if cells[i][k].isdecimal()), default=0)
        for k in range(len(rows))
    ]
    if nothing:  # nobody counts nothing: these are votes
        notes[-1:] = [
            "numbers are taken for votes: a picture shows each class with at least half of the most votes"
        ]
    for i, name in zip(columns.classes, titles, strict=True):
        for place, cell in enumerate(marks(cells[i], name)):
            if nothing and cell.isdecimal() and 2 * int(cell) < most[place]:
                continue
            if flag(cell):
                names[place].append(name)
            elif cell.casefold() in MAYBE - absent:
                unknown[place].append(name)
                unsure.append(cell)
            elif flag(cell) is None and cell not in absent:
                problems.add(
                    f"neither yes nor no in the column of a class ({_some(YES)}; {_some(NO)}, nothing)",
                    rows[place].line,
                    f"{cell!r} in {columns.title(i)}",
                )
    if unsure:
        notes.append(
            f"{counted(len(unsure), 'cell such as', 'cells such as')} {unsure[0]!r}: whether the picture "
            "shows the class is taken for unknown"
        )
    return notes


def _without_common(names: Sequence[str]) -> tuple[list[str], str]:
    """The names of classes without the question or the word before all of them, and that.

    `What do you see?/cat`, `Seen [cat]`, `label_cat` and `data.cat` are cat.
    """
    same = takewhile(lambda pair: pair[0] == pair[1], zip(min(names), max(names), strict=False))
    before = "".join(letter for letter, _ in same)
    ends = [match.end() for match in _BEFORE.finditer(names[0]) if match.end() <= len(before)]
    word, mark, _ = before.partition("_")
    if mark and header_key(word) in _CLASS_IS:
        ends.append(len(word) + 1)
    rest = [name[max(ends, default=0) :].removesuffix("]") for name in names]
    if len(names) < 2 or not all(any(map(str.isalpha, name)) for name in rest):
        return [*names], ""
    return rest, before[: max(ends, default=0)]


def _some(words: set[str]) -> str:
    return ", ".join(word for word in ("1", "x", "yes", "0", "no") if word in words)


def _box(texts: Sequence[str], line: int, columns: Columns, problems: Problems) -> tuple[float, ...] | None:
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
