"""Pictures with tags, read from folders, tables or annotations."""

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from detector.data.datasets.annotated import warn_of_unclear
from detector.data.datasets.image_labels import check_rows, list_labels
from detector.data.datasets.image_table import Row, picture_name, read_table
from detector.data.datasets.sheet import SHEET_SUFFIXES, has_columns, is_sheet_of_pictures, json_rows
from detector.data.formats import other_tool, review_import, voc, yolo
from detector.data.orientation import Boxed, find_turns, turn_box, turn_size
from detector.data.pictures import files_below, images_below
from detector.data.sources.class_folders import drawn_by_runs, pictures_by_class, visible
from detector.data.sources.copies import find_copies
from detector.data.sources.sheet_source import read_sheet_source
from detector.data.sources.splits import TRAIN, VAL, files_of_splits, split_of
from detector.data.sources.stated_splits import (
    IMAGE_FOLDERS,
    is_split_file,
    listed_splits,
    stated_splits,
    unfollowed,
)
from detector.data.sources.tagged import Tagged, placed, places_of_pictures
from detector.utils.errors import DataError, ErrorList, counted, shortened

_NDJSON = ".ndjson"
_TABLES, _ANNOTATIONS = (".csv", ".tsv", ".xlsx", ".jsonl"), (".json", ".xml")


def find_tags(pictures: Path, labels: Path | None, *, skip_missing: bool = False) -> tuple[list[Tagged], str]:
    """The tagged pictures of a folder, and where the tags are from.

    Args:
        pictures: the folder.
        labels: a table (CSV or JSON lines), a file of COCO, Label Studio or CVAT, or a folder of VOC or YOLO;
            None: it is looked for in the folder, then in its folders train and val, else a folder is a class.

    Raises:
        FileNotFoundError: a path does not exist.
        DataError: there are no labels, several files may be meant, or they cannot be read; a picture is
            missing, unreadable or listed twice, or labels differ only in capitals. Names the file, and the
            line of each of the first ten mistakes.
    """
    if not pictures.is_dir():
        raise FileNotFoundError(f"{pictures} is no folder of pictures")
    pictures = whole_set(pictures, labels)
    labels_of_splits, labels = _find_sources(pictures, labels)
    found: list[Tagged] = []
    classes: Sequence[str] = ()
    root = pictures.resolve()
    for split, folder, source in labels_of_splits:
        for each in _read_tags(folder, source, classes, skip_missing=skip_missing):
            # A table beside the folders of splits names them itself.
            named_by_table = folder == pictures and source.suffix.lower() in _TABLES
            below = not named_by_table and each.file.is_relative_to(root)
            found.append(each._replace(split=split, root=root if below else each.root))
        if source.suffix.lower() in _TABLES:  # its lines with other classes are told
            classes = sorted({label for each in found for label in each.labels})
    sources = " and ".join(str(source) for *_, source in labels_of_splits) or str(labels)
    if not labels_of_splits:
        if labels is None:
            yolo.check_has_names(pictures)
            sources = "folders, one per class"
        found = _read_tags(pictures, labels, skip_missing=skip_missing)
    if labels or labels_of_splits:
        _warn_of_others(pictures, found, sources)
    copies = find_copies([each.file for each in found])
    found = _test_alone([each._replace(content=copies.get(each.file, "")) for each in found])
    if VAL not in {each.split for each in found} and (others := unfollowed(visible(pictures))):
        warnings.warn(
            f"{pictures}: {shortened(others, 3)} may state which pictures are to test on, which is not "
            "followed, as nothing there is in the labels: see docs/data_sets.md, Splits",
            stacklevel=2,
        )
    return found, sources


def find_sources(pictures: Path, labels: Path | None) -> list[Path]:
    """The files or folders that :func:`find_tags` reads labels from; none where folders are the classes."""
    labels_of_splits, labels = _find_sources(whole_set(pictures, labels), labels)
    return [source for *_, source in labels_of_splits] or ([labels] if labels else [])


def whole_set(pictures: Path, labels: Path | None) -> Path:
    """The folder around one of all images, such as dataset/images, if annotations are beside it."""
    around = pictures.resolve().parent
    if labels is not None or pictures.name.lower() not in IMAGE_FOLDERS:
        return pictures
    if any(path.suffix.lower() in (*_TABLES, *_ANNOTATIONS) for path in visible(pictures)):
        return pictures
    beside = (path for place in _places_of_files(around)[1:] for path in _files_of_labels(place))
    of_yolo = yolo.find_names(around) or files_below(around / "labels", (".txt",))
    return around if of_yolo or any(beside) else pictures


def _find_sources(pictures: Path, labels: Path | None) -> tuple[list[tuple[str, Path, Path]], Path | None]:
    """The labels of each split, as of :func:`_labels_of_splits`, or else those of all pictures."""
    labels_of_splits = [] if labels else _labels_of_splits(pictures)
    if {split for split, *_ in labels_of_splits} != {TRAIN, VAL} and (
        labels := labels or _find_labels(pictures)
    ):
        return [], labels
    return labels_of_splits, labels


def _test_alone(tagged: list[Tagged]) -> list[Tagged]:
    """The pictures without those to train on that are to test on, too; one warning counts these."""
    tested = {each.content or each.file.resolve() for each in tagged if each.split == VAL}
    both = [
        each for each in tagged if each.split == TRAIN and (each.content or each.file.resolve()) in tested
    ]
    if both:
        warnings.warn(
            f"{counted(len(both), 'picture is', 'pictures are')} both to train and to test on, itself or as "
            f"a copy, and taken to test on: {shortened([each.name for each in both], 3)}",
            stacklevel=3,
        )
    return [each for each in tagged if each not in both] if both else tagged


def _warn_of_others(pictures: Path, tagged: Sequence[Tagged], source: str) -> None:
    """Warn of pictures in the folder that the labels do not list, or that cannot be read."""
    known = {each.file.resolve() for each in tagged}
    files = images_below(pictures, drawn_by_runs(pictures))
    others = [file.relative_to(pictures).as_posix() for file in files if file.resolve() not in known]
    if others:
        warnings.warn(
            f"{pictures}: {counted(len(others), 'picture is', 'pictures are')} left out, as not in the "
            f"labels, {source}: {shortened(others, 3)}; list there those that show none of the classes, too",
            stacklevel=2,
        )


def _labels_of_splits(pictures: Path) -> list[tuple[str, Path, Path]]:
    """The split, the folder of pictures and the labels of each split that has its own, training first."""
    for place, suffixes in (
        (pictures, _TABLES),
        *((each, _ANNOTATIONS) for each in _places_of_files(pictures)),
    ):
        files = _files_of_labels(place, suffixes)
        if len(files) > 1 and (named := files_of_splits(files)):
            return [(split, pictures, path) for split in (TRAIN, VAL) for path in named[split]]
    if _find_labels(pictures):
        return []
    folders = [
        (split, path) for path in visible(pictures) if path.is_dir() and (split := split_of(path.name))
    ]
    order = sorted(folders, key=lambda each: each[0] != TRAIN)
    return [(split, folder, found) for split, folder in order if (found := _find_labels(folder))]


def _places_of_files(folder: Path) -> list[Path]:
    """Where tools write the files of annotations of a folder of pictures."""
    return [
        place for name in ("", "annotations", "Annotations", "labels") if (place := folder / name).is_dir()
    ]


def _read_tags(
    pictures: Path, labels: Path | None, class_names: Sequence[str] = (), *, skip_missing: bool = False
) -> list[Tagged]:
    """The tagged pictures of one source, checked; `class_names`, if given, are those that may occur."""
    mistakes = ErrorList(labels or pictures)
    if labels is None:
        root = pictures.resolve()
        tagged = [
            Tagged(root / name, classes, split=split, root=root)
            for name, classes, split in pictures_by_class(pictures)
        ]
        if not any(each.split for each in tagged):
            splits = listed_splits(pictures, [each.name for each in tagged])
            tagged = [each._replace(split=split) for each, split in zip(tagged, splits, strict=True)]
    elif labels.suffix.lower() in SHEET_SUFFIXES or (labels.suffix.lower() == ".json" and json_rows(labels)):
        found = read_sheet_source(labels, pictures, class_names=class_names, skip_missing=skip_missing)
        tagged = _with_stated_splits(found, pictures, labels)
    elif labels.suffix.lower() in _TABLES:
        rows, mistakes = read_table(labels)
        tagged = _located(map(_of_row, rows), pictures, labels)
    else:
        tagged = _located(_annotated(pictures, labels), pictures, labels)
    once = _drop_repeated(tagged, mistakes)
    rows = [Row(each.line, each.entry, each.labels, None, each.unknown) for each in once]
    class_names = class_names or list_labels(rows, mistakes)
    progress = tqdm(rows, desc="pictures", unit="image", delay=1, disable=None)
    sizes = check_rows(progress, Path(), class_names, mistakes, pictures)
    once = _make_upright(once, labels)
    boxes = [box for each in once for box in each.boxes or ()]
    clear = {box.label for box in boxes if not box.difficult}
    if unclear := sorted({box.label for box in boxes} - clear):
        warnings.warn(
            warn_of_unclear(labels, unclear, crowd=labels is not None and labels.suffix == ".json"),
            stacklevel=2,
        )
    others = [i for i, size in enumerate(sizes) if once[i].size not in (None, size)]
    if others:
        first = once[others[0]]
        warnings.warn(
            f"{labels}: {counted(len(others), 'picture has', 'pictures have')} another size there, "
            f"boxes left out; the first is {first.name}, (height, width) {first.size} there, "
            f"{sizes[others[0]]} in the file",
            stacklevel=2,
        )
    return [each._replace(boxes=None) if i in others else each for i, each in enumerate(once)]


def _make_upright(tagged: Sequence[Tagged], labels: Path | None) -> list[Tagged]:
    """The pictures with boxes that refer to them as a viewer shows them, as those of tables do."""
    sized = {i: each.size for i, each in enumerate(tagged) if each.boxes and each.size}
    pictures = [
        Boxed(each.file, size, each.upright, stated=each.stated)
        for each, size in ((tagged[i], size) for i, size in sized.items())
    ]
    turns = dict(zip(sized, find_turns(labels, pictures, upright=True), strict=True))
    turned = list(tagged)
    for i, size in sized.items():
        boxes = (box._replace(box=turn_box(box.box, turns[i], size)) for box in tagged[i].boxes or ())
        turned[i] = tagged[i]._replace(boxes=tuple(boxes), size=turn_size(size, turns[i]))
    return turned


def _of_row(row: Row) -> Tagged:
    root = Path(row.file).as_posix().removesuffix(picture_name(row.file))  # what precedes the name
    return Tagged(
        Path(row.file), row.labels, row.unknown, row.split, row.boxes, root=Path(root), line=row.line
    )


def _annotated(pictures: Path, labels: Path) -> list[Tagged]:
    if labels.suffix.lower() == _NDJSON:
        raise DataError(
            f"{labels} is NDJSON, as the platforms of Ultralytics and Labelbox export it, which is not read: "
            "export YOLO, or convert it to COCO"
        )
    if labels.is_file() and labels.suffix.lower() not in _ANNOTATIONS:
        raise DataError(
            f"{labels} has none of the known suffixes: expected a table (.csv, .tsv, .xlsx, .jsonl), a "
            "file of COCO or Label Studio (.json) or of CVAT (.xml), or a folder of VOC or YOLO"
        )
    # FiftyOne names it data.
    folder = next((place for name in ("images", "data") if (place := pictures / name).is_dir()), pictures)
    images = review_import(labels, images=folder, reviewed="all")
    if not any(image.boxes for image in images):
        raise DataError(
            f"{labels} has no box in its {len(images)} images; classes without boxes are read from a table, "
            "with lines such as a.jpg,cat;dog"
        )
    _warn_of_scores(labels, [box.score for image in images for box in image.boxes])
    own = labels.is_dir() and yolo.find_names(labels) and folder.resolve().is_relative_to(labels.resolve())
    without = yolo.without_labels(folder, images) if own else []
    if without:
        warnings.warn(
            f"{labels}: {counted(len(without), 'picture has', 'pictures have')} no file in "
            f"labels, which in YOLO says that no class is shown: {shortened(without, 3)}; "
            "move those that nobody has looked at elsewhere",
            stacklevel=2,
        )
    return [Tagged(Path(name), (), boxes=()) for name in without] + [
        Tagged(
            *(Path(each.name), tuple(sorted({*each.unboxed, *(box.label for box in each.boxes)}))),
            split=split_of(each.split),
            boxes=None if each.unboxed else each.boxes,
            size=each.size,
            upright=each.upright,
            stated=each.stated,
        )
        for each in images
    ]


def _warn_of_scores(labels: Path, scores: Sequence[float | None]) -> None:
    if known := [score for score in scores if score is not None]:
        warnings.warn(
            f"{labels}: {counted(len(known), 'box has a score', 'boxes have scores')}, from {min(known):.3g} "
            f"to {max(known):.3g}, as those that a model found: all are taken for true, so see that a person "
            "has corrected them",
            stacklevel=2,
        )


def _located(tagged: Iterable[Tagged], pictures: Path, labels: Path) -> list[Tagged]:
    """The pictures with their places, and with the splits that the labels or files beside them state."""
    places = places_of_pictures(pictures, labels)
    found = [placed(each, places) for each in tagged]
    return _with_stated_splits(found, pictures, labels)


def _with_stated_splits(placed: list[Tagged], pictures: Path, labels: Path) -> list[Tagged]:
    """The pictures with the splits that files beside them state, if the labels themselves state none."""
    if any(each.split for each in placed):
        return placed
    folder = labels if labels.is_dir() else pictures
    folder = folder.parent if folder.name.lower() == "annotations" else folder
    splits = stated_splits(folder, [each.name for each in placed], [each.file for each in placed])
    return [each._replace(split=split) for each, split in zip(placed, splits, strict=True)]


def _drop_repeated(tagged: Sequence[Tagged], mistakes: ErrorList) -> list[Tagged]:
    """The first mention of each picture; others are mistakes, by whatever path they name it."""
    first: dict[Path, Tagged] = {}
    for each in tagged:
        earlier = first.setdefault(each.file.resolve(), each)
        if earlier is not each:
            where = f" on line {earlier.line}" if earlier.line else ""
            mistakes.add(
                each.line,
                f"{each.name} is listed already{where}, as {earlier.name}: list a picture once, with all its "
                "labels in one line, as in a.jpg,cat;dog",
            )
    return list(first.values())


def _find_labels(folder: Path) -> Path | None:
    """The labels in a folder of pictures; None: there are none. Several XML files are VOC's."""
    if yolo.find_names(folder) or voc.annotations_folder(folder):
        return folder
    found = _files_of_labels(folder, (*_TABLES, *_ANNOTATIONS))
    if not found:
        found = [path for place in _places_of_files(folder)[1:] for path in _files_of_labels(place)]
    found = found or [path for path in visible(folder) if path.suffix.lower() == _NDJSON]
    if not found:  # else it is a list, or a text about the data
        texts = (path for path in _files_of_labels(folder, (".txt",)) if split_of(path.stem) is None)
        found = [path for path in texts if is_sheet_of_pictures(path)]
    if found and all(path.suffix.lower() == ".xml" and not _is_cvat(path) for path in found):
        return folder
    if len(found) > 1:
        if tool := other_tool(_json(found[0])):
            raise DataError(f"{folder} has {len(found)} files of {tool}")
        listed = shortened([path.name for path in found])
        raise DataError(f"{folder} has several files that may be the labels: {listed}; --labels names one")
    return found[0] if found else None


def _files_of_labels(folder: Path, suffixes: Sequence[str] = _ANNOTATIONS) -> list[Path]:
    found = [path for path in visible(folder) if path.suffix.lower() in suffixes and not is_split_file(path)]
    # Of Kaggle's train.csv, test.csv and sample_submission.csv only the first has labels.
    labels = [path for path in found if not path.stem.lower().startswith("sample_submission")]
    labels = [path for path in labels if path.suffix.lower() != ".csv" or has_columns(path)]
    return labels if len(found) > 1 and labels else found


def _is_cvat(path: Path) -> bool:
    """Whether an XML file is of all pictures, and not VOC's of one."""
    with open(path, "rb") as file:
        return b"<annotations" in file.read(4000)


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
