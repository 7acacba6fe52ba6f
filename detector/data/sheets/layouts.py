"""Brings tables of other layouts into a line for each picture and class, by which cells name pictures."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from detector.data.sheets.cells import are_flags
from detector.data.sheets.file import SheetRow, columns_of, is_name
from detector.data.sheets.words import LABELS, PICTURE, header_key, words_of
from detector.utils.errors import counted

_SAMPLE = 300  # cells of a column that are looked up
_MOSTLY = 0.9  # of the cells of a column, where the others are mistakes
_BETWEEN = re.compile(r"\s*[,;|\n]\s*")  # the names of pictures in a cell
_HEADER = ("file", "labels")

IsPicture = Callable[[str], int]
Found = tuple[list[SheetRow], list[str]] | None


def as_lines(rows: Sequence[SheetRow], is_picture: IsPicture) -> tuple[list[SheetRow], list[str]]:
    """The rows, in lines of a picture and its classes where a table has another layout, and notes on it."""
    for read in (
        _transposed,
        _sections,
        _several_pictures,
        _columns_of_names,
        _lists_of_names,
        _names_with_classes,
    ):
        if found := read(rows, is_picture):
            return found
    return list(rows), []


def _mostly(cells: Iterable[str], is_picture: IsPicture) -> bool:
    filled = [cell for cell in cells if cell]
    known = [bool(is_picture(cell)) for cell in filled[:: max(1, len(filled) // _SAMPLE)]]
    return bool(known) and sum(known) >= _MOSTLY * len(known)


def _transposed(rows: Sequence[SheetRow], is_picture: IsPicture) -> Found:
    """Pictures side by side in the first line."""
    count = sum(bool(is_picture(cell)) for cell in rows[0].cells if cell)
    if count <= max(2, len(rows[0].cells) / 2) or len(rows) < 2:
        return None
    lines = [SheetRow(number, tuple(cells)) for number, cells in enumerate(columns_of(rows), start=1)]
    return lines, [f"{count} pictures are side by side in the first line: the table is transposed"]


def _sections(rows: Sequence[SheetRow], is_picture: IsPicture) -> Found:
    """Names of pictures below each class, as in `cats:` and the lines of its pictures."""

    def names(row: SheetRow) -> bool:
        return any(is_name(cell) or is_picture(cell) for cell in row.cells if cell)

    heads = {
        number
        for number, (row, below) in enumerate(pairwise(rows))
        if len([*filter(None, row.cells)]) == 1 and not names(row) and names(below)
    }
    keys = {header_key(cell) for row in rows[:5] for cell in row.cells}
    if len(heads) < 2 or (keys & {*LABELS} and max(heads) < len(rows) - 2 and len(rows[0].cells) > 1):
        return None
    lines, label = [], ""
    width = max(len(row.cells) for row in rows)
    for number, row in enumerate(rows):
        cells = [*row.cells, *[""] * (width - len(row.cells))]
        if number in heads:
            label = next(filter(None, cells)).strip(":#*=- ")
        elif number < min(heads) and len([*filter(None, cells)]) > 1:
            lines.append(SheetRow(row.line, (*cells, _HEADER[1])))  # the header of the other columns
        elif names(row):
            lines.append(SheetRow(row.line, (*cells, label)))
    return lines, [f"{counted(len(heads), 'line', 'lines')} without a picture name the class of those below"]


def _several_pictures(rows: Sequence[SheetRow], is_picture: IsPicture) -> Found:
    """Numbered columns of pictures, as `photo1` and `photo2` of an observation."""
    columns = columns_of(rows)
    numbered = [re.sub(r"[\W_]*\d+$", "", column[0]) for column in columns]
    places = [
        i for i, column in enumerate(columns) if numbered[i] != column[0] and _mostly(column[1:], is_picture)
    ]
    if len(places) < 2 or len({numbered[i] for i in places}) > 1:
        return None
    others = [i for i in range(len(columns)) if i not in places]
    lines = [
        SheetRow(0, (columns[place][number], *(columns[i][number] for i in others)))
        for number in range(1, len(rows))
        for place in places
        if columns[place][number]
    ]
    header = SheetRow(0, (numbered[places[0]], *(columns[i][0] for i in others)))
    return _numbered([header, *lines], first=rows[0].line), [
        f"a line for each picture in {', '.join(columns[i][0] for i in places)}"
    ]


def _columns_of_names(rows: Sequence[SheetRow], is_picture: IsPicture) -> Found:
    """A column for each class, with the names of its pictures below."""
    columns = columns_of(rows)
    titles = [column[0] for column in columns]
    if len(columns) < 2 or not all(titles) or any(words_of(title) & {*PICTURE} for title in titles):
        return None
    if any(map(is_picture, titles)) or not all(_mostly(column[1:], is_picture) for column in columns):
        return None
    lines = [
        SheetRow(row.line, (name, title))
        for title, column in zip(titles, columns, strict=True)
        for row, name in zip(rows[1:], column[1:], strict=True)
        if name
    ]
    return _numbered(lines), [f"each of the {len(columns)} columns has the pictures of a class"]


def _lists_of_names(rows: Sequence[SheetRow], is_picture: IsPicture) -> Found:
    """Several pictures in a cell, as in a line for each class."""
    columns = columns_of(rows)
    for place, column in enumerate(columns):
        mark = _BETWEEN if any(map(_BETWEEN.search, column)) else re.compile(r"\s+")
        split = [[name for name in mark.split(cell) if name] for cell in column]
        several = [names for names in split if len(names) > 1]
        if not several or not _mostly((name for names in several for name in names), is_picture):
            continue
        lines = [
            SheetRow(row.line, tuple(name if i == place else cells[i] for i in range(len(cells))))
            for row, names, cells in zip(rows, split, zip(*columns, strict=True), strict=True)
            for name in names or [""]
        ]
        return _numbered(lines, first=rows[0].line), ["a line for each of several pictures in a cell"]
    return None


def _names_with_classes(rows: Sequence[SheetRow], is_picture: IsPicture) -> Found:
    """A cell with the picture and a class, as in `a.jpg_cat`, and whether it is shown beside it."""
    columns = columns_of(rows)
    if any(_mostly(column[1:], is_picture) for column in columns):
        return None
    for place, column in enumerate(columns):
        pairs = [cell.rpartition("_")[::2] for cell in column[1:]]
        labels = {label for _, label in pairs}
        if not _mostly((name for name, _ in pairs), is_picture) or 2 * len(labels) > len(pairs):
            continue
        others = [cells[1:] for i, cells in enumerate(columns) if i != place]
        shown = others[0] if len(others) == 1 else ["1"] * len(pairs)
        if not are_flags(shown):  # a mask, or nothing
            shown = ["1" if cell else "0" for cell in shown]
        lines = [
            SheetRow(row.line, (*pair, says)) for row, pair, says in zip(rows[1:], pairs, shown, strict=True)
        ]
        told = f"{column[1]!r} is read as the picture {pairs[0][0]!r} and the class {pairs[0][1]!r}"
        return [SheetRow(rows[0].line, (*_HEADER, "present")), *lines], [told]
    return None


def _numbered(lines: Sequence[SheetRow], first: int | None = None) -> list[SheetRow]:
    """The lines, each with a number of its own, below a header where they have none."""
    header = [SheetRow(0, _HEADER)] if first is None else []
    return [*header, *(SheetRow(number, line.cells) for number, line in enumerate(lines, start=first or 1))]
