"""CVAT XML 1.1 for images.

https://docs.cvat.ai/docs/dataset_management/formats/format-cvat/ describes it. CVAT keeps attributes of
boxes and the tag "reviewed" only if the task's labels declare them, as <meta> does here.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from detector.data.formats.review import Point, ReviewImage
from detector.data.labeled_box import LabeledBox
from detector.utils.errors import DataError, counted
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


def _add_box(image: Element, box: LabeledBox) -> None:
    corners = {side: f"{value:.10g}" for side, value in zip(_SIDES, box.box, strict=True)}
    names = {"label": box.label, "source": "manual" if box.reviewed else "auto", "occluded": "0"}
    node = SubElement(image, "box", names | corners | {"z_order": "0"})
    texts = {} if box.score is None else {"score": f"{box.score:.10g}"}
    texts |= {flag: str(getattr(box, flag)).lower() for flag in (_REVIEWED, "doubtful")}
    for name, text in texts.items():
        SubElement(node, "attribute", name=name).text = text


def read(path: Path, folder: str | Path | None = None) -> Iterator[ReviewImage]:
    """The images of a file. A box that was drawn or corrected in CVAT counts as reviewed.

    Args:
        folder: the folder of images, to find the suffix of video frames and the folder of a subset.
    """
    for image, name in _images(path, "box", folder):
        height, width = (int(_number(image, side, name)) for side in ("height", "width"))
        complete = any(tag.get("label") == _REVIEWED for tag in image.findall("tag"))
        nodes = [node for node in image.findall("box") if node.get("outside") != "1"]
        boxes = tuple(_read_box(node, name) for node in nodes)
        yield ReviewImage(name, (height, width), boxes, complete, split=image.get("subset", ""))


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


def _images(path: Path, kind: str, folder: str | Path | None = None) -> Iterator[tuple[Element, str]]:
    """Each image and its name; shapes of another kind are an error."""
    root = parse_xml(path, "annotations")
    if root.find("track") is not None:
        raise DataError("it holds tracks of a video: export it as CVAT for images 1.1, which has all frames")
    images = root.findall("image")
    names = [_locate(image, folder) for image in images]
    _check_tasks(images, names)
    for image, name in zip(images, names, strict=True):
        for node in image:
            if node.tag not in (kind, "tag"):
                raise DataError(
                    f"image {name!r} has a <{node.tag}>, expected <{kind}> only: delete it in CVAT, or "
                    "export the task as COCO 1.0, where other shapes have boxes"
                )
        yield image, name


def _check_tasks(images: Sequence[Element], names: Sequence[str]) -> None:
    """Raise where two tasks or subsets of a project have images of one name, as frames of two videos."""
    places: dict[str, dict[str, None]] = {}  # of each name, in the order of the file
    for image, name in zip(images, names, strict=True):
        subset = f" (subset {image.get('subset')})" if image.get("subset") else ""
        places.setdefault(name, {})[f"{image.get('task_id', '')}{subset}"] = None
    both = [(name, found) for name, found in places.items() if len(found) > 1]
    if both:
        name, found = both[0]
        raise DataError(
            f"{counted(len(both), 'name is', 'names are')} in several tasks of the project, such as {name!r} "
            f"in the tasks {', '.join(found)}: put the images of each subset into a folder of its name, "
            "export each task by itself, or rename the images of one"
        )


def _locate(image: Element, folder: str | Path | None) -> str:
    """The name of the file in a folder: CVAT exports frames as NAME.PNG, images of a project in SUBSET."""
    name, subset = image.get("name", ""), image.get("subset")
    if not (folder and "\\" in name and Path(folder, name).is_file()):  # else it is part of the name
        name = name.replace("\\", "/")
    suffixes = ("", ".PNG", ".png", ".jpg", ".jpeg")
    places = [f"{subset}/", ""] if subset else [""]
    named = [f"{place}{name}{suffix}" for place in places for suffix in suffixes]
    return next((candidate for candidate in named if folder and Path(folder, candidate).is_file()), name)


def _read_box(node: Element, image: str) -> LabeledBox:
    if float(node.get("rotation") or 0):
        raise DataError(f"image {image!r} has a box that is rotated by {node.get('rotation')} degrees")
    x1, y1, x2, y2 = (_number(node, side, image) for side in _SIDES)
    texts = {attribute.get("name"): (attribute.text or "").strip() for attribute in node.findall("attribute")}
    # A box that was drawn has the attribute's default, false. An imported one has the source "file", one of a
    # model "auto"; moved by a person they become "manual" and "semi-auto".
    drawn = node.get("source") in ("manual", "semi-auto", "consensus")
    flags = drawn or texts.get(_REVIEWED) == "true", texts.get("doubtful") == "true"
    score = float(texts["score"]) if texts.get("score") else None
    return LabeledBox(node.get("label", ""), (x1, y1, x2, y2), score, *flags)


def _number(node: Element, key: str, image: str) -> float:
    try:
        return float(node.get(key, ""))
    except ValueError:
        found = f"<{node.tag}> with {key} {node.get(key)!r}"
        raise DataError(f"image {image!r} has a {found}, expected a number") from None
