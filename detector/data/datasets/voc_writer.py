"""Writer of folders in the PASCAL VOC layout; detector/data/datasets/voc.py reads them."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from detector.data.labeled_box import LabeledBox
from detector.structures import Detections
from detector.utils.files import inside, remove_temporary, temporary_beside, write_new
from detector.utils.folder_lock import file_lock


@contextmanager
def new_voc_folder(root: str | Path) -> Iterator[Path]:
    """A new folder with JPEGImages, Annotations and ImageSets/Main, renamed to `root` after the block.

    The block writes into a hidden folder beside it, which is removed if the block fails, or by the next try
    if the process was killed.

    Raises:
        FileExistsError: `root` exists.
        UserError: another process is writing the same folder.
    """
    root = Path(root)
    partial = temporary_beside(root)
    root.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(root):
        if root.exists():
            raise FileExistsError(f"{root} exists: delete it, or name another folder")
        try:
            remove_temporary(root)
            partial.mkdir()
            for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
                (partial / folder).mkdir(parents=True)
            yield partial
            partial.replace(root)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def write_split(root: Path, split: str, image_ids: Iterable[str]) -> None:
    """Write ImageSets/Main/SPLIT.txt with one image id per line."""
    text = "".join(f"{image_id}\n" for image_id in image_ids)
    write_new(inside(root / "ImageSets" / "Main", f"{split}.txt"), text.encode())


def write_annotation(
    root: Path, image_name: str, size: tuple[int, int], objects: Sequence[LabeledBox], **options: Any
) -> None:
    """Write Annotations/ID.xml of an RGB image, where ID is its name without suffix.

    See :func:`encode_annotation` for the arguments and `options`.

    Raises:
        DataError: the name leads out of the folder.
        OSError: the file cannot be written; names it.
    """
    path = inside(root / "Annotations", image_name).with_suffix(".xml")
    path.parent.mkdir(parents=True, exist_ok=True)  # an id may name a folder
    write_new(path, encode_annotation(image_name, size, objects, **options))


def encode_annotation(
    image_name: str,
    size: tuple[int, int],
    objects: Sequence[LabeledBox],
    *,
    folder: str,
    verified: bool = False,
    upright: bool | None = None,
) -> bytes:
    """The XML of an RGB image, with inclusive, 1-based boxes.

    Args:
        image_name: its file in JPEGImages.
        size: (height, width) in pixels.
        folder: name of the data set.
        verified: a person has reviewed the image, which LabelImg records in this way.
        upright: size and boxes are of the image as a viewer shows it, not of the pixels as stored;
            None: not said.
    """
    annotation = ElementTree.Element("annotation", {"verified": "yes"} if verified else {})
    _add(annotation, "folder", folder)
    _add(annotation, "filename", image_name)
    size_node = _add(annotation, "size")
    for name, value in zip(("height", "width", "depth"), (*size, 3), strict=True):
        _add(size_node, name, value)
    if upright is not None:
        _add(annotation, "upright", int(upright))
    for labeled in objects:
        node = _add(annotation, "object")
        _add(node, "name", labeled.label)
        _add(node, "pose", "Unspecified")
        _add(node, "truncated", int(labeled.truncated))
        _add(node, "difficult", int(labeled.difficult))
        if labeled.score is not None:
            _add(node, "score", labeled.score)
        for flag in ("reviewed", "doubtful"):
            if getattr(labeled, flag):
                _add(node, flag, 1)
        bndbox = _add(node, "bndbox")
        x1, y1, x2, y2 = labeled.box
        for side, corner in (("xmin", x1 + 1), ("ymin", y1 + 1), ("xmax", x2), ("ymax", y2)):
            _add(bndbox, side, f"{corner:.10g}")
    ElementTree.indent(annotation)
    return ElementTree.tostring(annotation)


def detected_objects(detections: Detections, size: tuple[int, int]) -> list[LabeledBox]:
    """Detections as objects with boxes of whole pixels, at least 1 x 1: some readers take no fractions.

    Args:
        size: (height, width) of the image; the boxes stay inside it.
    """
    height, width = size
    objects = []
    for box, name in zip(detections.boxes.tolist(), detections.names, strict=True):
        x1, y1, x2, y2 = map(round, box)
        x1, y1 = min(max(x1, 0), width - 1), min(max(y1, 0), height - 1)
        x2, y2 = min(max(x2, x1 + 1), width), min(max(y2, y1 + 1), height)
        objects.append(LabeledBox(name, (x1, y1, x2, y2)))
    return objects


def _add(parent: ElementTree.Element, tag: str, text: object = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag)
    child.text = None if text is None else str(text)
    return child
