"""Reads the cells of workbooks of Excel (.xlsx, .xlsm) and of LibreOffice (.ods), which are XML in a zip.

Each cell is what a person sees in it, or nearly. The cells below the first one of merged rows have its text.

Formats: ECMA-376 Part 1, SpreadsheetML; OpenDocument 1.3 Part 3, chapter 9.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree.ElementTree import Element

from detector.utils.errors import DataError
from detector.utils.xml import parse_xml_bytes

_MOST_BYTES = 2**30  # of a part of the file when unpacked
_MOST_COLUMNS, _MOST_REPEATED = 2**14, 2**10  # Excel's; ods repeats empty rows up to the end of the sheet
_DAY_0 = datetime(1899, 12, 30)  # of Excel; it takes 1900 for a leap year
_DATES = {*range(14, 23), *range(45, 48)}  # numbers of its own formats of dates
_OF_DATES = re.compile(r"[yd]|m{3}", re.IGNORECASE)  # in formats of the user
_PLACE = re.compile(r"([A-Z]+)(\d+)")
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"

Cells = dict[int, dict[int, str]]  # text by row and column, both from 0


def read_workbook(path: Path) -> dict[str, list[tuple[int, tuple[str, ...]]]]:
    """The rows that are not empty of each sheet, by its title, each with its number from 1.

    Raises:
        FileNotFoundError, OSError: there is no file, or it cannot be read.
        DataError: it is no workbook, or damaged.
    """
    try:
        with zipfile.ZipFile(path) as book:
            if any(part.file_size > _MOST_BYTES for part in book.infolist()):
                raise DataError(f"{path}: a part of it has more than {_MOST_BYTES} bytes when unpacked")
            sheets = _sheets_of_ods(book) if path.suffix.lower() == ".ods" else _sheets_of_excel(book)
            return {title: _rows(cells) for title, cells in sheets}
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError, StopIteration) as error:
        raise DataError(
            f"{path} is no workbook, or damaged ({error}): save it again, or as CSV UTF-8"
        ) from None


def _rows(cells: Cells) -> list[tuple[int, tuple[str, ...]]]:
    width = 1 + max((column for row in cells.values() for column, text in row.items() if text), default=0)
    return [
        (number + 1, tuple(row.get(column, "") for column in range(width)))
        for number, row in sorted(cells.items())
        if any(row.values())
    ]


def _sheets_of_excel(book: zipfile.ZipFile) -> Iterator[tuple[str, Cells]]:
    names = {*book.namelist()}
    links = parse_xml_bytes(book.read("xl/_rels/workbook.xml.rels"))
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    texts = []
    if "xl/sharedStrings.xml" in names:
        texts = [_text_of_runs(entry) for entry in parse_xml_bytes(book.read("xl/sharedStrings.xml"))]
    dates = _formats_of_dates(book) if "xl/styles.xml" in names else set()
    for sheet in parse_xml_bytes(book.read("xl/workbook.xml")).iterfind("{*}sheets/{*}sheet"):
        link = next(value for key, value in sheet.items() if key.endswith("}id"))
        target = targets[link].lstrip("/")
        part = target if target in names else f"xl/{target}"
        if part in names and "worksheet" in part:  # not a sheet that is a chart
            yield sheet.get("name", ""), _cells_of_excel(parse_xml_bytes(book.read(part)), texts, dates)


def _cells_of_excel(sheet: Element, texts: list[str], dates: set[int]) -> Cells:
    cells: Cells = {}
    for number, row in enumerate(sheet.iterfind("{*}sheetData/{*}row")):
        for column, cell in enumerate(row.iterfind("{*}c")):  # some programs write no places
            below, beside = _place(cell.get("r", "")) or (int(row.get("r", number + 1)) - 1, column)
            cells.setdefault(below, {})[beside] = _text_of_excel(cell, texts, dates)
    for merged in sheet.iterfind("{*}mergeCells/{*}mergeCell"):
        first, _, last = merged.get("ref", "").partition(":")
        if (start := _place(first)) and (end := _place(last)):
            _repeat(cells, start, end[0])
    return cells


def _place(text: str) -> tuple[int, int] | None:
    """The row and column of a cell such as B3, from 0."""
    if not (found := _PLACE.fullmatch(text)):
        return None
    column = 0
    for letter in found[1]:
        column = 26 * column + ord(letter) - ord("A") + 1
    return int(found[2]) - 1, column - 1


def _repeat(cells: Cells, start: tuple[int, int], last: int) -> None:
    """Write the text of the first of merged cells into those below it."""
    row, column = start
    if text := cells.get(row, {}).get(column):
        for below in range(row + 1, min(last, row + _MOST_COLUMNS) + 1):
            cells.setdefault(below, {})[column] = text


def _text_of_excel(cell: Element, texts: list[str], dates: set[int]) -> str:
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(map(_text_of_runs, cell.iterfind("{*}is"))).strip()
    value = cell.findtext("{*}v") or ""
    if kind == "s":
        return texts[int(value)].strip()
    if kind == "b":
        return "TRUE" if value == "1" else "FALSE"
    if kind != "n" or not value:
        return value.strip()
    found = float(value)
    if int(cell.get("s", 0)) in dates:
        when = (_DAY_0 + timedelta(seconds=round(found * 86400))).isoformat(sep=" ")
        return when.removesuffix(" 00:00:00")
    return _number(found)


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:.15g}"


def _text_of_runs(node: Element) -> str:
    """The text of a string and of its runs with formats of their own, without the reading of Japanese."""
    return "".join(
        part.text or ""
        for child in node
        if not child.tag.endswith("}rPh")
        for part in child.iter()
        if part.tag.endswith("}t")
    )


def _formats_of_dates(book: zipfile.ZipFile) -> set[int]:
    """The styles of cells whose numbers are dates."""
    styles = parse_xml_bytes(book.read("xl/styles.xml"))
    codes = {
        int(node.get("numFmtId", 0)): re.sub(r'"[^"]*"|\[[^\]]*\]|\\.', "", node.get("formatCode", ""))
        for node in styles.iterfind("{*}numFmts/{*}numFmt")
    }
    used = [int(node.get("numFmtId", 0)) for node in styles.iterfind("{*}cellXfs/{*}xf")]
    return {
        style
        for style, number in enumerate(used)
        if number in _DATES or _OF_DATES.search(codes.get(number, ""))
    }


def _sheets_of_ods(book: zipfile.ZipFile) -> Iterator[tuple[str, Cells]]:
    for table in parse_xml_bytes(book.read("content.xml")).iter(f"{_TABLE}table"):
        cells: Cells = {}
        merged: list[tuple[tuple[int, int], int]] = []
        number = 0
        for row in table.iter(f"{_TABLE}table-row"):
            times = int(row.get(f"{_TABLE}number-rows-repeated", 1))
            found = dict(_cells_of_ods(row, number, merged))
            for again in range(min(times, _MOST_REPEATED) if found else 0):
                cells[number + again] = found
            number += times
        for start, last in merged:
            _repeat(cells, start, last)
        yield table.get(f"{_TABLE}name", ""), cells


def _cells_of_ods(
    row: Element, number: int, merged: list[tuple[tuple[int, int], int]]
) -> Iterable[tuple[int, str]]:
    column = 0
    for cell in row:
        times = int(cell.get(f"{_TABLE}number-columns-repeated", 1))
        if text := _text_of_ods(cell):
            yield from ((column + again, text) for again in range(min(times, _MOST_REPEATED)))
        if (rows := int(cell.get(f"{_TABLE}number-rows-spanned", 1))) > 1:
            merged.append(((number, column), number + rows - 1))
        column += times


def _text_of_ods(cell: Element) -> str:
    if cell.get(f"{_OFFICE}value-type") == "float":
        return _number(float(cell.get(f"{_OFFICE}value", 0)))
    if when := cell.get(f"{_OFFICE}date-value"):
        return when.removesuffix("T00:00:00")
    return "\n".join("".join(line.itertext()) for line in cell.iterfind(f"{_TEXT}p")).strip()
