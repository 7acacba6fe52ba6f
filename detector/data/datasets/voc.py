"""Reader of folders in the PASCAL VOC layout.

    ROOT/ImageSets/Main/SPLIT.txt    one image id per line
    ROOT/JPEGImages/ID.jpg           or .jpeg, .png
    ROOT/Annotations/ID.xml          objects: class name, box, difficult flag

All annotations are read and checked when the data set is built, so that an invalid file stops a run at its
start. Pixels are read on demand. Of an XML file only the objects are used: sizes are those of the images, and
images are found by id, not by <filename>. Where EXIF turns an image, <size> and the tool that wrote the file
tell whether boxes are those of the pixels as stored (detector/data/orientation.py).
"""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from detector.data.datasets.annotated import AnnotatedImages, Objects, unknown_class
from detector.data.images import find_image, in_any_form, read_size_and_orientation
from detector.data.orientation import Boxed, find_turns, turn_objects, turn_size
from detector.data.sources.splits import keys_of_line
from detector.utils.errors import DataError
from detector.utils.files import check_printable, read_text, reading, relative_name
from detector.utils.xml import parse_xml

Row = tuple[float, float, float, float, str, bool]  # half-open box, xyxy; class; difficult

# What tools write as flags; "Unspecified" is VOC's word for one that nobody has set.
_WORDS = dict.fromkeys(("", "unspecified", "none", "false", "no", "f", "n"), False) | dict.fromkeys(
    ("true", "yes", "t", "y"), True
)


class VOCDataset(AnnotatedImages):
    """The images of one split, their image-level labels and, for evaluation, their ground-truth boxes.

    Boxes are half-open xyxy, see :func:`read_box`. See :class:`AnnotatedImages` for invalid boxes.

    Args:
        root: folder of JPEGImages, Annotations and ImageSets.
        split: name of a list in ImageSets/Main, without ".txt".
        class_names: the C foreground classes in the order of the labels. Default: the classes of the objects
            of this split, in alphabetical order.
        difficult_labels: whether a difficult object gives its image the label of its class.

    Raises:
        FileNotFoundError: the folder, the split, an image or an annotation is missing.
        DataError: the split is empty, repeats an image id or has one that leads out of the folder; an image
            is unreadable; an annotation is invalid. Names the file.
    """

    def __init__(
        self,
        root: str | Path,
        split: str,
        class_names: Sequence[str] = (),
        *,
        difficult_labels: bool = True,
    ):
        root = Path(root)
        files = find_split(root, split)
        image_ids, paths = list(files), [str(path) for path in files.values()]
        sizes, orientations = zip(*map(read_size_and_orientation, paths), strict=True)
        xml_paths = [in_any_form(root / "Annotations" / f"{image_id}.xml") for image_id in image_ids]
        annotated = [_read_file(path) for path in xml_paths]
        rows = [file.rows for file in annotated]
        class_names = tuple(class_names) or tuple(sorted({name for file in rows for *_, name, _ in file}))
        if not class_names:
            raise DataError(
                f"no annotation of the split {split} of {root} has an object: there are no classes"
            )
        objects = _gather(rows, xml_paths, class_names)
        pictures = [
            Boxed(path, file.size, file.upright, orientation if file.rows else 1, file.stated)
            for path, file, orientation in zip(files.values(), annotated, orientations, strict=True)
        ]
        turns = find_turns(root / "Annotations", pictures, upright=False)
        meant = [turn_size(size, turn) for size, turn in zip(sizes, turns, strict=True)]
        boxes, stored = turn_objects(objects.boxes, objects.images, np.array(meant, dtype=np.int64), turns)
        super().__init__(
            f"{root.name}_{split}",
            root / "Annotations",
            class_names,
            image_ids,
            paths,
            stored,
            replace(objects, boxes=boxes),
            labeling=~objects.difficult | difficult_labels,
        )


def _gather(files: Sequence[list[Row]], xml_paths: Sequence[Path], class_names: Sequence[str]) -> Objects:
    columns = {name: column for column, name in enumerate(class_names)}
    for rows, path in zip(files, xml_paths, strict=True):
        for *_, name, _ in rows:
            if name not in columns:
                raise DataError(f"annotation {path} has an object of {unknown_class(name, columns)}")
    rows = [row for file in files for row in file]
    return Objects(
        images=np.repeat(np.arange(len(files)), [len(file) for file in files]),
        boxes=np.array([row[:4] for row in rows], dtype=np.float64).reshape(-1, 4),
        labels=np.array([columns[row[4]] for row in rows], dtype=np.int64),
        difficult=np.array([row[5] for row in rows], dtype=bool),
        crowd=np.zeros(len(rows), dtype=bool),
        areas=np.full(len(rows), np.nan),
    )


def find_split(root: Path, split: str) -> dict[str, Path]:
    """The image file of each id of a split.

    Raises:
        FileNotFoundError: the folder, the split or an image is missing.
        DataError: the split is empty, repeats an image id or has one that leads out of the folder.
    """
    folder = root / "ImageSets" / "Main"
    if not folder.is_dir():
        raise FileNotFoundError(f"{root} is not a folder in VOC layout: it has no ImageSets/Main")
    path = folder / f"{split}.txt"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("[!.]*.txt"))) or "none"
        raise FileNotFoundError(f"split file {path} does not exist; the splits there are: {known}")
    lines = filter(str.strip, read_text(path, "split file").split("\n"))
    with reading(path, "split file"):
        found = [_find_listed(root / "JPEGImages", line) for line in lines]
    if not found:
        raise DataError(f"split file {path} is empty, expected one image id per line")
    image_id, count = Counter(image_id for image_id, _ in found).most_common(1)[0]
    if count > 1:
        raise DataError(f"split file {path} lists image {image_id} {count} times, expected each image once")
    return dict(found)


def _find_listed(folder: Path, line: str) -> tuple[str, Path]:
    """Id and file of the image that a line names, possibly with suffix, folders, quotes or a flag."""
    with suppress(FileNotFoundError, DataError):  # a name may begin with a blank
        image_id = relative_name(line.strip("\r"))
        return image_id, find_image(folder, image_id)
    line = line.strip()
    try:
        image_id = relative_name(line)
        return image_id, find_image(folder, image_id)
    except (FileNotFoundError, DataError):
        for key in keys_of_line(line) if ".." not in line else ():
            with suppress(FileNotFoundError, DataError):
                return relative_name(key), find_image(folder, relative_name(key))
        raise


class _File(NamedTuple):
    """What is read of an XML file."""

    rows: list[Row]
    size: tuple[int, int]  # (height, width); 0, 0 where there is none
    upright: bool  # of :func:`is_upright`
    stated: bool  # by the file itself


def _read_file(path: Path) -> _File:
    with reading(path, "annotation"):
        root = parse_xml(path, "annotation")
        rows = [
            (*read_box(element, root), read_class(element), read_flag(element, "difficult"))
            for element in root.findall("object")
        ]
        try:
            height, width = (int(read_number(root, f"size/{side}", "0")) for side in ("height", "width"))
        except (DataError, ValueError, OverflowError):  # only images that EXIF turns need it
            height = width = 0
        return _File(rows, (height, width), is_upright(root), root.find("upright") is not None)


def is_upright(root: Element) -> bool:
    """Whether boxes are of the image as a viewer shows it, on which people draw in Label Studio and CVAT."""
    return _by_tool(root) or read_flag(root, "upright")


def _by_tool(root: Element) -> bool:
    """Whether Label Studio wrote a file, or CVAT with Datumaro, which knows no <image> of the <source>."""
    return root.findtext("owner/name") == "Label Studio" or root.findtext("source/image") == "Unknown"


def read_class(element: Element) -> str:
    """The class of an object; its error does not name the file, like those of the functions below."""
    name = (element.findtext("name") or "").strip()
    if not name:
        raise DataError("an object has no class name")
    check_printable(name)
    return sys.intern(name)  # saves memory: millions of objects, few names


def read_box(element: Element, root: Element) -> tuple[float, float, float, float]:
    """The half-open box, xyxy, of an object of the file with this root.

    VOC's xmin and ymin count pixels from 1: 1 is subtracted. Label Studio and CVAT write them from 0.
    """
    first = 0.0 if _by_tool(root) else 1.0
    bndbox = element.find("bndbox")
    if bndbox is None:
        raise DataError(f"an object ({(element.findtext('name') or '').strip()}) has no bndbox")
    xmin, ymin, xmax, ymax = (read_number(bndbox, side) for side in ("xmin", "ymin", "xmax", "ymax"))
    return xmin - first, ymin - first, xmax, ymax


def read_number(element: Element, tag: str, default: str | None = None) -> float:
    """The number in a child element; `default` if it is missing or empty, as some tools write it."""
    text = (element.findtext(tag) or "").strip() or default
    try:
        return float(text or "")  # some boxes of VOC 2011 and later are fractional
    except ValueError:
        raise DataError(f"<{tag}> of <{element.tag}> is {text!r}, expected a number") from None


def read_flag(element: Element, tag: str) -> bool:
    """Whether a child element holds a number other than 0, or a word that says so."""
    text = (element.findtext(tag) or "").strip().lower()
    if text in _WORDS:
        return _WORDS[text]
    try:
        return float(text) != 0
    except ValueError:
        known = ", ".join(filter(None, _WORDS))
        raise DataError(f"<{tag}> of <{element.tag}> is {text!r}, expected 0, 1 or one of {known}") from None
