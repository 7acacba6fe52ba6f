"""Boxes of images to test on: from a labeling tool into the table of the images."""

from pathlib import Path
from typing import Literal

from detector.data.datasets.image_table import Row
from detector.data.datasets.table_writer import replace_table, rows_with_boxes
from detector.data.formats import review_import


def add_boxes(
    path: str | Path,
    table: str | Path,
    *,
    images: str | Path | None = None,
    reviewed: Literal["flags", "all"] = "flags",
) -> tuple[list[Row], Path, Path]:
    """Put the boxes of a corrected file into a table of image labels, to measure average precision with.

    Args:
        path, images, reviewed: as :func:`detector.data.formats.review_import` takes them.
        table: CSV or JSON lines, such as val.jsonl. It becomes JSON lines.

    Returns:
        the rows, the table, and the file in which the one before is kept.

    Raises:
        UserError, OSError: a file cannot be used; see :func:`rows_with_boxes`.
    """
    found = review_import(path, images=images, reviewed=reviewed)
    rows = rows_with_boxes(Path(table), found, Path(path))
    return rows, *replace_table(Path(table), rows)
