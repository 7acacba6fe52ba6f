"""VOC's XML files, with <score>, <reviewed> and <doubtful> of an object and LabelImg's `verified`."""

from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element

from detector.data.datasets.voc import (
    is_upright,
    read_box,
    read_class,
    read_flag,
    read_number,
)
from detector.data.datasets.voc_writer import encode_annotation
from detector.data.formats.review import ReviewImage, renamed
from detector.data.images import read_image_size
from detector.data.labeled_box import LabeledBox
from detector.data.pictures import IMAGE_SUFFIXES, files_below, stem_key
from detector.utils.errors import DataError
from detector.utils.files import reading
from detector.utils.xml import parse_xml


def encode(image: ReviewImage) -> bytes:
    """The annotation of an image."""
    upright = image.upright or None
    return encode_annotation(
        image.name, image.size, image.boxes, folder="pictures", verified=image.complete, upright=upright
    )


def annotations_folder(path: Path) -> Path | None:
    """The folder of XML files: Annotations in VOC's layout, labels in FiftyOne's; None: there is none."""
    places = (path / name for name in ("Annotations", "annotations", "labels"))
    return next((place for place in places if place.is_dir() and files_below(place, (".xml",))), None)


def read(folder: Path, images: str | Path | None) -> list[ReviewImage]:
    """The image of each annotation below `folder`; the two have the same name.

    The suffix comes from the picture, and the size as well if the file has none: <filename> and <size> may be
    wrong or missing. Without a picture, only the suffix comes from <filename>: where images were renamed, its
    name may be that of another image.

    Args:
        images: the folder of images; None: JPEGImages, images or data beside `folder`, or `folder` itself.
    """
    near = [*(folder.parent / name for name in ("JPEGImages", "images", "data")), folder]
    pictures: dict[str, list[tuple[Path, str]]] = {}  # by the name without suffix, the place and the name
    for place in ([Path(images)] if images else []) + near:
        for file in files_below(place, IMAGE_SUFFIXES):
            name = file.relative_to(place)
            pictures.setdefault(stem_key(name.as_posix()), []).append((place, name.as_posix()))
    found, without = list[ReviewImage](), list[ReviewImage]()
    for file in files_below(folder, (".xml",)):
        with reading(file, "annotation"):
            name = file.relative_to(folder)
            there = pictures.get(stem_key(name.as_posix()), [])
            (found if there else without).append(_read_image(file, name, there))
    return found + renamed(without, images)


def _read_image(file: Path, name: Path, pictures: list[tuple[Path, str]]) -> ReviewImage:
    """The image of a file, which is one of the `pictures` of its name."""
    root = parse_xml(file, "annotation")
    suffix = PurePosixPath((root.findtext("filename") or "").strip()).suffix
    boxes = tuple(_read_object(element, root) for element in root.findall("object"))
    size = [int(read_number(root, f"size/{side}", default="0")) for side in ("height", "width")]
    if pictures:
        place, picture = min(pictures, key=lambda pair: not pair[1].endswith(suffix))
        if min(size) < 1:
            size = list(read_image_size(place / picture))  # boxes of VOC are of the pixels as stored
    elif not suffix or min(size) < 1:
        raise DataError(
            f"it has no {'<size>' if suffix else '<filename>'} with values, and there is no picture of "
            "its name in the folder of images (detector review-import --images names it)"
        )
    else:
        picture = name.with_suffix(suffix).as_posix()
    complete, upright = root.get("verified") == "yes", is_upright(root)
    stated = not upright and root.find("upright") is not None
    return ReviewImage(picture, (size[0], size[1]), boxes, complete, upright, stated)


def _read_object(element: Element, root: Element) -> LabeledBox:
    score = read_number(element, "score") if element.find("score") is not None else None
    flags = (read_flag(element, flag) for flag in ("reviewed", "doubtful", "difficult"))
    return LabeledBox(read_class(element), read_box(element, root), score, *flags)
