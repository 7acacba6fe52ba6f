"""Writes tables of image labels (image_table.py), and adds boxes that a person has drawn to one."""

import json
import os
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from detector.data.datasets.annotated import unknown_class
from detector.data.datasets.image_labels import check_rows, row_id
from detector.data.datasets.image_table import Row, read_table
from detector.data.formats import ReviewImage, turn_images
from detector.data.picture_index import PictureIndex
from detector.data.reviewed import find_id
from detector.data.sources.splits import TRAIN, VAL
from detector.utils.errors import DataError, counted
from detector.utils.files import atomic_write

_SUFFIXES = (".csv", ".jsonl")


def encode_row(row: Row) -> str:
    """A line of a table, as JSON."""
    content: dict[str, Any] = {"file": row.file, "labels": row.labels}
    if row.unknown:
        content["unknown"] = row.unknown
    if row.boxes is not None:
        content["boxes"] = [
            {"label": box.label, "box": box.box, "difficult": box.difficult} for box in row.boxes
        ]
    return json.dumps(content, ensure_ascii=False)


def rows_with_boxes(table: Path, images: Sequence[ReviewImage], source: Path) -> list[Row]:
    """The rows of a table, with the boxes of the images that a person has reviewed as a whole.

    The boxes of an image decide its labels. Other rows are as before. Warnings count images that are not in
    the table or reviewed in part only, which are left out, and boxes that contradict the labels.

    Args:
        images: of :func:`detector.data.formats.review_import`, from `source`.

    Raises:
        DataError: it is no table, or one with mistakes; none of its images is reviewed as a whole; an image
            has another size; or a box has a class that neither the table nor train.csv or train.jsonl beside
            it has.
    """
    if table.suffix.lower() not in _SUFFIXES:
        raise DataError(f"{table} is no table of image labels, expected one with the suffix .csv or .jsonl")
    rows, mistakes = read_table(table)
    beside = [table.with_name(f"{split}{suffix}") for split in (TRAIN, VAL) for suffix in _SUFFIXES]
    tables = [path for path in beside if path.is_file() and path != table]
    of_training = (path for path in tables if path.stem == TRAIN)
    known = _classes(rows).union(*(_classes(read_table(path)[0]) for path in of_training))
    sizes = check_rows(rows, table.parent, sorted(known), mistakes)
    places = {row_id(row): place for place, row in enumerate(rows)}
    beside_it = (row_id(row) for path in tables for row in read_table(path)[0])
    images = _named_by_ids(images, {*places, *beside_it})
    found = [(places.get(find_id(image.name, places)), image) for image in images if image.reviewed != "none"]
    unknown_images = [image.name for place, image in found if place is None]
    in_part = [image.name for place, image in found if place is not None and not image.complete]
    whole = {place: image for place, image in found if place is not None and image.complete}
    if not whole and in_part:
        raise DataError(
            f"{source}: of the images of {table} none is reviewed as a whole; if all objects "
            "in all of them have boxes, pass --reviewed all (reviewed='all' in Python)"
        )
    if not whole:
        there = ", ".join(repr(image.name) for image in images[:1])
        names = f"{there or 'nothing'} there, {rows[0].file!r} here"
        raise DataError(f"{source}: none of its images is in {table} (such as {names})")
    paths = [table.parent / rows[place].file for place in whole]
    turned = turn_images(source, list(whole.values()), paths, upright=True)
    contradicted = []
    for place, image in zip(whole, turned, strict=True):
        row = rows[place]
        _check_image(image, sizes[place], known, table, source)
        labels = {box.label for box in image.boxes}
        if labels - {*row.unknown} != {*row.labels}:
            contradicted.append(image.name)
        rows[place] = Row(row.line, row.file, tuple(sorted(labels)), image.boxes)
    for some, what in (
        (unknown_images, f"not in {table}, left out"),
        (in_part, "reviewed in part only, left as before, as a table has the boxes of all objects"),
        (contradicted, "with boxes that contradict the tags, which are replaced"),
    ):
        if some:
            warnings.warn(
                f"{source}: {counted(len(some), 'image', 'images')} {what}; the first is {some[0]!r}",
                stacklevel=2,
            )
    return rows


def _named_by_ids(images: Sequence[ReviewImage], ids: Collection[str]) -> list[ReviewImage]:
    """The images with ids of the tables as names; a name without folder is the only id that ends in it."""
    unknown = [image for image in images if find_id(image.name, ids) not in ids and "/" not in image.name]
    if not unknown:
        return list(images)
    index = PictureIndex(Path(), [Path(f"{image_id}.jpg") for image_id in sorted(ids)])
    new = dict(
        zip((image.name for image in unknown), index.rename([image.name for image in unknown]), strict=True)
    )
    return [replace(image, name=new.get(image.name, image.name)) for image in images]


def _check_image(
    image: ReviewImage, size: tuple[int, int], known: Collection[str], table: Path, source: Path
) -> None:
    place = f"{source}: image {image.name!r} has"
    if image.size != size:
        raise DataError(f"{place} the (height, width) {image.size}, expected {size}")
    for box in image.boxes:
        if box.label not in known:
            raise DataError(
                f"{place} a box of {unknown_class(box.label, sorted(known))}, the labels of {table} and of "
                f"{TRAIN} beside it: correct the name, or tag an image with it first"
            )


def replace_table(table: Path, rows: Iterable[Row]) -> tuple[Path, Path]:
    """Write rows in the place of a table; return the new one, in JSON lines, and where the old one is kept.

    Raises:
        DataError: the table is CSV, and there is one of JSON lines beside it.
        OSError: a file cannot be written; the table is as before.
    """
    output = table.with_suffix(".jsonl")
    if output != table and output.exists():
        raise DataError(f"there are {table} and {output}: keep the one that is meant")
    names = (f"{table.name}.bak{number}" for number in chain([""], count(2)))
    kept = next(path for path in map(table.with_name, names) if not os.path.lexists(path))
    with atomic_write(kept) as file:
        file.write(table.read_bytes())
    with atomic_write(output, "w") as file:
        file.writelines(f"{encode_row(row)}\n" for row in rows)
    if output != table:
        table.unlink()
    return output, kept


def _classes(rows: Iterable[Row]) -> set[str]:
    return {label for row in rows for label in (*row.labels, *row.unknown)}
