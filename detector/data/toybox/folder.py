"""Toybox as a folder in the layout of PASCAL VOC: JPEGImages, Annotations, ImageSets/Main."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from detector.data.toybox.objects import MAKERS
from detector.data.toybox.scene import SceneObject, draw_scene

CLASSES = tuple(sorted(MAKERS))


def draw_toybox(root: str | Path, *, seed: int = 0, train: int = 600, test: int = 200) -> None:
    """Draws the data set into the new folder `root`: the splits `trainval` (`train` images) and `test`.

    Each picture depends on (seed, split, its number in the split) alone: the same call writes the same bytes.
    The folder appears when it is complete; FileExistsError when there is one already.
    """
    root = Path(root)
    if root.exists():
        raise FileExistsError(f"{root} exists: delete it, or draw Toybox into another folder")
    partial = root.with_name(f"{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of an interrupted run
    for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (partial / folder).mkdir(parents=True)
    for split, (name, count, first) in enumerate((("trainval", train, 1), ("test", test, train + 1))):
        image_ids = [f"{first + index:06d}" for index in range(count)]
        for index, image_id in enumerate(image_ids):
            write_image(partial, image_id, (seed, split, index))
        (partial / "ImageSets" / "Main" / f"{name}.txt").write_text("".join(f"{i}\n" for i in image_ids))
    partial.replace(root)


def write_image(root: Path, image_id: str, seed: tuple[int, int, int]) -> None:
    """Draws one picture and writes JPEGImages/ID.jpg and Annotations/ID.xml."""
    picture, objects = draw_scene(np.random.default_rng(seed))
    Image.fromarray(picture).save(root / "JPEGImages" / f"{image_id}.jpg", quality=92)
    annotation(image_id, picture.shape, objects).write(root / "Annotations" / f"{image_id}.xml")


def annotation(image_id: str, shape: tuple[int, ...], objects: list[SceneObject]) -> ElementTree.ElementTree:
    """The VOC annotation of a picture of shape (H, W, 3); boxes become inclusive and 1-based."""
    root = ElementTree.Element("annotation")
    add(root, "folder", "toybox")
    add(root, "filename", f"{image_id}.jpg")
    size = add(root, "size")
    for name, value in zip(("height", "width", "depth"), shape, strict=True):
        add(size, name, value)
    for thing in objects:
        node = add(root, "object")
        add(node, "name", thing.name)
        add(node, "pose", "Unspecified")
        add(node, "truncated", int(thing.truncated))
        add(node, "difficult", int(thing.difficult))
        box = add(node, "bndbox")
        x1, y1, x2, y2 = thing.box
        for name, value in (("xmin", x1 + 1), ("ymin", y1 + 1), ("xmax", x2), ("ymax", y2)):
            add(box, name, value)
    ElementTree.indent(root)
    return ElementTree.ElementTree(root)


def add(parent: ElementTree.Element, tag: str, text: object = None) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, tag)
    child.text = None if text is None else str(text)
    return child
