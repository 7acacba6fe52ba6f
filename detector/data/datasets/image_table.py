"""Tables of image labels: CSV, or JSON lines, which may hold boxes as well. Errors name the line.

CSV, in UTF-8, with or without a byte-order mark and the header `file,labels` (or `image,label`, and such):

    pictures/a.jpg,cat;dog
    "one, two.jpg",cat
    pictures/none.jpg,

With the header `file,labels,unknown`, a third column has classes that the image may show or not:

    file,labels,unknown
    pictures/a.jpg,cat,dog;bird

With another header of three columns or more, such as image,cat,dog, a row has 0 or 1 for each class.
A column `split` (or set, subset, partition, usage) has the split of the image, such as train or Validation;
or is_train, is_test or is_valid has 0 or 1.
If the first line has no comma, a tab, `|` or `;` separates the columns: so spreadsheets of some countries do.
A line `sep=;` before all others names the separator, as Excel reads it. UTF-16 needs its byte-order mark.

JSON lines, one object per line; "boxes", half-open x1, y1, x2, y2 in pixels, must be complete if present:

    {"file": "pictures/a.jpg", "labels": ["cat", "dog"], "unknown": ["bird"]}
    {"file": "b.jpg", "boxes": [{"label": "cat", "box": [10, 20, 110, 95.5], "difficult": false}]}
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from detector.data.labeled_box import LabeledBox
from detector.data.sheets.columns import names_file_and_labels
from detector.data.sheets.file import SEPARATOR_LINE
from detector.data.sources.splits import find_split_column, split_of_cell, split_of_value
from detector.utils.errors import DataError, ErrorList, counted, shortened
from detector.utils.files import check_printable, read_text, relative_name

_KEYS, _BOX_KEYS = ("file", "labels", "unknown", "boxes", "split"), {"label", "box", "difficult"}
_OTHER_SEPARATORS = ("\t", "|", ";")  # of columns; in this order, as labels may have the last
_SHOWN = {"0": False, "1": True, "0.0": False, "1.0": True}  # whether an image shows the class of a column


class Row(NamedTuple):
    """One image of a table."""

    line: int
    file: str  # as in the table; valid for picture_name
    labels: tuple[str, ...]
    boxes: tuple[LabeledBox, ...] | None  # None: not annotated
    unknown: tuple[str, ...] = ()  # classes that the image may show or not
    split: str | None = None  # TRAIN or VAL, where the table says so


def read_table(path: Path) -> tuple[list[Row], ErrorList]:
    """The valid rows of a table, and the mistakes in the others; see the top of this file.

    Raises:
        DataError: it is not UTF-8, or has no row.
    """
    text = read_text(path, "table")
    mistakes = ErrorList(path)
    rows = list((_read_csv if path.suffix.lower() == ".csv" else _read_json_lines)(text, mistakes))
    if not rows and not mistakes.found:
        raise DataError(f"{path} lists no image")
    return rows, mistakes


def is_table_of_run(path: Path) -> bool:
    """Whether the first line of JSON lines has the keys of a table of a run, and not those of others."""
    if path.suffix.lower() != ".jsonl":
        return False
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        first = next(filter(str.strip, file), "")
    try:
        content = json.loads(first)
    except ValueError:
        return True  # whose reader tells what is wrong
    return not isinstance(content, dict) or "file" in content


def picture_name(file: str) -> str:
    """The name of an image, a relative path: of an absolute path, the part after "/./", else after the root.

    So /photos/./a/b.jpg has the name a/b.jpg: as in rsync --relative, "/./" ends the folder of the images.

    Raises:
        DataError: the path has a part "..", or control characters.
    """
    path = Path(file)
    if not path.is_absolute():
        return relative_name(file)
    whole = relative_name(path.relative_to(path.anchor).as_posix())
    _, mark, name = file.rpartition("/./")
    return relative_name(name) if mark else whole


def _read_csv(text: str, mistakes: ErrorList) -> Iterator[Row]:
    start, _, others = text.partition("\n")
    line, columns, split_column, split_header = 1, 2, -1, ""
    if named := SEPARATOR_LINE.match(start):
        text, start, line = others, others.partition("\n")[0], 2
    separator = next(
        (separator for separator in _OTHER_SEPARATORS if separator in start and "," not in start), ","
    )
    separator = named[1] if named else separator
    file = io.StringIO(text, newline="")
    reader = csv.reader(file, delimiter=separator, skipinitialspace=True, strict=True)
    skipped, is_first, is_header = line - 1, True, True
    classes: list[str] = []  # of a table with a column for each
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if is_header:
                split_column = find_split_column(cells)
                split_header = cells[split_column] if split_column >= 0 else ""
            stated = cells.pop(split_column) if 0 <= split_column < len(cells) else ""
            while len(cells) > 2 and not cells[-1]:  # a spreadsheet pads its rows
                cells.pop()
            if not any(cells):
                line = reader.line_num + 1 + skipped
                continue
            if is_header and names_file_and_labels(cells):
                columns = len(cells)
            elif is_header and len(cells) > 2 and "." not in cells[0]:
                classes = cells[1:]
            else:
                if separator == ";" and columns == 2 < len(cells) and not classes:
                    cells = [cells[0], ";".join(cells[1:])]  # labels are separated by it, too
                if is_first and classes and not {*cells[1:]} <= _SHOWN.keys():
                    raise DataError(
                        f"{mistakes.path}, line {skipped + 1}: the columns after the first are "
                        f"{shortened(classes)}, expected file,labels or file,labels,unknown, or a class for "
                        "each column with 0 or 1 below (a name that holds a comma needs quotes)"
                    )
                is_first = False
                try:
                    row = _class_columns(line, cells, classes) if classes else _csv_row(line, cells, columns)
                    yield row._replace(split=split_of_cell(stated, split_header))
                except DataError as error:
                    mistakes.add(line, error)
            is_header = False
            line = reader.line_num + 1 + skipped
    except csv.Error as error:
        mistakes.add(line, f"not CSV: {error}")


def _csv_row(line: int, cells: list[str], columns: int) -> Row:
    if not 2 <= len(cells) <= columns:
        raise DataError(
            f"{counted(len(cells), 'column', 'columns')}, expected {columns}: file,label;label (a "
            "name that holds a comma needs quotes; classes that are unknown need the "
            "header file,labels,unknown)"
        )
    file, labels, unknown = (*cells, "")[:3]
    return _row(line, _file(file), _split_labels(labels), _split_labels(unknown), None)


def _class_columns(line: int, cells: list[str], classes: list[str]) -> Row:
    file, *values = cells
    if len(values) != len(classes) or not {*values} <= _SHOWN.keys():
        raise DataError(f"{values} after the file, expected 0 or 1 for each of {len(classes)} classes")
    labels = tuple(_label(name) for name, value in zip(classes, values, strict=True) if _SHOWN[value])
    return _row(line, _file(file), labels, (), None)


def _row(
    line: int,
    file: str,
    labels: tuple[str, ...],
    unknown: tuple[str, ...],
    boxes: tuple[LabeledBox, ...] | None,
) -> Row:
    if both := {*labels} & {*unknown}:
        raise DataError(f"{min(both)!r} is both among the labels and unknown")
    if boxes is not None and unknown:
        raise DataError("boxes and unknown classes: boxes are either all there, or left out")
    return Row(line, file, labels, boxes, unknown)


def json_lines(lines: Iterable[str], mistakes: ErrorList) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number, from 1, and the object of each line that is not empty; other lines are mistakes."""
    for line, content in enumerate(lines, start=1):
        if not content.strip():
            continue
        try:
            found = json.loads(content)
        except json.JSONDecodeError as error:
            mistakes.add(line, f"not JSON: {error.msg} at character {error.pos + 1}")
        except (ValueError, RecursionError) as error:
            mistakes.add(line, f"not JSON: {error}")
        else:
            if isinstance(found, dict):
                yield line, found
            else:
                mistakes.add(line, f"a {type(found).__name__}, expected an object")


def _read_json_lines(text: str, mistakes: ErrorList) -> Iterator[Row]:
    for line, content in json_lines(text.split("\n"), mistakes):
        try:
            yield _json_row(line, content)
        except (DataError, OverflowError) as error:
            mistakes.add(line, error)


def _json_row(line: int, content: dict[str, Any]) -> Row:
    if wrong := [key for key in content if key not in _KEYS]:
        raise DataError(f"unknown key {wrong[0]!r}; known are {', '.join(_KEYS)}")
    boxes = None
    if "boxes" in content:
        boxes = tuple(map(_json_box, _list(content["boxes"], "boxes")))
    shown = {box.label for box in boxes or ()}
    labels = content.get("labels")
    if labels is None:
        if boxes is None:
            raise DataError("no labels; an image that shows none of the classes has []")
        labels = sorted(shown)
    names, unknown = _names(labels, "labels"), _names(content.get("unknown", []), "unknown")
    if boxes is not None and set(names) != shown:
        name = min(set(names) ^ shown)
        where = "a box but not among the labels" if name in shown else "a label without a box"
        raise DataError(f"{name!r} is {where}; boxes are either all there, or left out")
    row = _row(line, _file(content.get("file")), names, unknown, boxes)
    return row._replace(split=split_of_value(content.get("split")))


def _json_box(content: object) -> LabeledBox:
    if not isinstance(content, dict) or not {"label", "box"} <= content.keys() <= _BOX_KEYS:
        raise DataError(f'a box is {content!r}, expected {{"label": NAME, "box": [x1, y1, x2, y2]}}')
    box, difficult = content["box"], content.get("difficult", False)
    numbers = isinstance(box, list) and all(type(side) in (int, float) for side in box)
    if not numbers or len(box) != 4 or not isinstance(difficult, bool):
        raise DataError(f"a box is {content!r}, expected 4 numbers, and true or false if difficult is there")
    return LabeledBox(_label(content["label"]), tuple(map(float, box)), difficult=difficult)


def _list(content: object, key: str) -> list:
    if not isinstance(content, list):
        raise DataError(f"{key} is {content!r}, expected a list")
    return content


def _names(content: object, key: str) -> tuple[str, ...]:
    if isinstance(content, str):
        return _split_labels(content)
    return tuple(_label(name) for name in _list(content, key))


def _split_labels(text: str) -> tuple[str, ...]:
    if text.strip()[:1] + text.strip()[-1:] in ("[]", "{}"):  # as pandas writes a column of lists
        raise DataError(
            f"the labels are {text!r}, a list as a program prints it, expected names with ';' between them, "
            "such as cat;dog, or nothing where the image shows none of the classes"
        )
    labels = tuple(_label(part) for part in text.split(";")) if text.strip() else ()
    for label in labels:
        for separator in ("|", ","):
            if separator in label:
                raise DataError(
                    f"label {label!r} holds {separator!r}: several labels are separated by ';' (JSON lines "
                    f"with a list of labels allow {separator!r} in a label)"
                )
    return labels


def _label(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"an empty label: {text!r}")
    check_printable(text.strip())
    return text.strip()


def _file(text: object) -> str:
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"no file name: {text!r}")
    picture_name(text)
    return text  # JSON quotes its names, so blanks around one belong to it; cells of CSV are stripped before
