"""Finds the header of a spreadsheet, below titles and above units."""

from collections.abc import Callable, Sequence
from pathlib import Path

from detector.data.sheets.cells import are_flags, flag, is_file_name
from detector.data.sheets.file import SheetRow, columns_of
from detector.data.sheets.words import LABELS, PICTURE, PIVOT, header_key
from detector.utils.errors import DataError

_PREAMBLE = 15  # rows among which the header is, below others such as Project,Surfaces


def split_header(
    rows: Sequence[SheetRow], is_picture: Callable[[str], int], path: Path
) -> tuple[int, tuple[str, ...], list[list[str]]]:
    """How many rows are above the header, the header (of empty texts: there is none) and the cells below."""
    titles = _count_titles(rows, is_picture)
    columns = columns_of(rows[titles:])
    header = tuple(column[0] for column in columns)
    known = any(header_key(cell) in (*PICTURE, *LABELS) for cell in header)
    if any(map(is_file_name, header)) or not (known or not any(map(is_picture, header))):
        return titles, ("",) * len(columns), columns
    if len(columns[0]) > 1:
        return titles, header, [column[1:] for column in columns]
    if known:
        raise DataError(f"{path} has a header, {', '.join(header)!r}, and no line below it")
    return titles, ("",) * len(columns), columns


def _count_titles(rows: Sequence[SheetRow], is_picture: Callable[[str], int]) -> int:
    """How many rows are above the header: with names of both kinds in it, else below rows of a single cell.

    Most rows have more cells than a title such as "Inventory 2024".
    """
    filled = [[cell for cell in row.cells if cell] for row in rows]
    for above, row in enumerate(rows[:5]):
        if {*map(header_key, row.cells)} & {*PIVOT}:  # above the header of a pivot table of Excel
            return above + 1
    for above, keys in enumerate({*map(header_key, row.cells)} for row in rows[:_PREAMBLE]):
        if keys & {*PICTURE} and keys & {*LABELS}:
            return 0 if any(is_picture(cell) for cells in filled[:above] for cell in cells) else above
    shown = (
        i
        for i, cells in enumerate(filled[:_PREAMBLE])
        if any(is_picture(x) or is_file_name(x) for x in cells)
    )
    if (data := next(shown, 0)) > 1:  # the header is the fullest row above the first picture
        return max(range(data), key=lambda above: len(filled[above]))
    if 2 * sum(len(cells) > 1 for cells in filled) < len(rows):
        return 0
    for above, (first, *others) in enumerate(filled):
        if others or header_key(first) in PICTURE or is_file_name(first) or is_picture(first):
            return above
    return 0


def second_header(
    header: Sequence[str], below: Sequence[Sequence[str]], picture: int
) -> tuple[str, ...] | None:
    """The header where a second row names the classes, below a cell such as "Defects" that spans them."""
    second = [column[0] if column else "" for column in below]
    spanned = [i for i, cell in enumerate(second) if cell]
    if second[picture] not in ("", header[picture]) or len(spanned) > len({second[i] for i in spanned}):
        return None
    spanned = [i for i in spanned if second[i] != header[i]]  # merged cells of both rows
    if not spanned or any(flag(second[i]) is not None for i in spanned):
        return None
    if not all(are_flags(below[i][1:]) for i in spanned):
        return None
    return tuple(low or high for low, high in zip(second, header, strict=True))


def without_units(
    below: list[list[str]], picture: int, is_picture: Callable[[str], int]
) -> tuple[list[list[str]], int]:
    """The cells without rows below the header, such as those of units, and how many these are.

    They name no picture, those after them do, and none of their cells occurs again.
    """
    names = below[picture]
    rows = next((i for i, name in enumerate(names[:3]) if is_picture(name)), 0)
    repeated = any(cell and cell in column[rows:] for column in below for cell in column[:rows])
    if repeated or any(is_file_name(name) or name.isdecimal() for name in names[:rows]):
        return below, 0
    return [column[rows:] for column in below], rows
