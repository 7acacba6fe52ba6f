"""VOC's XML files, with <score>, <reviewed> and <doubtful> of an object and LabelImg's `verified`."""

from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element

from detector.data.formats.review import ReviewBox, ReviewImage
from detector.data.voc import TO_HALF_OPEN, read_class, read_corners, read_number
from detector.data.voc_writer import VOCObject, encode_annotation
from detector.utils.errors import DataError
from detector.utils.xml import parse_xml


def encode(image: ReviewImage) -> bytes:
    """The annotation of an image."""
    objects = [
        VOCObject(
            box.label,
            box.box,
            difficult=box.difficult,
            score=box.score,
            reviewed=box.reviewed,
            doubtful=box.doubtful,
        )
        for box in image.boxes
    ]
    flags = {"verified": image.complete, "upright": image.upright}
    return encode_annotation(image.name, image.size, objects, folder="pictures", **flags)


def read(path: Path, folder: Path) -> ReviewImage:
    """The image of an annotation below `folder`: the one of its name, with the suffix that <filename> says.

    The rest of <filename> is wrong where images were renamed, and may be the name of another image then.
    """
    root = parse_xml(path, "annotation")
    file_name = (root.findtext("filename") or "").rstrip()
    size = root.find("size")
    if not file_name or size is None:
        raise DataError(f"it has no {'<size>' if file_name else '<filename>'}")
    height, width = (int(read_number(size, side)) for side in ("height", "width"))
    boxes = tuple(_read_box(element) for element in root.findall("object"))
    name = path.relative_to(folder).with_suffix(PurePosixPath(file_name).suffix).as_posix()
    return ReviewImage(name, (height, width), boxes, root.get("verified") == "yes", _is_upright(root))


def _is_upright(root: Element) -> bool:
    """Whether boxes are of the image as a viewer shows it, on which people draw in Label Studio and CVAT.

    CVAT writes VOC by Datumaro, which knows no <image> of the <source>.
    """
    by_tool = root.findtext("owner/name") == "Label Studio" or root.findtext("source/image") == "Unknown"
    return by_tool or read_number(root, "upright", default="0") == 1


def _read_box(element: Element) -> ReviewBox:
    corners = zip(read_corners(element), TO_HALF_OPEN.tolist(), strict=True)
    x1, y1, x2, y2 = (corner - shift for corner, shift in corners)
    score = read_number(element, "score") if element.find("score") is not None else None
    flags = (read_number(element, flag, default="0") != 0 for flag in ("reviewed", "doubtful", "difficult"))
    return ReviewBox(read_class(element), (x1, y1, x2, y2), score, *flags)
