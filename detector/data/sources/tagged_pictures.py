"""Pictures with tags, read from folders, tables or annotations."""

import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from tqdm import tqdm

from detector.data.datasets.annotated import hint_nearest, unclear_message
from detector.data.datasets.image_labels import check_rows, list_labels
from detector.data.datasets.image_table import Row, picture_name, read_table
from detector.data.formats import other_tool, review_import, voc, yolo
from detector.data.orientation import Boxed, find_turns, turn_box, turn_size
from detector.data.pictures import files_below, images_below, runs_folder
from detector.data.sheets.columns import UNNAMED, NamedColumns
from detector.data.sheets.file import has_columns, is_sheet_of_pictures
from detector.data.sources.class_folders import pictures_by_class, visible
from detector.data.sources.copies import find_copies
from detector.data.sources.no_class import without_no_class
from detector.data.sources.sheet_source import is_sheet, read_sheet_source
from detector.data.sources.splits import TRAIN, VAL, files_of_splits, split_of
from detector.data.sources.stated_splits import (
    IMAGE_FOLDERS,
    is_split_file,
    listed_splits,
    named_as_test,
    stated_splits,
)
from detector.data.sources.tagged import Tagged, locate, places_of_pictures
from detector.utils.errors import DataError, ErrorList, counted, shortened

_NDJSON = ".ndjson"
_TABLES, _ANNOTATIONS = (".csv", ".tsv", ".xlsx", ".ods", ".jsonl", ".manifest"), (".json", ".xml")


def find_tags(
    pictures: Path,
    labels: Path | None,
    *,
    skip_missing: bool = False,
    named: NamedColumns = UNNAMED,
    no_class: Sequence[str] = (),
) -> tuple[list[Tagged], str]:
    """The tagged pictures of a folder, and where the tags are from.

    Args:
        pictures: the folder.
        labels: a table (CSV or JSON lines), a file of COCO, Label Studio or CVAT, or a folder of VOC or YOLO;
            None: searched in the folder, then in its folders train and val; else each folder is a class.
        named: the columns of a spreadsheet that the user names.
        no_class: labels that say that a picture shows no class.

    Raises:
        FileNotFoundError: a path does not exist.
        DataError: there are no labels, several candidates, or they cannot be read; a picture is
            missing, unreadable or listed twice, or labels differ only in capitals. Names the file, and the
            line of each of the first ten mistakes.
    """
    if not pictures.is_dir():
        raise FileNotFoundError(f"{pictures} is no folder of pictures")
    if labels is not None and not labels.exists():
        near = hint_nearest(labels.name, [path.name for path in labels.parent.glob("*")])
        raise FileNotFoundError(f"the labels {labels} do not exist{near}")
    pictures = whole_set(pictures, labels)
    labels_of_splits, labels = _find_sources(pictures, labels)
    found: list[Tagged] = []
    classes: Sequence[str] = ()
    root = pictures.resolve()
    for split, folder, source in labels_of_splits:
        for picture in _read_tags(folder, source, classes, skip_missing=skip_missing, named=named):
            # The names in a table beside the folders of splits include these folders.
            named_by_table = folder == pictures and source.suffix.lower() in _TABLES
            below = not named_by_table and picture.file.is_relative_to(root)
            found.append(picture._replace(split=split, root=root if below else picture.root))
        if source.suffix.lower() in _TABLES:  # so that other classes in the next table are reported
            classes = sorted({label for picture in found for label in picture.labels})
    sources = " and ".join(str(source) for *_, source in labels_of_splits) or str(labels)
    if not labels_of_splits:
        if labels is None:
            yolo.check_has_names(pictures)
            sources = "folders, one per class"
        found = _read_tags(pictures, labels, skip_missing=skip_missing, named=named)
    if labels or labels_of_splits:
        _warn_of_others(pictures, found, sources)
    found = without_no_class(found, no_class)
    copies = find_copies([picture.file for picture in found])
    found = _drop_tested([picture._replace(content=copies.get(picture.file, "")) for picture in found])
    if VAL not in {picture.split for picture in found} and (others := named_as_test(visible(pictures))):
        warnings.warn(
            f"{pictures}: {shortened(others, 3)} may be a test split, which is ignored because the labels "
            "name nothing in it: see docs/data_sets.md, Splits",
            stacklevel=2,
        )
    return found, sources


def find_sources(pictures: Path, labels: Path | None) -> list[Path]:
    """The files or folders that :func:`find_tags` reads labels from; none where folders are the classes."""
    labels_of_splits, labels = _find_sources(whole_set(pictures, labels), labels)
    return [source for *_, source in labels_of_splits] or ([labels] if labels else [])


def whole_set(pictures: Path, labels: Path | None) -> Path:
    """The parent of a folder such as dataset/images if annotations are beside it, else the folder itself."""
    around = pictures.resolve().parent
    if labels is not None or pictures.name.lower() not in IMAGE_FOLDERS:
        return pictures
    if any(path.suffix.lower() in (*_TABLES, *_ANNOTATIONS) for path in visible(pictures)):
        return pictures
    beside = (path for place in _places_of_files(around)[1:] for path in _files_of_labels(place))
    of_yolo = yolo.find_names(around) or files_below(around / "labels", (".txt",))
    return around if of_yolo or any(beside) else pictures


def _find_sources(pictures: Path, labels: Path | None) -> tuple[list[tuple[str, Path, Path]], Path | None]:
    """The result of :func:`_labels_of_splits`, or else the labels of all pictures."""
    labels_of_splits = [] if labels else _labels_of_splits(pictures)
    if {split for split, *_ in labels_of_splits} != {TRAIN, VAL} and (
        labels := labels or _find_labels(pictures)
    ):
        return [], labels
    return labels_of_splits, labels


def _drop_tested(tagged: list[Tagged]) -> list[Tagged]:
    """Drop training pictures that are in the test split, directly or as a copy; one warning counts them."""
    tested = {picture.content or picture.file.resolve() for picture in tagged if picture.split == VAL}
    both = [
        picture
        for picture in tagged
        if picture.split == TRAIN and (picture.content or picture.file.resolve()) in tested
    ]
    if both:
        warnings.warn(
            f"{counted(len(both), 'picture is', 'pictures are')} both to train and to test on, directly or "
            f"as a copy, and used for testing: {shortened([picture.name for picture in both], 3)}",
            stacklevel=3,
        )
    return [picture for picture in tagged if picture not in both] if both else tagged


def _warn_of_others(pictures: Path, tagged: Sequence[Tagged], source: str) -> None:
    """Warn of pictures in the folder that the labels do not list, or that cannot be read."""
    known = {picture.file.resolve() for picture in tagged}
    files = images_below(pictures, runs_folder(pictures))
    others = [file.relative_to(pictures).as_posix() for file in files if file.resolve() not in known]
    if others:
        warnings.warn(
            f"{pictures}: {counted(len(others), 'picture is', 'pictures are')} left out because the labels, "
            f"{source}, do not list them: {shortened(others, 3)}; list pictures without any class as well",
            stacklevel=2,
        )


def _labels_of_splits(pictures: Path) -> list[tuple[str, Path, Path]]:
    """Name, folder of pictures and labels of each split with labels of its own, training first."""
    for place, suffixes in (
        (pictures, _TABLES),
        *((place, _ANNOTATIONS) for place in _places_of_files(pictures)),
    ):
        files = _files_of_labels(place, suffixes)
        if len(files) > 1 and (named := files_of_splits(files)):
            return [(split, pictures, path) for split in (TRAIN, VAL) for path in named[split]]
    if _find_labels(pictures):
        return []
    folders = [
        (split, path) for path in visible(pictures) if path.is_dir() and (split := split_of(path.name))
    ]
    order = sorted(folders, key=lambda pair: pair[0] != TRAIN)
    return [(split, folder, found) for split, folder in order if (found := _find_labels(folder))]


def _places_of_files(folder: Path) -> list[Path]:
    """The folders in which tools put the annotation files of a folder of pictures."""
    return [
        place for name in ("", "annotations", "Annotations", "labels") if (place := folder / name).is_dir()
    ]


def _read_tags(
    pictures: Path,
    labels: Path | None,
    class_names: Sequence[str] = (),
    *,
    skip_missing: bool = False,
    named: NamedColumns = UNNAMED,
) -> list[Tagged]:
    """The tagged pictures of one source, checked; `class_names`, if given, are those that may occur."""
    mistakes = ErrorList(labels or pictures)
    if any(named) and not is_sheet(labels):
        raise DataError(
            f"--label-column and --image-column name columns of a spreadsheet, and the labels are "
            f"{labels or 'folders, one per class'}: leave them out, or name the table with --labels"
        )
    if labels is None:
        root = pictures.resolve()
        tagged = [
            Tagged(root / name, classes, split=split, root=root)
            for name, classes, split in pictures_by_class(pictures)
        ]
        if not any(picture.split for picture in tagged):
            splits = listed_splits(pictures, [picture.name for picture in tagged])
            tagged = [picture._replace(split=split) for picture, split in zip(tagged, splits, strict=True)]
    elif is_sheet(labels):
        found = read_sheet_source(
            labels, pictures, class_names=class_names, skip_missing=skip_missing, named=named
        )
        tagged = _with_stated_splits(found, pictures, labels)
    elif labels.suffix.lower() in _TABLES:
        rows, mistakes = read_table(labels)
        tagged = _locate_all(map(_from_row, rows), pictures, labels)
    else:
        tagged = _locate_all(_from_annotations(pictures, labels), pictures, labels)
    once = _drop_repeated(tagged, mistakes)
    rows = [Row(picture.line, picture.entry, picture.labels, None, picture.unknown) for picture in once]
    class_names = class_names or list_labels(rows, mistakes)
    progress = tqdm(rows, desc="pictures", unit="image", delay=1, disable=None)
    sizes = check_rows(progress, Path(), class_names, mistakes, pictures)
    once = _make_upright(once, labels)
    boxes = [box for picture in once for box in picture.boxes or ()]
    clear = {box.label for box in boxes if not box.difficult}
    if unclear := sorted({box.label for box in boxes} - clear):
        warnings.warn(
            unclear_message(labels, unclear, crowd=labels is not None and labels.suffix == ".json"),
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
    return [picture._replace(boxes=None) if i in others else picture for i, picture in enumerate(once)]


def _make_upright(tagged: Sequence[Tagged], labels: Path | None) -> list[Tagged]:
    """Convert boxes to the upright pictures, as a viewer shows them: the convention of tables."""
    sized = {i: picture.size for i, picture in enumerate(tagged) if picture.boxes and picture.size}
    pictures = [
        Boxed(picture.file, size, picture.upright, stated=picture.stated)
        for picture, size in ((tagged[i], size) for i, size in sized.items())
    ]
    turns = dict(zip(sized, find_turns(labels, pictures, upright=True), strict=True))
    turned = list(tagged)
    for i, size in sized.items():
        boxes = (box._replace(box=turn_box(box.box, turns[i], size)) for box in tagged[i].boxes or ())
        turned[i] = tagged[i]._replace(boxes=tuple(boxes), size=turn_size(size, turns[i]))
    return turned


def _from_row(row: Row) -> Tagged:
    root = Path(row.file).as_posix().removesuffix(picture_name(row.file))  # the part before the name
    return Tagged(
        Path(row.file), row.labels, row.unknown, row.split, row.boxes, root=Path(root), line=row.line
    )


def _from_annotations(pictures: Path, labels: Path) -> list[Tagged]:
    if labels.suffix.lower() == _NDJSON:
        raise DataError(
            f"{labels} is NDJSON, as the platforms of Ultralytics and Labelbox export it, which is not "
            "supported: export YOLO, or convert it to COCO"
        )
    if labels.is_file() and labels.suffix.lower() not in _ANNOTATIONS:
        raise DataError(
            f"{labels} has none of the known suffixes: expected a table (.csv, .tsv, .txt, .xlsx, .ods, "
            ".jsonl), a file of COCO or Label Studio (.json) or of CVAT (.xml), or a folder of VOC or YOLO"
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
            *(Path(image.name), tuple(sorted({*image.unboxed, *(box.label for box in image.boxes)}))),
            split=split_of(image.split),
            boxes=None if image.unboxed else image.boxes,
            size=image.size,
            upright=image.upright,
            stated=image.stated,
        )
        for image in images
    ]


def _warn_of_scores(labels: Path, scores: Sequence[float | None]) -> None:
    if known := [score for score in scores if score is not None]:
        warnings.warn(
            f"{labels}: {counted(len(known), 'box has a score', 'boxes have scores')}, from {min(known):.3g} "
            f"to {max(known):.3g}, so a model may have found them: all count as ground truth; make sure that "
            "a person has corrected them",
            stacklevel=2,
        )


def _locate_all(tagged: Iterable[Tagged], pictures: Path, labels: Path) -> list[Tagged]:
    """The pictures with the paths of their files, and the splits that the labels or other files define."""
    places = places_of_pictures(pictures, labels)
    found = [locate(picture, places) for picture in tagged]
    return _with_stated_splits(found, pictures, labels)


def _with_stated_splits(placed: list[Tagged], pictures: Path, labels: Path) -> list[Tagged]:
    """The pictures with the splits that other files define, unless the labels themselves define splits."""
    if any(picture.split for picture in placed):
        return placed
    folder = labels if labels.is_dir() else pictures
    folder = folder.parent if folder.name.lower() == "annotations" else folder
    splits = stated_splits(folder, [picture.name for picture in placed], [picture.file for picture in placed])
    return [picture._replace(split=split) for picture, split in zip(placed, splits, strict=True)]


def _drop_repeated(tagged: Sequence[Tagged], mistakes: ErrorList) -> list[Tagged]:
    """The first entry of each picture; further entries are mistakes, even by another path."""
    first: dict[Path, Tagged] = {}
    for picture in tagged:
        earlier = first.setdefault(picture.file.resolve(), picture)
        if earlier is not picture:
            where = f" on line {earlier.line}" if earlier.line else ""
            mistakes.add(
                picture.line,
                f"{picture.name} is listed already{where}, as {earlier.name}: list a picture once, with all "
                "its labels in one line, as in a.jpg,cat;dog",
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
    if not found:  # others are lists of a split or texts about the data
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
    """Whether an XML file is CVAT's, of all pictures, and not VOC's, of one picture."""
    with open(path, "rb") as file:
        return b"<annotations" in file.read(4000)


def _json(path: Path) -> object:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
