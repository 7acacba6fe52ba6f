"""Reads the cells of workbooks of Excel (.xlsx, .xlsm, .xlsb, .xls) and of LibreOffice (.ods)."""

from datetime import date, datetime, time
from pathlib import Path

import python_calamine

from detector.utils.errors import DataError


def read_workbook(path: Path) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
    """The rows that are not empty of each sheet, by its title, each with its number from 1.

    The cells below the first one of merged rows have its text.

    Raises:
        FileNotFoundError, OSError: there is no file, or it cannot be read.
        DataError: it is no workbook, has a password, or is damaged.
    """
    try:
        with path.open("rb") as file:
            book = python_calamine.load_workbook(file)
            kinds = python_calamine.SheetTypeEnum
            titles = [sheet.name for sheet in book.sheets_metadata if sheet.typ == kinds.WorkSheet]
            return {title: _rows(book.get_sheet_by_name(title)) for title in titles}
    except python_calamine.CalamineError as error:
        raise DataError(
            f"{path} is no workbook, or damaged ({error}): save it again, or as CSV UTF-8"
        ) from None


def _rows(sheet: python_calamine.CalamineSheet) -> list[tuple[int, tuple[str, ...]]]:
    rows = [[_text(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]
    for (first, column), (last, _) in sheet.merged_cell_ranges or ():
        for row in rows[first + 1 : last + 1]:
            row[column] = rows[first][column]
    return [(number, tuple(row)) for number, row in enumerate(rows, start=1) if any(row)]


def _text(cell: object) -> str:
    """What a person sees in a cell, or nearly."""
    if isinstance(cell, bool):
        return str(cell).upper()
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else f"{cell:.15g}"
    if isinstance(cell, datetime):
        return str(cell).removesuffix(" 00:00:00")
    if isinstance(cell, (date, time)):
        return cell.isoformat()
    return str(cell).strip()
