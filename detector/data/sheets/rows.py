"""Leaves out the rows of a spreadsheet that are no data: remarks, rules, repeated headers, totals."""

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence

from detector.data.pictures import IMAGE_SUFFIXES
from detector.data.sheets.file import SheetRow, columns_of, is_name
from detector.data.sheets.words import CORRECTED, LABELS, PICTURE, TOTALS, header_key, words_of
from detector.utils.errors import counted, shortened

_KNOWN = 20  # rows of which one has to name a picture, so that names without one are no names
_CORRECTIONS = 0.5  # share of the cells of a column that are labels of another which it may correct
_RULE = re.compile(r":?-{2,}:?|={2,}|[-+|=]{3,}|\(\d+ rows?\)|")  # of Markdown and of databases


def without_remarks(rows: Sequence[SheetRow]) -> list[SheetRow]:
    """The rows without lines such as `# exported in May` above the header, and without rules, |---|---|, and
    the `(40 rows)` of a database.
    """
    rows = [row for row in rows if not all(map(_RULE.fullmatch, row.cells))]
    first = 0
    while first < len(rows) - 1 and _is_remark(rows[first]):
        first += 1
    return rows[first:]


def _is_remark(row: SheetRow) -> bool:
    mark, keys = row.cells[0][:2], [header_key(cell) for cell in row.cells]
    return mark[:1] == "#" and len(mark) > 1 and not (keys[0] in PICTURE and {*keys} & {*LABELS})


def with_names_in_objects(rows: Sequence[SheetRow], is_picture: Callable[[str], int]) -> list[SheetRow]:
    """The rows, with the name alone where a cell of JSON has that of a picture, as Zooniverse writes it."""
    return [SheetRow(row.line, tuple(_name_in(cell, is_picture) for cell in row.cells)) for row in rows]


def _name_in(cell: str, is_picture: Callable[[str], int]) -> str:
    if not cell.startswith("{"):
        return cell
    try:
        found = {text for text in _texts(json.loads(cell)) if is_name(text) and is_picture(text)}
    except ValueError:
        return cell
    return found.pop() if len(found) == 1 else cell


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)
    elif isinstance(value, str):
        yield value


def without_sums(rows: Sequence[SheetRow]) -> list[SheetRow]:
    """The rows without sums, such as Total,8,12, which in the column of a class are neither yes nor no."""

    def is_sum(row: SheetRow) -> bool:
        name, *others = filter(None, row.cells)
        return bool(words_of(name) & TOTALS) and all(map(str.isdecimal, others))

    return [*rows[:1], *(row for row in rows[1:] if not is_sum(row))]


def fill_names(
    rows: Sequence[SheetRow], picture: int, labels: Sequence[int]
) -> tuple[list[SheetRow], list[str]]:
    """The rows, with the name of the picture where a merged cell has it for several; and notes for the user.

    A single row may lack its name by mistake, and is left as it is.
    """

    def lacks_name(row: SheetRow) -> bool:
        filled = {i for i, cell in enumerate(row.cells) if cell}
        return picture not in filled and bool(filled & {*labels})

    if not labels or (count := sum(map(lacks_name, rows[1:]))) < 2:
        return list(rows), []
    filled: list[SheetRow] = []
    for row in rows:
        cells = list(row.cells)
        if filled and lacks_name(row):
            cells += [""] * (picture + 1 - len(cells))
            cells[picture] = filled[-1].cells[picture]
        filled.append(SheetRow(row.line, tuple(cells)))
    return filled, [f"{count} lines without a name belong to the picture above them"]


def fill_classes(rows: Sequence[SheetRow], labels: Sequence[int]) -> tuple[list[SheetRow], list[str]]:
    """The rows, with the class where merged cells have it in the first of its lines alone; and notes."""
    if len(labels) != 1 or not rows:
        return list(rows), []
    cells = columns_of(rows)[labels[0]]
    filled = [cell for cell in cells if cell]
    if not (len(filled) > 1 and cells[0] and len({*filled}) == len(filled) and 2 * len(filled) <= len(cells)):
        return list(rows), []
    whole: list[SheetRow] = []
    for row, own in zip(rows, cells, strict=True):
        above = whole[-1].cells[labels[0]] if whole else ""
        cells_of_row = [*row.cells, *[""] * (labels[0] + 1 - len(row.cells))]
        cells_of_row[labels[0]] = own or above
        whole.append(SheetRow(row.line, tuple(cells_of_row)))
    lines = counted(len(cells) - len(filled), "line", "lines")
    return whole, [
        f"{lines} without a class have that above them, as merged cells are saved: {filled[0]!r}, ..."
    ]


def with_corrections(
    rows: Sequence[SheetRow], header: Sequence[str], labels: Sequence[int]
) -> tuple[list[SheetRow], list[str]]:
    """The rows, with the labels of a column such as `corrected_label` where it has any; and notes."""
    if len(labels) != 1 or not rows or words_of(header[labels[0]]) & CORRECTED:
        return list(rows), []
    columns, own = columns_of(rows), labels[0]
    known = {cell for cell in columns[own] if cell}
    for i, column in enumerate(columns):
        filled = [cell for cell in column if cell]
        if i == own or not filled or not words_of(header[i]) & CORRECTED:
            continue
        if sum(cell in known for cell in filled) < _CORRECTIONS * len(filled):
            continue
        changed = sum(bool(new) and new != old for old, new in zip(columns[own], column, strict=True))
        whole = [
            SheetRow(
                row.line, tuple(new if place == own and new else cell for place, cell in enumerate(row.cells))
            )
            for row, new in zip(rows, column, strict=True)
        ]
        option = shlex.quote(header[own])
        return whole, [
            f"{header[i]!r} replaces {header[own]!r} where it is filled, {counted(changed, 'line', 'lines')} "
            f"with another label; --label-column {option} leaves it out"
        ]
    return list(rows), []


def _names_sum(row: SheetRow, picture: int, is_picture: Callable[[str], int]) -> bool:
    name = row.cells[picture] if picture < len(row.cells) else ""
    return bool(words_of(name) & TOTALS) and not is_picture(name) and not is_name(name)


def without_totals(
    rows: Sequence[SheetRow],
    header: Sequence[str],
    picture: int,
    labels: Collection[int],
    is_picture: Callable[[str], int],
) -> tuple[list[SheetRow], list[str]]:
    """The rows without repetitions of the header and without totals and remarks below the last picture.

    Args:
        rows: below the header.
        picture: the column of names.
        labels: those of classes.

    Returns:
        the rows, and notes for the user on what was left out.
    """

    def is_total(row: SheetRow) -> bool:
        filled = [cell for cell in row.cells if cell]
        name = row.cells[picture] if picture < len(row.cells) else ""
        if is_picture(name) or name.lower().endswith(IMAGE_SUFFIXES):
            return False
        if known and not any(row.cells[i] for i in labels if i < len(row.cells)):
            return True
        places = {i for i, cell in enumerate(row.cells) if cell}
        if not name and ((len(places) == 1 and not places & {*labels}) or words_of(filled[0]) & TOTALS):
            return True
        if not name:  # sums of flags or counts; of one picture without a name they would be 0 or 1
            return all(cell.isdecimal() for cell in filled) and any(int(cell) > 1 for cell in filled)
        remark = len(filled) == 1 and (": " in name or name[:1] in "*(")  # Exported: 3.5.2024
        return remark or bool(words_of(name) & TOTALS) or header_key(name) in TOTALS

    known = any(is_picture(row.cells[picture]) for row in rows[:_KNOWN] if picture < len(row.cells))
    title = tuple(cell for cell in header if cell)
    sums = [row for row in rows if known and _names_sum(row, picture, is_picture)]
    kept = [row for row in rows if not title or tuple(cell for cell in row.cells if cell) != title]
    notes = []
    repeated = len(rows) - len(kept)
    kept = [row for row in kept if row not in sums]
    if repeated:
        notes.append(f"the header is repeated {repeated} times below, which is left out")
    end = len(kept)
    while end > 1 and is_total(kept[end - 1]):
        end -= 1
    if left := sorted([*sums, *kept[end:]]):
        told = [f"{', '.join(filter(None, row.cells))!r} (line {row.line})" for row in left]
        notes.append(f"left out as no pictures: {shortened(told, 3)}")
    return kept[:end], notes
