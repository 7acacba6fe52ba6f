"""Columns of a spreadsheet that are not read and may matter."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from detector.data.sheets.answers import SURE
from detector.data.sheets.cells import are_numbers, flag, number
from detector.data.sheets.columns import Columns
from detector.data.sheets.file import SheetRow, columns_of
from detector.data.sheets.words import NOTHING, SCORES, header_key, is_review
from detector.utils.errors import counted

_CLASS_LISTS = ("classes.txt", "class_names.txt", "labels.txt", "names.txt", "obj.names")
_CORRECTIONS = 0.5  # share of the cells of a column that are labels of another from which it may correct it


def with_names_of_numbers(
    rows: Sequence[SheetRow], columns: Columns, folders: Sequence[Path]
) -> tuple[list[SheetRow], list[str]]:
    """The rows, with names in the place of numbers of classes if a list of names is in one of the folders.

    Numbers start at 0, or at 1 if the last is as large as the list is long.

    Args:
        rows: below the header.

    Returns:
        the rows, and notes for the user.
    """
    if len(columns.labels) != 1 or columns.classes or not rows:
        return list(rows), []
    place = columns.labels[0]
    filled = {cell for cell in columns_of(rows)[place] if cell}
    if len(filled) < 2 or not all(cell.isascii() and cell.isdecimal() for cell in filled):
        return list(rows), []
    first, last = min(map(int, filled)), max(map(int, filled))
    for file in dict.fromkeys(folder / name for folder in folders for name in _CLASS_LISTS):
        try:
            names = [name.strip() for name in file.read_text(encoding="utf-8").split("\n") if name.strip()]
        except (OSError, UnicodeDecodeError):
            continue
        start = 0 if first == 0 else 1 if last == len(names) else None
        if start is None or last - start >= len(names) or any(map(str.isdecimal, names)):
            continue
        known = {cell: names[int(cell) - start] for cell in filled}
        named = [
            SheetRow(row.line, tuple(known.get(x, x) if i == place else x for i, x in enumerate(row.cells)))
            for row in rows
        ]
        least = min(filled, key=int)
        return named, [
            f"the numbers in {columns.title(place)} stand for the names in {file}: {least} for "
            f"{known[least]!r}"
        ]
    return list(rows), []


def without_low_scores(rows: Sequence[SheetRow], columns: Columns) -> tuple[list[SheetRow], list[str]]:
    """The rows, without labels of low scores where every picture has a line for each class; and notes."""
    cells = columns_of(rows) if rows else []
    place = next((i for i in columns.left_out if header_key(columns.header[i]) in SCORES), None)
    if place is None or len(columns.labels) != 1 or place >= len(cells):
        return list(rows), []
    names, labels = {*cells[columns.picture]}, {*cells[columns.labels[0]]}
    filled = [cell.rstrip(" %") for cell in cells[place] if cell]
    if len(labels) < 2 or len(names) * len(labels) != len(rows) or not filled or not are_numbers(filled):
        return list(rows), []
    most = max(map(number, filled))
    least = SURE if most <= 1 else 100 * SURE
    if most > 100:
        return list(rows), []
    kept = [
        tuple(
            "" if i == columns.labels[0] and number(score.rstrip(" %")) < least else x
            for i, x in enumerate(row.cells)
        )
        for row, score in zip(rows, cells[place], strict=True)
    ]
    return [SheetRow(row.line, new) for row, new in zip(rows, kept, strict=True)], [
        f"scores in {columns.title(place)}: from {least:g} on, a picture shows the class"
    ]


def notes_on_others(rows: Sequence[SheetRow], columns: Columns) -> list[str]:
    """Notes on columns that are not read and may matter: other labels, as corrections are, and their scores.

    Args:
        rows: below the header.
    """
    cells = columns_of(rows)
    read = {cell for i in columns.labels for cell in cells[i] if cell}
    notes, scored = [], False
    for i in columns.left_out:
        if not (filled := [cell for cell in cells[i] if cell]):
            continue
        title = columns.header[i]
        denied = [cell for cell in filled if flag(cell) is False]
        if is_review(title) and denied and None not in map(flag, filled):
            notes.append(
                f"{columns.title(i)} is not read: {counted(len(denied), 'line', 'lines')} with {denied[0]!r} "
                "count like all others; leave out those whose label is wrong"
            )
        if re.sub(r"\d+$", "", header_key(title)) in SCORES and not scored and are_numbers(filled):
            scored = True
            low, high = min(filled, key=number), max(filled, key=number)
            notes.append(
                f"{columns.title(i)}, from {low} to {high}, is not read: leave out the lines whose label is "
                "too unsure"
            )
        known = sum(cell in read or header_key(cell) in NOTHING for cell in filled)
        if len(columns.labels) != 1 or len({*filled}) < 2 or known < _CORRECTIONS * len(filled):
            continue
        own, name = columns.labels[0], shlex.quote(title or str(i + 1))
        pairs = zip(cells[own], cells[i], strict=True)
        if other := sum(bool(new) and new != old for old, new in pairs):
            empty = len(rows) - len(filled)
            rest = f"; fill its {counted(empty, 'empty cell', 'empty cells')} first" if empty else ""
            notes.append(
                f"{columns.title(own)} is read, not {columns.title(i)}, which differs in "
                f"{counted(other, 'line', 'lines')}; if that corrects it, add --label-column {name}{rest}"
            )
    return notes
