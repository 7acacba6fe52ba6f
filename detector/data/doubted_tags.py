"""The table of tags that are probably wrong, which `detector check --tags` writes and a review reads."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from detector.utils.errors import DataError
from detector.utils.files import read_text

TABLE = "check/tags.csv"  # in the run folder


class DoubtedTag(NamedTuple):
    """A tag that is probably wrong. The fields are the columns of the table."""

    image: str  # its id
    label: str
    said: str  # "shown" or "not shown"
    likely: str  # the other one
    probability: float  # that the tag is wrong
    score: float  # of the class in the image, in [0, 1], by a detector that has not learned from it
    x1: float  # the best box of the class, in pixels of the image; 0, 0, 0, 0: there are no proposals
    y1: float
    x2: float
    y2: float
    near_duplicates: str  # images that are nearly the same and say otherwise, separated by "; "


def encode_doubted_tags(rows: Iterable[DoubtedTag]) -> bytes:
    """The table as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(DoubtedTag._fields)
    for row in rows:
        numbers = (f"{value:.4g}" if isinstance(value, float) else value for value in row)
        writer.writerow(numbers)
    return text.getvalue().encode()


def read_doubts(path: Path) -> dict[str, dict[str, float]]:
    """The probability of each tag in the table that it is wrong, by the id of the image and the class.

    Raises:
        DataError: the file is not such a table.
    """
    doubts: dict[str, dict[str, float]] = {}
    for number, row in enumerate(csv.DictReader(io.StringIO(read_text(path, "table of doubted tags"))), 2):
        try:
            image, label, probability = row["image"], row["label"], float(row["probability"])
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{path}, line {number}: expected the columns image, label and probability, a number: run "
                "`detector check --tags` again"
            ) from None
        doubts.setdefault(image, {})[label] = probability
    return doubts
