"""YOLO's folder, for labeling tools: data.yaml has the class names, labels/NAME.txt a line for each box.

    CLASS X Y WIDTH HEIGHT [SCORE]    center and size as shares of the image
    CLASS X1 Y1 X2 Y2 X3 Y3 ...       the outline of an object, or the corners of a rotated box

The files hold neither suffixes nor sizes of images, which are read from the images. reviewed.txt, one of
YOLO's lists of images, names those that a person has reviewed; single boxes have no flags.

Roboflow has train/labels/NAME.txt with train/images instead, and so for each split; Darknet and LabelImg
have NAME.txt beside the images, with the class names in obj.names or classes.txt: docs/data_sets.md.
"""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from detector.data.formats.review import ReviewImage
from detector.data.images import read_image_size
from detector.data.labeled_box import LabeledBox
from detector.data.picture_index import index_folder
from detector.data.pictures import IMAGE_SUFFIXES, files_below, find_pictures, stem_key
from detector.utils.errors import DataError, counted, shortened
from detector.utils.files import read_json, read_text

_IMAGES = "images/"  # a list names images below the folder of data.yaml
FARTHEST = 2.0  # shares of the image; larger coordinates are in pixels
# Files of class names, of which the first counts: of Ultralytics, Roboflow and FiftyOne; of Darknet; of
# LabelImg and Label Studio, which also writes notes.json.
_DATA = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml", "*.yaml", "*.yml")
_LISTS = ("obj.names", "*.names", "data/*.names", "classes.txt", "labels/classes.txt", "*/classes.txt")
_LIST, _NOTES = "classes.txt", "notes.json"
_TRIED = 20  # files of boxes, of which all may be empty


def encode(images: Sequence[ReviewImage], class_names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file."""
    names = dict(enumerate(class_names))
    content = {"path": ".", "train": "images", "val": "images", "names": names}
    yield "data.yaml", yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode()
    for image in images:
        text = f"labels/{PurePosixPath(image.name).with_suffix('.txt')}"
        yield text, encode_lines(image, class_names).encode()
    reviewed = (f"{_IMAGES}{image.name}\n" for image in images if image.complete)
    yield "reviewed.txt", "".join(reviewed).encode()


def encode_lines(image: ReviewImage, class_names: Sequence[str]) -> str:
    """A line for each box, with a sixth column where it has a score."""
    numbers = {name: number for number, name in enumerate(class_names)}
    return "".join(_line(numbers[box.label], box, image.size) for box in image.boxes)


def _line(number: int, box: LabeledBox, size: tuple[int, int]) -> str:
    (height, width), (x1, y1, x2, y2) = size, box.box
    values = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height]
    values += [] if box.score is None else [box.score]
    return " ".join([str(number), *(f"{value:.10g}" for value in values)]) + "\n"


def find_names(folder: Path) -> Path | None:
    """The file of class names of a YOLO folder; None: it has none, or is not a YOLO folder.

    A file of another name than data.yaml, or a list of names, counts only beside files of boxes.
    """
    if (folder / _DATA[0]).is_file():
        return folder / _DATA[0]
    found = [
        path for pattern in _DATA for path in sorted(folder.glob(pattern)) if "names" in _read_yaml(path)
    ]
    found += [
        path for pattern in (*_LISTS, _NOTES) for path in sorted(folder.glob(pattern)) if path.is_file()
    ]
    return found[0] if found and _has_boxes(folder) else None


def _has_boxes(folder: Path) -> bool:
    """Whether one of the first files has a line of a box: texts beside images may be captions."""
    for file in [*_label_files(folder)][:_TRIED]:
        words = read_text(file, "YOLO labels").split("\n")[0].split()
        with suppress(ValueError):
            if len([float(word) for word in words]) >= 5:
                return True
    return False


def check_has_names(folder: Path) -> None:
    """Raise where a folder has files of boxes, but none with the names of the classes."""
    if not _has_boxes(folder):
        return
    first = next(iter(_label_files(folder)))
    raise DataError(
        f"{folder} has YOLO's files of boxes, such as {first}, and no names of their classes: write "
        "data.yaml into it, with a line such as names: [cat, dog], in the order of their numbers from 0"
    )


def read(folder: Path, images: str | Path | None) -> Iterator[ReviewImage]:
    """The images that have a file of boxes, and those without one that were reviewed: they show no object.

    Files of boxes without an image are counted in a warning.

    Args:
        images: their folder; None: `images` beside data.yaml, or the folder of data.yaml itself if the
            labels are in those of splits or beside the images.

    Raises:
        DataError: a line is wrong; names the first ten. Or there are no names, or no file of boxes.
        FileNotFoundError: there is no folder of images, or it has none of the images.
    """
    names, keypoints = read_names(folder)
    if repeated := sorted({name for name in names.values() if list(names.values()).count(name) > 1}):
        warnings.warn(
            f"{find_names(folder)}: several numbers are named {shortened(repeated, 3)}: their objects are "
            "of one class; give them two names if they are two",
            stacklevel=2,
        )
    if not (stems := _label_files(folder)):
        raise DataError(f"{folder} has no file NAME.txt in labels, nor in SPLIT/labels, such as train/labels")
    own = folder / "images" if (folder / "labels").is_dir() else folder
    root = Path(images) if images is not None else own
    if not root.is_dir():
        raise FileNotFoundError(
            f"there is no folder of images {root}: name it, detector review-import {folder} --images FOLDER"
        )
    pictures = {stem_key(name): name for name in find_pictures([root])}
    complete = _reviewed(folder / "reviewed.txt", root, pictures)
    # FiftyOne has pictures and texts in data, beside obj.names, and a caller may name that folder.
    within = root.resolve().relative_to(folder.resolve()) if _beside_texts(folder, root) else Path()
    keys = {file: stem_key(f"{PurePosixPath(stem).relative_to(within)}.txt") for file, stem in stems.items()}
    placed = {file: pictures[key] for file, key in keys.items() if key in pictures}
    orphans = [file for file in stems if file not in placed]
    if (folder / _NOTES).is_file():
        placed |= _of_label_studio(orphans, root, {*pictures.values()} - {*placed.values()})
    _check_orphans(folder, root, [file for file in orphans if file not in placed], bool(placed))
    mistakes: list[str] = []
    for file, name in placed.items():
        size = read_image_size(root / name, apply_orientation=True)
        boxes = tuple(_read_boxes(file, names, keypoints, size, mistakes))
        yield ReviewImage(name, size, boxes, name in complete)
    if mistakes:
        raise DataError(shortened(mistakes, between="\n"))
    for name in sorted(complete - {*placed.values()}):
        yield ReviewImage(name, read_image_size(root / name, apply_orientation=True), (), complete=True)


def _beside_texts(folder: Path, root: Path) -> bool:
    """Whether the files of boxes are beside the pictures below `root`, a folder in that of the names."""
    return all(file.resolve().is_relative_to(root.resolve()) for file in _label_files(folder))


def _of_label_studio(orphans: Sequence[Path], root: Path, left: Collection[str]) -> dict[Path, str]:
    """The pictures of files that Label Studio names by its addresses without folders: 0123abcd-gr%C3%BCn."""
    names = index_folder(root).rename([file.stem for file in orphans]) if orphans else []
    return {file: name for file, name in zip(orphans, names, strict=True) if name in left}


def _reviewed(listed: Path, root: Path, pictures: Mapping[str, str]) -> set[str]:
    """The images of a list."""
    lines = read_text(listed, "list of images").split("\n") if listed.is_file() else ()
    complete = {line.strip().removeprefix("./").removeprefix(_IMAGES) for line in lines} - {""}
    if unknown := sorted(complete - set(pictures.values())):
        example = _IMAGES + next(iter(pictures.values()))
        raise DataError(
            f"{listed} names what is no image in {root}: {shortened(unknown, 3)}; expected paths such "
            f"as {example}"
        )
    return complete


def _check_orphans(folder: Path, root: Path, orphans: Sequence[Path], others: bool) -> None:
    """Warn of files of boxes without an image; raise where there are no `others`."""
    if not orphans:
        return
    if not others:
        raise FileNotFoundError(
            f"none of the {counted(len(orphans), 'file', 'files')} of boxes in {folder} has an image in "
            f"{root}, such as {orphans[0]} (detector review-import --images names the folder)"
        )
    shown = shortened([file.relative_to(folder).as_posix() for file in orphans], 3)
    warnings.warn(
        f"{folder}: {counted(len(orphans), 'file of boxes has', 'files of boxes have')} no image in {root}, "
        f"left out: {shown}",
        stacklevel=4,
    )


def without_labels(root: Path, images: Sequence[ReviewImage]) -> list[str]:
    """Names of the pictures below `root` that are not among `images`, those with a file in labels.

    They show no object: "If there are no objects in an image, no *.txt file is required" (Ultralytics). Only
    pictures beside others with a file are meant: a whole folder without labels has not been labeled.
    """
    named, folders = {image.name for image in images}, {PurePosixPath(image.name).parent for image in images}
    names = (file.relative_to(root).as_posix() for file in files_below(root, IMAGE_SUFFIXES))
    return [name for name in names if name not in named and PurePosixPath(name).parent in folders]


def _label_files(folder: Path) -> dict[Path, str]:
    """The files of boxes, and the name of the image of each without its suffix.

    They are in labels, else in folders of that name further below, with the images in a folder images beside
    it, or beside images of the same name.
    """
    top = folder / "labels"
    files = files_below(top if top.is_dir() else folder, (".txt",))
    stems = {stem_key(file.as_posix()) for file in files_below(folder, IMAGE_SUFFIXES)}
    found = {}
    for file in files:
        name = file.relative_to(folder).with_suffix("")
        parts = list(name.parts)
        if "labels" in parts[:-1]:
            parts[len(parts) - 1 - parts[::-1].index("labels")] = "images"
        elif stem_key((folder / f"{name}.txt").as_posix()) not in stems:
            continue  # such as a text about the data set
        stem = PurePosixPath(*parts).as_posix()
        if file.name == "classes.txt" and stem_key((folder / f"{stem}.txt").as_posix()) not in stems:
            continue  # LabelImg's list of names
        found[file] = stem.removeprefix(_IMAGES) if top.is_dir() else stem
    return found


def _read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file with all values as strings: names may be yes, no, 1 or 02146."""
    try:
        content = yaml.load(read_text(path, "YOLO data set"), yaml.BaseLoader)
    except (yaml.YAMLError, DataError):
        if path.name == _DATA[0]:
            raise
        return {}  # a file of something else
    return content if isinstance(content, dict) else {}


def read_names(folder: Path) -> tuple[dict[int, str], int]:
    """The class of each number, and how many numbers of keypoints follow a box.

    Raises:
        DataError: there are no names, or one has no number or is empty.
    """
    path = find_names(folder)
    if path is None:
        check_has_names(folder)
        raise DataError(f"{folder} has no data.yaml with the names of the classes")
    if path.suffix not in (".yaml", ".yml"):
        listed = _read_list_of_names(path)
        return listed if path.name == _NOTES else _longest_list(folder, listed), 0
    content = _read_yaml(path)
    names, shape = content.get("names"), content.get("kpt_shape")
    names = dict(enumerate(names)) if isinstance(names, list) else names
    if not isinstance(names, dict) or not names:
        raise DataError(f"{path} has no list or mapping of class names under `names`")
    wrong = [f"{key}: {name}" for key, name in names.items() if not isinstance(name, str) or not name.strip()]
    wrong += [f"{key}: {name}" for key, name in names.items() if not str(key).strip().isdecimal()]
    if wrong:
        raise DataError(
            f"{path}: under `names` is {wrong[0]}, expected a number from 0 and a name, such as 0: cat; put "
            "a name of special characters into quotes"
        )
    if str(content.get("nc") or len(names)).strip() != str(len(names)):
        raise DataError(f"{path} has nc: {content['nc']} and {len(names)} names: correct one of the two")
    numbers = [int(number) for number in shape] if isinstance(shape, list) else [0]
    return {int(key): name for key, name in names.items()}, numbers[0] * numbers[-1]


def read_splits(folder: Path) -> list[tuple[str, str]]:
    """Key and value of each entry of data.yaml or obj.data that names pictures: a folder or a list.

    The values are relative to `folder`, or absolute.
    """
    path = find_names(folder)
    if path is None:
        return []
    if path.suffix in (".yaml", ".yml"):
        content = _read_yaml(path)
        base = PurePosixPath(str(content.get("path") or "").replace("\\", "/"))
        if not (folder / base).is_dir():  # it is a path of another machine
            base = PurePosixPath()
    else:
        lists = [*folder.glob("*.data"), *folder.glob("data/*.data")]
        lines = read_text(lists[0], "YOLO data set").split("\n") if lists else ()
        content = {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in lines)}
        base = PurePosixPath()
    found = []
    for key in ("train", "val", "valid", "validation", "test"):
        entries = content.get(key)
        entries = entries if isinstance(entries, list) else [entries]
        found += [
            (key, str(base / entry.strip())) for entry in entries if isinstance(entry, str) and entry.strip()
        ]
    return found


def _longest_list(folder: Path, names: dict[int, str]) -> dict[int, str]:
    """The names in the longest of several lists: LabelImg writes classes.txt into each folder it works in.

    Raises:
        DataError: two of them give one number to two classes.
    """
    below = {file for file in files_below(folder, (".txt",)) if file.name == _LIST}
    for file in sorted(below | {file for pattern in _LISTS for file in folder.glob(pattern)}):
        others = _read_list_of_names(file)
        if differ := [number for number in {*names} & {*others} if names[number] != others[number]]:
            number = min(differ)
            raise DataError(
                f"{file} has {others[number]!r} as number {number}, and another list of classes in {folder} "
                f"has {names[number]!r}: remove the wrong one; LabelImg numbers the classes of each folder "
                "anew, unless it gets a list (labelImg FOLDER classes.txt): read such folders one by one"
            )
        names = max(names, others, key=len)
    return names


def _read_list_of_names(path: Path) -> dict[int, str]:
    if path.name == _NOTES:
        rows = read_json(path, "YOLO data set").get("categories", [])
        return {int(row["id"]): str(row["name"]) for row in rows}
    lines = [line.strip() for line in read_text(path, "list of class names").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    if not lines or "" in lines:
        raise DataError(f"{path} has an empty line, expected one class name per line")
    return dict(enumerate(lines))


def _read_boxes(
    file: Path, names: Mapping[int, str], keypoints: int, size: tuple[int, int], mistakes: list[str]
) -> Iterable[LabeledBox]:
    height, width = size
    for number, line in enumerate(read_text(file, "YOLO labels").splitlines(), start=1):
        if not (words := line.split()):
            continue
        try:
            values = [float(word) for word in words]
            label, (x1, y1, x2, y2), score = names[_whole(values[0])], *_read_shares(values[1:], keypoints)
        except (ValueError, KeyError, OverflowError):
            mistakes.append(
                f"{file}, line {number} is {_cut(line)!r}, expected a class from 0 to {max(names)}, x, y, "
                "width, height as shares of the image and, if known, a score, or an outline x1, y1, x2, ..."
            )
            continue
        yield LabeledBox(label, (x1 * width, y1 * height, x2 * width, y2 * height), score)


def _whole(value: float) -> int:
    """The integer of a class, which some tools write as 0.0."""
    if value != int(value):
        raise ValueError
    return int(value)


def _read_shares(
    values: list[float], keypoints: int
) -> tuple[tuple[float, float, float, float], float | None]:
    """The corners of a box in shares of the image, and its score."""
    score = None
    if keypoints and len(values) == 4 + keypoints:
        values = values[:4]
    if len(values) == 5:
        *values, score = values
    if not all(abs(value) <= FARTHEST for value in values):  # nan is not, either
        raise ValueError
    if len(values) == 4:
        x, y, w, h = values
        return (x - w / 2, y - h / 2, x + w / 2, y + h / 2), score
    if (
        len(values) < 6 or len(values) % 2 or 2 in values
    ):  # a 2 marks keypoints, of which kpt_shape is missing
        raise ValueError
    xs, ys = values[::2], values[1::2]
    return (min(xs), min(ys), max(xs), max(ys)), None


def _cut(line: str) -> str:
    return line if len(line) <= 80 else f"{line[:80]}..."
