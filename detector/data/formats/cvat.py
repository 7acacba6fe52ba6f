"""CVAT XML 1.1 for images.

https://docs.cvat.ai/docs/dataset_management/formats/format-cvat/ describes it. Attributes of boxes and the
tag "reviewed" come back from CVAT if the task's labels declare them, as <meta> does here.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detector.data.formats.review import Point, ReviewBox, ReviewImage
from detector.utils.errors import DataError
from detector.utils.xml import parse_xml

_REVIEWED = "reviewed"  # tag of an image, and attribute of a box
_SIDES = ("xtl", "ytl", "xbr", "ybr")  # of a box, in pixels from the top left corner
_ATTRIBUTES = {"score": ("number", "0;1;0.001"), _REVIEWED: ("checkbox", ""), "doubtful": ("checkbox", "")}


def encode(images: Iterable[ReviewImage], class_names: Sequence[str]) -> bytes:
    """The file annotations.xml."""
    root = Element("annotations")
    SubElement(root, "version").text = "1.1"
    labels = SubElement(SubElement(SubElement(root, "meta"), "task"), "labels")
    for name in class_names:
        attributes = _add_label(labels, name, "rectangle")
        for attribute, (kind, values) in _ATTRIBUTES.items():
            node = SubElement(attributes, "attribute")
            default = "0" if kind == "number" else "false"
            fields = {"name": attribute, "mutable": "False", "input_type": kind, "default_value": default}
            for tag, text in (fields | {"values": values}).items():
                SubElement(node, tag).text = text
    _add_label(labels, _REVIEWED, "tag")
    for number, image in enumerate(images):
        height, width = image.size
        names = {"id": str(number), "name": image.name, "width": str(width), "height": str(height)}
        node = SubElement(root, "image", names)
        for box in image.boxes:
            _add_box(node, box)
        if image.complete:
            SubElement(node, "tag", label=_REVIEWED, source="manual")
    indent(root)
    return tostring(root, encoding="utf-8", xml_declaration=True)


def _add_label(labels: Element, name: str, kind: str) -> Element:
    node = SubElement(labels, "label")
    SubElement(node, "name").text = name
    SubElement(node, "type").text = kind
    return SubElement(node, "attributes")


def _add_box(image: Element, box: ReviewBox) -> None:
    corners = {side: f"{value:.10g}" for side, value in zip(_SIDES, box.box, strict=True)}
    names = {"label": box.label, "source": "manual" if box.reviewed else "auto", "occluded": "0"}
    node = SubElement(image, "box", names | corners | {"z_order": "0"})
    texts = {} if box.score is None else {"score": f"{box.score:.10g}"}
    texts |= {flag: str(getattr(box, flag)).lower() for flag in (_REVIEWED, "doubtful")}
    for name, text in texts.items():
        SubElement(node, "attribute", name=name).text = text


def read(path: Path) -> Iterator[ReviewImage]:
    """The images of a file. A box that was drawn in CVAT counts as reviewed."""
    for image, name in _images(path, "box"):
        height, width = (int(_number(image, side, name)) for side in ("height", "width"))
        complete = any(tag.get("label") == _REVIEWED for tag in image.findall("tag"))
        boxes = tuple(_read_box(node, name) for node in image.findall("box"))
        yield ReviewImage(name, (height, width), boxes, complete, image.get("subset", ""))


def read_points(path: Path) -> Iterator[tuple[str, list[Point]]]:
    """The name of each image of a file, and its points."""
    for image, name in _images(path, "points"):
        points: list[Point] = []
        for node in image.findall("points"):
            text = node.get("points", "")
            try:
                pairs = [[float(number) for number in pair.split(",")] for pair in text.split(";")]
            except ValueError:
                raise DataError(f"image {name!r} has the points {text!r}, expected x,y;x,y") from None
            points += [{"label": node.get("label", ""), "point": pair} for pair in pairs]
        yield name, points


def _images(path: Path, kind: str) -> Iterator[tuple[Element, str]]:
    """Each image and its name; of shapes it has none but those of this kind."""
    root = parse_xml(path, "annotations")
    if root.find("track") is not None:
        raise DataError("it holds tracks of a video, expected CVAT for images 1.1")
    for image in root.findall("image"):
        name = image.get("name", "")
        for node in image:
            if node.tag not in (kind, "tag"):
                raise DataError(f"image {name!r} has a <{node.tag}>, expected <{kind}> only")
        yield image, name


def _read_box(node: Element, image: str) -> ReviewBox:
    if float(node.get("rotation") or 0):
        raise DataError(f"image {image!r} has a box that is rotated by {node.get('rotation')} degrees")
    x1, y1, x2, y2 = (_number(node, side, image) for side in _SIDES)
    texts = {each.get("name"): (each.text or "").strip() for each in node.findall("attribute")}
    drawn = node.get("source") == "manual"  # the tool gives such a box the attribute's default, false
    flags = drawn or texts.get(_REVIEWED) == "true", texts.get("doubtful") == "true"
    score = float(texts["score"]) if texts.get("score") else None
    return ReviewBox(node.get("label", ""), (x1, y1, x2, y2), score, *flags)


def _number(node: Element, key: str, image: str) -> float:
    try:
        return float(node.get(key, ""))
    except ValueError:
        found = f"<{node.tag}> with {key} {node.get(key)!r}"
        raise DataError(f"image {image!r} has a {found}, expected a number") from None
