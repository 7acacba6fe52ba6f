"""YOLO's folder: data.yaml with the class names, and labels/NAME.txt with a line for each box.

    CLASS X Y WIDTH HEIGHT [SCORE]    center and size as shares of the image

The files hold neither suffixes nor sizes of images, which are read from the images. reviewed.txt, one of
YOLO's lists of images, names those that a person has reviewed; single boxes have no flags.

Roboflow has train/labels/NAME.txt with train/images instead, and so for each split.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import yaml

from detector.data.formats.review import ReviewBox, ReviewImage
from detector.data.images import read_image_size
from detector.data.pictures import IMAGE_SUFFIXES, files_below, find_pictures
from detector.utils.errors import DataError, shortened
from detector.utils.files import read_text

_IMAGES = "images/"  # a list names images below the folder of data.yaml


def encode(images: Sequence[ReviewImage], class_names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file."""
    names = dict(enumerate(class_names))
    content = {"path": ".", "train": "images", "val": "images", "names": names}
    yield "data.yaml", yaml.safe_dump(content, allow_unicode=True, sort_keys=False).encode()
    numbers = {name: number for number, name in names.items()}
    for image in images:
        lines = (_line(numbers[box.label], box, image.size) for box in image.boxes)
        yield f"labels/{PurePosixPath(image.name).with_suffix('.txt')}", "".join(lines).encode()
    reviewed = (f"{_IMAGES}{image.name}\n" for image in images if image.complete)
    yield "reviewed.txt", "".join(reviewed).encode()


def _line(number: int, box: ReviewBox, size: tuple[int, int]) -> str:
    (height, width), (x1, y1, x2, y2) = size, box.box
    values = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height, (x2 - x1) / width, (y2 - y1) / height]
    values += [] if box.score is None else [box.score]
    return " ".join([str(number), *(f"{value:.10g}" for value in values)]) + "\n"


def read(folder: Path, images: str | Path | None) -> Iterator[ReviewImage]:
    """The images that have a file in labels, and those without one that were reviewed: they show no object.

    Args:
        images: their folder; None: `images` beside data.yaml, or the folder of data.yaml itself if the
            labels are in those of splits.
    """
    names = _read_names(folder)
    stems = _label_files(folder)
    own = folder / "images" if (folder / "labels").is_dir() else folder
    root = Path(images) if images is not None else own
    if not root.is_dir():
        raise FileNotFoundError(
            f"there is no folder of images {root}: name it, detector review-import {folder} --images FOLDER"
        )
    pictures = {PurePosixPath(name).with_suffix("").as_posix(): name for name in find_pictures([root])}
    listed = folder / "reviewed.txt"
    lines = read_text(listed, "list of images").split("\n") if listed.is_file() else ()
    complete = {line.strip().removeprefix("./").removeprefix(_IMAGES) for line in lines} - {""}
    if unknown := sorted(complete - set(pictures.values())):
        example = _IMAGES + next(iter(pictures.values()))
        raise DataError(
            f"{listed} names what is no image in {root}: {shortened(unknown, 3)}; expected paths such "
            f"as {example}"
        )
    for file, stem in stems.items():
        if stem not in pictures:
            raise FileNotFoundError(
                f"{file} has no image {stem} in {root} (detector review-import --images names the folder)"
            )
        size = read_image_size(root / pictures[stem], apply_orientation=True)
        boxes = tuple(_read_boxes(file, names, size))
        yield ReviewImage(pictures[stem], size, boxes, pictures[stem] in complete)
    for name in sorted(complete - {pictures[stem] for stem in stems.values()}):
        yield ReviewImage(name, read_image_size(root / name, apply_orientation=True), (), complete=True)


def without_labels(root: Path, images: Sequence[ReviewImage]) -> list[str]:
    """Names of the pictures below `root` that are not among `images`, those with a file in labels.

    They show no object: "If there are no objects in an image, no *.txt file is required" (Ultralytics). Only
    pictures beside others with a file are meant: a whole folder without labels has not been labeled.
    """
    named, folders = {image.name for image in images}, {PurePosixPath(image.name).parent for image in images}
    names = (file.relative_to(root).as_posix() for file in files_below(root, IMAGE_SUFFIXES))
    return [name for name in names if name not in named and PurePosixPath(name).parent in folders]


def _label_files(folder: Path) -> dict[Path, str]:
    """The files of boxes, and the name of the image of each without its suffix."""
    found = {}
    if (labels := folder / "labels").is_dir():
        for file in files_below(labels, (".txt",)):
            found[file] = file.relative_to(labels).with_suffix("").as_posix()
    else:
        for labels in sorted(folder.glob("*/labels")):
            for file in files_below(labels, (".txt",)):
                name = file.relative_to(labels).with_suffix("").as_posix()
                found[file] = f"{labels.parent.name}/images/{name}"
    if not found:
        raise DataError(f"{folder} has no file NAME.txt in labels, nor in SPLIT/labels, such as train/labels")
    return found


def _read_names(folder: Path) -> dict[int, str]:
    content = yaml.safe_load(read_text(folder / "data.yaml", "YOLO data set"))
    names = content.get("names") if isinstance(content, dict) else None
    names = dict(enumerate(names)) if isinstance(names, list) else names
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise DataError(f"{folder / 'data.yaml'} has no list or mapping of class names under `names`")
    return names


def _read_boxes(file: Path, names: dict[int, str], size: tuple[int, int]) -> Iterable[ReviewBox]:
    height, width = size
    for number, line in enumerate(read_text(file, "YOLO labels").splitlines(), start=1):
        if not (words := line.split()):
            continue
        try:
            label, (x, y, w, h, *score) = names[int(words[0])], map(float, words[1:])
            if len(score) > 1:
                raise ValueError
        except (ValueError, KeyError):
            expected = f"a class from 0 to {len(names) - 1}, x, y, width, height and, if known, a score"
            raise DataError(f"{file}, line {number} is {line!r}, expected {expected}") from None
        box = (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height
        yield ReviewBox(label, box, score[0] if score else None)
