"""Reader of a folder of images with a table of image labels.

    ROOT/SPLIT.csv or ROOT/SPLIT.jsonl    one line per image: its file, relative to ROOT, and its labels
    ROOT/...                              the images; the table may also contain absolute paths

See image_table.py for the format. Boxes, which only JSON lines can have, are for evaluation.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages, Objects, unknown_class
from detector.data.datasets.image_table import Row, picture_name, read_table
from detector.data.images import in_any_form, read_image_size
from detector.data.pictures import nearest_picture
from detector.utils.errors import DataError, ErrorList

# A message names ten mistakes, and each search for a hint takes the time of listing a folder.
_MOST_HINTS = 10


class ImageLabels(AnnotatedImages):
    """The images of a table, their labels and, if the table has any, their ground-truth boxes.

    The id of an image is its file without the suffix; of an absolute path, also without the root: the id of
    /pictures/a.jpg is pictures/a, and that of /pictures/./a.jpg is a. Images are rotated by their EXIF
    orientation, so boxes are as seen in a viewer. See :class:`AnnotatedImages` for invalid boxes.

    Args:
        root: folder of the table.
        split: name of the table, without ".csv" or ".jsonl".
        class_names: the C foreground classes in the order of the labels. Default: the labels of the table in
            alphabetical order.

    Raises:
        FileNotFoundError: there is no such table.
        DataError: the table cannot be read; an image is missing, unreadable or listed twice, or its path has
            a part ".."; a label is unknown; a box is invalid. Names the table, and the line of each of the
            first ten mistakes.
    """

    def __init__(self, root: str | Path, split: str, class_names: Sequence[str] = ()):
        root = Path(root)
        path = find_table(root, split)
        rows, mistakes = read_table(path)
        if stated := [row for row in rows if row.split]:
            raise DataError(
                f"{path} has a column of splits ({stated[0].split} on line {stated[0].line}), and is itself "
                "the table of one split: detector init, with --labels and this table, writes one for each"
            )
        class_names = tuple(class_names) or list_labels(rows, mistakes)
        columns = {name: column for column, name in enumerate(class_names)}
        sizes = check_rows(rows, root, class_names, mistakes)
        boxes = [(index, box) for index, row in enumerate(rows) for box in row.boxes or ()]
        labels = np.zeros((len(rows), len(class_names)), dtype=bool)
        unknown = np.zeros_like(labels) if any(row.unknown for row in rows) else None
        for index, row in enumerate(rows):
            labels[index, [columns[label] for label in row.labels]] = True
            if unknown is not None:
                unknown[index, [columns[label] for label in row.unknown]] = True
        super().__init__(
            f"{root.name}_{split}",
            path,
            class_names,
            [row_id(row) for row in rows],
            [str(in_any_form(root / row.file)) for row in rows],
            np.array(sizes, dtype=np.int64).reshape(-1, 2),
            Objects(
                images=np.array([index for index, _ in boxes], dtype=np.int64),
                boxes=np.array([box.box for _, box in boxes], dtype=np.float64).reshape(-1, 4),
                labels=np.array([columns[box.label] for _, box in boxes], dtype=np.int64),
                difficult=np.array([box.difficult for _, box in boxes], dtype=bool),
                crowd=np.zeros(len(boxes), dtype=bool),
                areas=np.full(len(boxes), np.nan),
            ),
            labels=labels,
            unknown=unknown,
            boxed=np.array([row.boxes is not None for row in rows]),
            apply_orientation=True,
        )


def find_table(root: str | Path, split: str) -> Path:
    """ROOT/SPLIT.csv or ROOT/SPLIT.jsonl.

    Raises:
        FileNotFoundError: there is neither.
        DataError: there are both.
    """
    paths = [Path(root, f"{split}{suffix}") for suffix in (".csv", ".jsonl")]
    there = [path for path in paths if path.is_file()]
    if len(there) == 2:
        raise DataError(f"there are {paths[0]} and {paths[1]}: keep the one that is meant")
    if not there:
        known = sorted(path.name for path in Path(root).glob("[!.]*") if path.suffix in (".csv", ".jsonl"))
        raise FileNotFoundError(
            f"neither {paths[0]} nor {paths[1]} exists; the tables there are: {', '.join(known) or 'none'}"
        )
    return there[0]


def list_labels(rows: Sequence[Row], mistakes: ErrorList) -> tuple[str, ...]:
    """The labels that occur, in alphabetical order; those that differ only in capitals are mistakes.

    Raises:
        DataError: there is none.
    """
    lines: dict[str, int] = {}
    for row in rows:
        for label in row.labels:
            lines.setdefault(label, row.line)
    spellings: dict[str, str] = {}
    for label, line in lines.items():
        other = spellings.setdefault(label.casefold(), label)
        if other != label:
            where = f" of line {lines[other]}" if line else ""
            mistakes.add(
                line, f"label {label!r} differs from {other!r}{where} only in capitals: write it one way"
            )
    if not lines and not mistakes.found:
        raise DataError(f"{mistakes.path} has no label")
    return tuple(sorted(lines))


def row_id(row: Row) -> str:
    """The id of the image of a row, see :class:`ImageLabels`."""
    return PurePosixPath(picture_name(row.file)).with_suffix("").as_posix()


def check_rows(
    rows: Iterable[Row],
    root: Path,
    class_names: Sequence[str],
    mistakes: ErrorList,
    pictures: Path | None = None,
) -> list[tuple[int, int]]:
    """The (height, width) of the images of a table.

    Args:
        root: the folder to which the files of the rows are relative.
        pictures: the folder to look in for files that do not exist, for a hint; None: where they should be.

    Raises:
        DataError: there are `mistakes` already, an image cannot be read or is listed twice, or a label is
            unknown; names all wrong lines. Or the first line is a header with other names.
    """
    first: dict[str, Row] = {}
    sizes = []
    for row in rows:
        try:
            earlier = first.setdefault(row_id(row), row)
            if earlier is not row:
                where = f" on line {earlier.line}" if earlier.line else ""
                raise DataError(
                    f"image {row.file!r} has the same id as {earlier.file!r}{where}: list an image once, "
                    "with all its labels in one line, as in a.jpg,cat;dog; suffixes are not part of the id: "
                    "rename one of two different images"
                )
            sizes.append(read_image_size(in_any_form(root / row.file), apply_orientation=True))
        except FileNotFoundError as error:
            few = len(mistakes.found) < _MOST_HINTS
            near = nearest_picture(root / row.file, pictures) if few else None
            name = Path(row.file).name
            if row.line == 1 and not near and "." not in name and mistakes.path.suffix != ".jsonl":
                raise DataError(
                    f"{mistakes.path}, line 1 looks like a header, as there is no image {name!r}: expected "
                    "the columns file,labels or file,labels,unknown, in this order"
                ) from None
            mistakes.add(row.line, f"{error}; there is {near}" if near else error)
        except (OSError, DataError) as error:
            mistakes.add(row.line, error)
        for label in sorted({*row.labels, *row.unknown} - set(class_names)):
            mistakes.add(row.line, unknown_class(label, class_names))
    mistakes.check()
    return sizes
