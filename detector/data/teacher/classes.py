"""The table that maps the class names of a teacher to those of a data set.

CSV with two columns, the teacher's name or number and the class; nothing after the comma leaves a name out:

    teacher,class
    person,worker
    2,truck
    cloud,

A name that is a class needs no line: "Traffic_light" and "a traffic light." are the class "traffic light".
"""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from detector.data.datasets.annotated import unknown_class
from detector.utils.errors import DataError, ErrorList
from detector.utils.files import read_text

_HEADER = ["teacher", "class"]
_ARTICLE = re.compile(r"^(an?|the) (?=.)")
LEFT_OUT = -1  # the class index of a name that the table leaves out


def read_class_table(path: Path, class_names: Sequence[str]) -> dict[str, int]:
    """The class index of each name of a table; LEFT_OUT for names without a class.

    Raises:
        FileNotFoundError: there is no such file.
        DataError: names each line without two columns, with an unknown class, or a name of an earlier line.
    """
    mistakes, found = ErrorList(path), dict[str, int]()
    lines = read_text(path, "table of classes").splitlines()
    for line, cells in enumerate(csv.reader(lines, skipinitialspace=True), start=1):
        cells = [cell.strip() for cell in cells]
        if not any(cells) or (line == 1 and [cell.lower() for cell in cells] == _HEADER):
            continue
        if len(cells) != 2 or not cells[0]:
            mistakes.add(line, f"{len(cells)} columns, expected two: the teacher's name, class")
        elif cells[0] in found:
            mistakes.add(line, f"{cells[0]!r} is there twice")
        elif cells[1] and cells[1] not in class_names:
            mistakes.add(line, unknown_class(cells[1], class_names))
        else:
            found[cells[0]] = class_names.index(cells[1]) if cells[1] else LEFT_OUT
    mistakes.check()
    return found


def match_names(
    labels: Iterable[str | int],
    names: Mapping[str | int, str],
    table: Mapping[str, int],
    class_names: Sequence[str],
) -> dict[str | int, int]:
    """The class index of each label of a teacher that has one; LEFT_OUT for labels that the table leaves out.

    Args:
        labels: names, or numbers of classes.
        names: the names of the numbers, if they are known.
        table: the result of :func:`read_class_table`; its entries take precedence.

    Raises:
        DataError: two classes have the same plain name, and the label is neither.
    """
    plain: dict[str, list[int]] = {}
    for column, name in enumerate(class_names):
        plain.setdefault(plain_name(name), []).append(column)
    found = {}
    for label in labels:
        name = names.get(label, str(label)) if isinstance(label, int) else label
        if (key := next((key for key in (str(label), name) if key in table), None)) is not None:
            found[label] = table[key]
        elif name in class_names:
            found[label] = class_names.index(name)
        elif near := plain.get(plain_name(name)):
            if len(near) > 1:
                same = " and ".join(repr(class_names[column]) for column in near)
                raise DataError(f"the teacher's {name!r} may be {same}: say which in the table of classes")
            found[label] = near[0]
    return found


def plain_name(name: str) -> str:
    """A name in lower case without article and full stop, with blanks for underscores and hyphens."""
    words = " ".join(re.split(r"[\s_-]+", name.casefold().strip().rstrip(".").strip()))
    return _ARTICLE.sub("", words)
