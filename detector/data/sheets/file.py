"""Reads spreadsheets of any common form, CSV, TSV, text or Excel, into rows of cells.

Encoding and separator are detected: those of Excel depend on the language of the system. columns.py finds
what the columns mean. Tables of a run, which `detector init` writes, are read by datasets/image_table.py,
which is strict.
"""

import csv
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from detector.data.pictures import IMAGE_SUFFIXES
from detector.data.sheets.decoding import decode
from detector.data.sheets.html_tables import read_html
from detector.data.sheets.records import Record, records_of, records_of_cvat
from detector.data.sheets.workbook import read_workbook
from detector.utils.errors import DataError, counted, shortened
from detector.utils.files import reading
from detector.utils.xml import parse_xml

RECORDS = (".json", ".xml", ".jsonl", ".manifest", ".yaml", ".yml")
_WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".ods")
SHEET_SUFFIXES = (".csv", ".tsv", ".txt", ".md", ".html", ".htm", ".xls", ".numbers", *_WORKBOOKS)
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[;,\t|]*\r?$', re.IGNORECASE)  # Excel's, before all others
_OLD_EXCEL, _ZIP = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04"  # how such files begin
_HTML = re.compile(r"\s*<(?:!doctype html|html|table|body|div)\b", re.IGNORECASE)
_SEPARATORS = "\t,;|"
_LIMIT = 2**30  # bytes
_SAMPLE = 200  # rows from which the separator is found
_NO_WIDTH = dict.fromkeys(map(ord, "\u200b\u200c\u200e\u200f\u2060\ufeff"))
_SUFFIX = f"(?:{'|'.join(map(re.escape, IMAGE_SUFFIXES))})"
_ARROW = r"\s*(?:->|=>|\u2192|[:=])\s*|\s+[-\u2013]\s+"  # between a picture and its labels
_PICTURE_FIRST = re.compile(rf"\s*(.+?{_SUFFIX})(?:{_ARROW}|\s+)(.*?)\s*", re.IGNORECASE)
_PICTURE_BEFORE = re.compile(rf"\s*(.+?{_SUFFIX})(?:{_ARROW})(.*?)\s*", re.IGNORECASE)
_PICTURE_LAST = re.compile(rf"\s*(.*?[^\W\d]\S*)(?:{_ARROW}|\s+)(\S+{_SUFFIX})\s*", re.IGNORECASE)


class SheetRow(NamedTuple):
    """A row that is not empty."""

    line: int  # where it begins, from 1, as an editor or Excel counts
    cells: tuple[str, ...]  # without blanks around them


def read_sheet(path: Path, is_picture: Callable[[str], int] = lambda text: 0) -> list[SheetRow]:
    """The rows of a spreadsheet.

    Args:
        is_picture: how many pictures a cell may name, to find the sheet of a workbook.

    Raises:
        FileNotFoundError, OSError: there is none, or it cannot be read.
        DataError: it is not text, has no row, or is a damaged workbook or one of Numbers.
    """
    with reading(path, "table"):
        size = path.stat().st_size
        if size > _LIMIT:
            raise DataError(f"table {path} has {size} bytes, expected at most {_LIMIT}")
        with open(path, "rb") as file:
            start = file.read(8)
    if path.suffix.lower() == ".numbers":
        raise DataError(
            f"{path} is a spreadsheet of a format that is not read: save it as CSV UTF-8 or .xlsx"
        )
    if path.suffix.lower() in _WORKBOOKS or start.startswith((_ZIP, _OLD_EXCEL)):
        sheets = {title: [SheetRow(*row) for row in rows] for title, rows in read_workbook(path).items()}
        rows = _choose_sheet(sheets, path, is_picture)
    elif path.suffix.lower() in RECORDS:
        rows = _rows_of_records(read_records(path) or [])
    else:
        text = decode(path.read_bytes(), path)
        tables = _tables_of_html(text) if _HTML.match(text) else {}
        rows = _choose_sheet(tables, path, is_picture) if tables else split_rows(text, path)
    if not rows:
        raise DataError(f"{path} lists no image")
    return rows


def split_rows(text: str, path: Path) -> list[SheetRow]:
    """The rows of a text, by the separator that Excel's first line names or that fits the rows best.

    Raises:
        DataError: the quotes in it are not closed.
    """
    skipped = 0
    start, _, others = text.partition("\n")
    if named := SEPARATOR_LINE.match(start):
        text, skipped = others, 1
    separator = named[1] if named else _find_separator(text)
    if not named and (rows := _lines_of_text(text, path, separator)):
        return rows
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator or ",", skipinitialspace=True, strict=True
    )
    rows, line = [], 1 + skipped
    try:
        for cells in reader:
            if any(stripped := tuple(map(_stripped, cells))):
                rows.append(SheetRow(line, stripped))
            line = reader.line_num + 1 + skipped
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: not CSV: {error}") from None
    return rows


def _lines_of_text(text: str, path: Path, separator: str) -> list[SheetRow]:
    """The rows of columns of fixed width, or of lists such as those of Caffe: `a.jpg cat`, `a.jpg: cat`."""
    lines = [(number, line.rstrip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not separator and (rows := _fixed_width(lines)):
        return rows
    forms = (_PICTURE_FIRST, _PICTURE_LAST) if not separator else (_PICTURE_BEFORE,)
    for form in forms:
        found = [(number, form.fullmatch(line)) for number, line in lines]
        pairs = [SheetRow(number, (pair[1], pair[2])) for number, pair in found if pair]
        least = 0.0 if form is _PICTURE_FIRST else 0.9  # of the lines
        if pairs and len(pairs) >= least * len(lines):
            return _with_flags(pairs, text, path) if form is _PICTURE_FIRST else pairs
    return []


def _fixed_width(lines: Sequence[tuple[int, str]]) -> list[SheetRow]:
    """The rows of a table with blanks up to the next column, below a header with two or more between."""
    if len(lines) < 2:
        return []
    lines = [(number, line.expandtabs()) for number, line in lines]
    starts = [word.start() for word in re.finditer(r"(?:^|(?<=  ))\S", lines[0][1])]
    if len(starts) < 2 or any(line[start - 1 : start].strip() for _, line in lines for start in starts[1:]):
        return []
    ends = [*starts[1:], None]
    return [
        SheetRow(number, tuple(line[a:b].strip() for a, b in zip(starts, ends, strict=True)))
        for number, line in lines
    ]


def _stripped(cell: str) -> str:
    """A cell without blanks around it and signs without width."""
    return cell.translate(_NO_WIDTH).strip()


def _with_flags(pairs: list[SheetRow], text: str, path: Path) -> list[SheetRow]:
    """Pairs of a picture and what is beside it; where that is 1 and -1 or 0, with a column for each class.

    The line above the first picture has the names of the classes, as in lists such as CelebA's.

    Raises:
        DataError: it has not as many.
    """
    flags = [row.cells[1].split() for row in pairs]
    width = len(flags[0])
    if width < 2 or not all(len(cells) == width and {*cells} <= {"-1", "0", "1"} for cells in flags):
        return pairs
    above = text.split("\n")[: pairs[0].line - 1]
    names = above[-1].split() if above else []
    if len(names) == width + 1:  # one is that of the pictures
        names = names[1:]
    if len(names) != width:
        raise DataError(
            f"{path}: {width} columns of 0 or 1 are beside each picture, and the line above the first has "
            f"{counted(len(names), 'name', 'names')}; expected the names of the {width} classes there"
        )
    rows = [SheetRow(row.line, (row.cells[0], *cells)) for row, cells in zip(pairs, flags, strict=True)]
    return [SheetRow(max(1, pairs[0].line - 1), ("file", *names)), *rows]


def read_records(path: Path) -> list[Record] | None:
    """The records of a file of JSON, JSON lines, YAML or CVAT; None: it has no tags, or a format of boxes."""
    if path.suffix.lower() == ".xml":
        return records_of_cvat(parse_xml(path, "annotations"))
    with reading(path, "file of labels"):
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() in (".yaml", ".yml"):
            content = yaml.safe_load(text)
        elif path.suffix.lower() in (".jsonl", ".manifest"):
            content = [json.loads(line) for line in text.split("\n") if line.strip()]
        else:
            content = json.loads(text)
    return records_of(content, lambda name: isinstance(name, str) and is_name(name))


def _rows_of_records(records: Sequence[Record]) -> list[SheetRow]:
    """A row for each record below a header of their keys; objects and lists are cells of JSON."""
    header = [*dict.fromkeys(key for record in records for key in record)]
    rows = [tuple(_text_of_json(record.get(key)) for key in header) for record in records]
    return [SheetRow(number, cells) for number, cells in enumerate([tuple(map(str, header)), *rows])]


def _text_of_json(value: object) -> str:
    if isinstance(value, dict) and len(value) == 1 and isinstance(only := next(iter(value.values())), str):
        return only
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else _text_of_cell(value)


def _find_separator(text: str) -> str:
    """The separator of columns: it occurs in most rows, equally often; "": there is none.

    Of several, as in `a.jpg;cat,dog`, it is the one that leaves the name of a picture alone in a cell.
    """

    def fits(separator: str) -> tuple[float, float, float]:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True)
        try:
            rows = [cells for _, cells in zip(range(_SAMPLE), reader, strict=False) if any(cells)]
        except csv.Error:
            return 0, 0, 0
        whole = sum(len(cells) > 1 for cells in rows) / max(1, len(rows))
        names = sum(any(is_name(cell) for cell in cells) for cells in rows) / max(1, len(rows))
        most = Counter(map(len, rows)).most_common(1)
        alike = most[0][1] / len(rows) if most and most[0][0] > 1 else 0.0
        return round(whole, 1), round(names, 1), alike

    best = max(_SEPARATORS, key=fits)  # the first of equally good ones
    return best if fits(best)[0] >= 0.5 else ""


def is_name(cell: str) -> bool:
    text = cell.strip().lower()
    return text.endswith(IMAGE_SUFFIXES) and not any(character in text for character in "\t;|")


def _tables_of_html(text: str) -> dict[str, list[SheetRow]]:
    return {
        f"table {number}": [SheetRow(*row) for row in rows] for number, rows in enumerate(read_html(text), 1)
    }


def _choose_sheet(
    sheets: Mapping[str, list[SheetRow]], path: Path, is_picture: Callable[[str], int]
) -> list[SheetRow]:
    """The rows of the sheet that names pictures; those of several with the same header, one after another."""
    filled = {title: rows for title, rows in sheets.items() if rows}
    named = {
        title: sum(any(map(is_picture, row.cells)) for row in rows[:_SAMPLE])
        for title, rows in filled.items()
    }
    best = max(named, key=lambda title: named[title], default="")
    if len(filled) < 2:
        return filled[best] if filled else []
    read = [title for title in filled if title == best or named[title]]
    read = [title for title in read if filled[title][0].cells == filled[best][0].cells]
    rows = list(filled[read[0]])
    if len(read) > 1:  # lines are counted on, so that each has a number of its own; a sheet may be a class
        rows = [SheetRow(row.line, (*row.cells, read[0] if i else "sheet")) for i, row in enumerate(rows)]
        for title in read[1:]:
            last = rows[-1].line
            rows += [SheetRow(row.line + last, (*row.cells, title)) for row in filled[title][1:]]
    others = [title for title in filled if title not in read]
    told = [f"not {shortened(others, 3)}"] if others else []
    warnings.warn(
        f"{path} has {counted(len(filled), 'sheet', 'sheets')} with cells, of which "
        f"{', '.join([shortened(read, 3), *told])} {'are' if len(read) > 1 else 'is'} read",
        stacklevel=4,
    )
    return rows


def _text_of_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def is_sheet_of_pictures(path: Path) -> bool:
    """Whether most lines of a text have the name of a picture and something else."""
    rows = _first_rows(path)
    named = sum(len(row.cells) > 1 and any(map(is_name, row.cells)) for row in rows)
    return 0 < named >= 0.8 * len(rows)


def has_columns(path: Path) -> bool:
    """Whether a table has more than one column, so that it may have labels beside names."""
    return any(len(row.cells) > 1 for row in _first_rows(path))


def _first_rows(path: Path) -> list[SheetRow]:
    with open(path, "rb") as file:
        start = decode(file.read(20_000), path, warn=False)
    try:
        return split_rows(start, path)
    except DataError:
        return []


def columns_of(rows: Sequence[SheetRow]) -> list[list[str]]:
    """The cells of each column, as many as rows; a row that is too short has empty ones at its end."""
    width = max(len(row.cells) for row in rows)
    return [[row.cells[i] if i < len(row.cells) else "" for row in rows] for i in range(width)]
