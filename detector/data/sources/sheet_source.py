"""Reads tagged pictures from a spreadsheet: finds the picture of each name and merges the labels of its rows.

All problems are reported in one error, grouped by cause.
"""

import json
import logging
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from detector.data.datasets.image_table import is_table_of_run, picture_name
from detector.data.images import in_any_form, read_image_size
from detector.data.labeled_box import LabeledBox
from detector.data.picture_index import PictureIndex, readings
from detector.data.pictures import IMAGE_SUFFIXES, files_below, runs_folder
from detector.data.sheets.columns import (
    UNNAMED,
    Columns,
    NamedColumns,
    find_columns,
)
from detector.data.sheets.doubts import notes_on_others, with_names_of_numbers, without_low_scores
from detector.data.sheets.file import RECORDS, SHEET_SUFFIXES, SheetRow, read_records, read_sheet
from detector.data.sheets.layouts import as_lines
from detector.data.sheets.rows import (
    fill_classes,
    fill_names,
    with_corrections,
    with_names_in_objects,
    without_remarks,
    without_sums,
    without_totals,
)
from detector.data.sheets.words import LABELS, RATERS, header_key, words_of
from detector.data.sources.missing_names import find_affixes, hints_on_missing
from detector.data.sources.sheet_lines import Line, Problems, read_lines
from detector.data.sources.tagged import Tagged, locate, places_of_pictures
from detector.utils.errors import DataError, counted, shortened

_LEAST_REPEATED = 0.2  # share of pictures with equal lines from which lines are taken for answers of people

logger = logging.getLogger(__name__)


def is_sheet(labels: Path | None) -> bool:
    """Whether labels are a table of any form, or records of tags, whose columns have to be found."""
    suffix = labels.suffix.lower() if labels else ""
    if labels is None or suffix in SHEET_SUFFIXES:
        return labels is not None
    if suffix not in RECORDS or is_table_of_run(labels):
        return False
    return bool(read_records(labels))


def read_sheet_source(
    path: Path,
    pictures: Path,
    *,
    class_names: Sequence[str] = (),
    skip_missing: bool = False,
    named: NamedColumns = UNNAMED,
) -> list[Tagged]:
    """The tagged pictures of a spreadsheet, each once, with the labels of all its lines.

    Args:
        pictures: the folder to search for pictures; that of the table is searched as well.
        class_names: spellings of classes to follow, such as those of another table.
        skip_missing: leave out lines whose picture does not exist.
        named: the columns that the user names.

    Raises:
        DataError: lists all problems by cause.
    """
    folder, places = pictures.resolve(), places_of_pictures(pictures, path)
    index = PictureIndex(folder, files_below(folder, IMAGE_SUFFIXES, outside=runs_folder(pictures)))

    @cache
    def exact(text: str) -> tuple[Path, Path] | None:
        return _find_exact(text, places)

    @cache
    def exists(text: str) -> int:
        if not text:
            return 0
        return 1 if exact(text) is not None else len(index.find(text))

    problems = Problems()
    rows, columns, notes = _rows_and_columns(path, places, exists, named)
    lines = read_lines(rows, columns, path, problems, notes)
    raters = _raters(rows, columns)
    known = {name.casefold(): name for name in class_names}
    lines = [row._replace(labels=tuple(known.get(x.casefold(), x) for x in row.labels)) for row in lines]
    found, missing = _find_all(lines, index, folder, exact, problems)
    if missing and (by_affix := find_affixes([row.name for row in missing], index, set(found.values()))):
        before, after, files = by_affix
        warnings.warn(
            f"{path}: {counted(len(missing), 'name', 'names')} without a picture, such as "
            f"{missing[0].name!r}, {'are' if len(missing) > 1 else 'is'} read as {before}NAME{after}",
            stacklevel=3,
        )
        found |= {row.line: (file, folder) for row, file in zip(missing, files, strict=True)}
        missing = []
    names = [row.name for row in missing]
    if missing and skip_missing:
        warnings.warn(
            f"{path}: {counted(len(missing), 'line is', 'lines are')} left out because there is no such "
            f"picture: {shortened(names, 3)}",
            stacklevel=3,
        )
        names = []
    else:
        for row in missing:
            problems.add(f"no such picture is below {pictures}", row.line, repr(row.name))
    tagged = _merge_rows([row for row in lines if row.line in found], found, columns, raters, problems, path)
    if problems.found:
        for picture in tagged:
            try:
                read_image_size(picture.file)
            except (OSError, DataError):
                problems.add("the picture cannot be read", picture.line, picture.name)
        problems.check(path, hints_on_missing(names, index, folder, path))
    if not tagged:
        raise DataError(f"{path}: none of its {len(lines)} lines names a picture that is below {pictures}")
    return tagged


def _rows_and_columns(
    path: Path, places: Sequence[Path], exists: Callable[[str], int], named: NamedColumns
) -> tuple[list[SheetRow], Columns, list[str]]:
    """The rows below the header, a picture in each, its columns, and notes for the user."""
    rows = without_remarks(read_sheet(path, exists))
    rows, told = as_lines(with_names_in_objects(rows, exists), exists)
    told += _choose_attribute(rows, path)
    columns = find_columns(without_sums(rows), exists, path, named)
    data, notes = without_totals(
        rows[columns.first :], columns.header, columns.picture, (*columns.labels, *columns.classes), exists
    )
    logger.info("%s: %s", path, columns.describe())
    rows = _with_folders(data, columns, exists)
    notes += [*told, *columns.notes]
    rows, filled = fill_names(rows, columns.picture, columns.labels)
    rows, of_classes = fill_classes(rows, columns.labels)
    notes += [*filled, *of_classes]
    if not named.labels:
        rows, corrected = with_corrections(rows, columns.header, columns.labels)
        notes += corrected or notes_on_others(rows, columns)
    rows, of_numbers = with_names_of_numbers(rows, columns, [path.parent, *places])
    notes += of_numbers
    rows, scored = without_low_scores(rows, columns)
    return rows, columns, [*notes, *scored]


def _choose_attribute(rows: Sequence[SheetRow], path: Path) -> list[str]:
    """A note on which attribute of regions of VIA is read; an error where it is not clear.

    Raises:
        DataError: as well where cells are regions of Label Studio.
    """
    if any(cell.startswith("[{") and '"original_width"' in cell for row in rows for cell in row.cells):
        raise DataError(
            f"{path} is a table of Label Studio with regions as JSON in its cells: export the project as JSON"
        )
    place = next((i for i, cell in enumerate(rows[0].cells) if header_key(cell) == "regionattributes"), -1)
    attributes: dict[str, str] = {}
    for row in rows[1:] if place >= 0 else ():
        try:
            value = json.loads(row.cells[place])
        except (ValueError, IndexError):
            continue
        if isinstance(value, dict):
            attributes |= {key: entry for key, entry in value.items() if entry}
    if len(attributes) < 2:
        return ["regions of VIA are not read as boxes; export COCO for these"] if attributes else []
    known = sorted({*map(header_key, attributes)} & {*LABELS}, key=LABELS.index)
    if not known:
        raise DataError(
            f"{path}: region_attributes, as VIA writes them, has several attributes, "
            f"{shortened([*map(repr, attributes)], 6)}: which has the classes is not clear. Keep that one: "
            "delete the others among the region attributes of VIA, and export again"
        )
    return [f"of the attributes {shortened([*map(repr, attributes)], 6)}, {known[0]!r} is read"]


def _with_folders(rows: Sequence[SheetRow], columns: Columns, exists: Callable[[str], int]) -> list[SheetRow]:
    """The rows with the folder before each name, where a column has it, as Timelapse writes it."""
    if columns.folder is None:
        return list(rows)
    whole = []
    for row in rows:
        cells = [*row.cells, *[""] * (len(columns.header) - len(row.cells))]
        path = f"{cells[columns.folder]}/{cells[columns.picture]}".replace("\\", "/")
        if cells[columns.folder] and cells[columns.picture] and exists(path):
            cells[columns.picture] = path
        whole.append(SheetRow(row.line, tuple(cells)))
    return whole


def _find_all(
    lines: Sequence[Line],
    index: PictureIndex,
    folder: Path,
    exact: Callable[[str], tuple[Path, Path] | None],
    problems: Problems,
) -> tuple[dict[int, tuple[Path, Path]], list[Line]]:
    """The file of each line and the folder that its name is relative to; and the lines without a picture."""
    found: dict[int, tuple[Path, Path]] = {}
    missing = []
    named: dict[Path, str] = {}  # the name by which the index found each picture
    for row in lines:
        if there := exact(row.name):
            found[row.line] = there
            continue
        files = index.find(row.name)
        if not files:
            missing.append(row)
        elif len(files) > 1:
            several = [file.relative_to(folder).as_posix() for file in files]
            problems.add(
                f"several pictures below {folder} have the name",
                row.line,
                f"{row.name!r}: {shortened(several, 2)}",
            )
        elif named.setdefault(files[0], row.name) != row.name:
            problems.add(
                "another line names the same picture by another path",
                row.line,
                f"{row.name!r} and {named[files[0]]!r}: {files[0].relative_to(folder).as_posix()}",
            )
        else:
            found[row.line] = files[0], folder
    return found, missing


def _find_exact(text: str, places: Sequence[Path]) -> tuple[Path, Path] | None:
    """The file at exactly this path, and the folder that its name is relative to."""
    for each in readings(text)[:2]:
        try:
            name = picture_name(each)
        except DataError:
            continue
        if (path := Path(each)).is_absolute():
            if os.path.isfile(in_any_form(path)):
                return in_any_form(path), Path(path.as_posix().removesuffix(name))
        else:
            picture = locate(Tagged(Path(name), ()), places)
            if os.path.isfile(picture.file) and picture.file.suffix.lower() in IMAGE_SUFFIXES:
                return picture.file, picture.root
    return None


def _merge_rows(
    lines: Sequence[Line],
    found: Mapping[int, tuple[Path, Path]],
    columns: Columns,
    raters: Mapping[int, str],
    problems: Problems,
    path: Path,
) -> list[Tagged]:
    """One entry per picture, with the labels, boxes and split of all its lines."""
    groups: dict[Path, list[Line]] = defaultdict(list)
    resolved = {file: file.resolve() for file in {found[row.line][0] for row in lines}}
    for row in lines:
        groups[resolved[found[row.line][0]]].append(row)
    of_people = _are_answers([*groups.values()], columns, raters, path)
    scale = bool(columns.boxes) and all(side <= 1 for row in lines for side in row.box or ())
    tagged = []
    for group in groups.values():
        first = group[0]
        file, root = found[first.line]
        votes = Counter(label for row in group for label in row.labels)
        labels = [label for label, count in votes.items() if not of_people or 2 * count >= len(group)]
        splits = {row.split: row for row in group if row.split}
        if len(splits) > 1:
            problems.add("a picture is in two splits", group[-1].line, repr(first.name))
        boxes = _boxes(group, file, scale=scale) if columns.boxes else None
        unknown = {label: None for row in group for label in row.unknown if label not in labels}
        tagged.append(
            Tagged(
                file,
                tuple(labels),
                () if boxes is not None else tuple(unknown),
                split=next(iter(splits), None),
                boxes=boxes,
                root=root,
                line=first.line,
            )
        )
    return tagged


def _raters(rows: Sequence[SheetRow], columns: Columns) -> dict[int, str]:
    """Who answered in each line, where a column says so."""
    place = next((i for i in columns.left_out if words_of(columns.header[i]) & RATERS), -1)
    return {row.line: row.cells[place] for row in rows if 0 <= place < len(row.cells)}


def _are_answers(
    groups: Sequence[Sequence[Line]], columns: Columns, raters: Mapping[int, str], path: Path
) -> bool:
    """Whether lines of one picture are known to be answers of several people; warns where they differ.

    Lines with yes or no for each class do if they differ; lines with one label each, which may be a list of
    all labels, if others of them are the same.
    """
    answers = [[frozenset(row.labels) for row in group] for group in groups if len(group) > 1]
    repeated = sum(len({*each}) < len(each) for each in answers)
    differing = [number for number, each in enumerate(answers) if len({*each}) > 1]
    of_people = repeated >= _LEAST_REPEATED * len(answers) and not columns.boxes and columns.confirmed is None
    if not differing or not (columns.classes or of_people):
        return False
    several = [group for group in groups if len(group) > 1]
    known = bool(columns.classes) or all(
        len({raters.get(row.line) for row in group}) == len(group) for group in several
    )
    kept = "that at least half of its lines have" if known else "of all its lines"
    first = several[differing[0]]
    told = " and ".join([*dict.fromkeys(repr(", ".join(row.labels)) for row in first)][:3])
    warnings.warn(
        f"{path}: the lines of {counted(len(differing), 'picture', 'pictures')} differ, such as those of "
        f"{first[0].name!r}, which say {told}: a picture gets the labels {kept}",
        stacklevel=4,
    )
    return known


def _boxes(group: Sequence[Line], file: Path, *, scale: bool) -> tuple[LabeledBox, ...] | None:
    """The boxes of a picture; None if a line has a label but no box: they are incomplete."""
    if any((row.box is None) != (not row.labels) or len(row.labels) > 1 for row in group):
        return None
    factors = (1.0, 1.0)
    if scale:
        try:
            height, width = read_image_size(file, apply_orientation=True)
        except (OSError, DataError):
            return None  # reported where the pictures are read
        factors = width, height
    return tuple(
        LabeledBox(row.labels[0], tuple(side * factors[i % 2] for i, side in enumerate(row.box)))
        for row in group
        if row.box
    )
