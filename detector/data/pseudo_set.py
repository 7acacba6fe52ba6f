"""Detections as a data set that any detector can be trained on: a folder in VOC's layout, and COCO's JSON."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from detector.data.coco_writer import COCOWriter
from detector.data.images import IMAGE_SUFFIXES, is_turned
from detector.data.voc_writer import VOCObject, new_voc_folder, write_annotation, write_split
from detector.structures import Detections
from detector.utils.files import inside, write_image

# What a line of a split file, or a path inside the folder, cannot hold: white space at an end, control
# characters and other line ends, a slash at the start, "..", backslashes.
_UNSAFE = re.compile(r"^\s|\s$|[\x00-\x1f\x7f-\x9f\u2028\u2029]|^/|(?<![^/])\.\.(?![^/])|\\")


def write_pseudo_set(
    root: str | Path,
    split: str,
    class_names: Sequence[str],
    images: Sequence[tuple[Path, tuple[int, int]]],
    detections: Sequence[Detections],
    read: Callable[[int], Tensor],
    *,
    apply_orientation: bool,
) -> None:
    """Write the new folder `root`, which appears when it is complete.

    JPEGImages holds links to the images. Those that a reader of this layout would not find, or would not turn
    as their EXIF orientation says although the boxes are of the turned image, are copied instead, as PNG
    files of the pixels that the detector saw. Annotations are XML files with inclusive, 1-based boxes, which
    :class:`VOCDataset` reads back unchanged; SPLIT.json has the same in COCO's form: boxes x, y, width and
    height, and category ids from 1 in the order of the classes. An id that cannot be a file name has the
    bytes of the unsafe characters as %XX.

    Args:
        images: file and size (height, width) of each image.
        detections: the boxes of each.
        read: (index) to the image as the detector saw it, (3, H, W) uint8 RGB, for the copies.
        apply_orientation: whether the detector saw images turned as their EXIF orientation says.

    Raises:
        FileExistsError: there is such a folder already.
        ValueError: the two differ in length.
    """
    coco = COCOWriter(class_names)
    with new_voc_folder(root) as folder:
        image_ids = [_file_name(found.image_id) for found in detections]
        for index, ((path, size), found) in enumerate(zip(images, detections, strict=True)):
            copied = path.suffix not in IMAGE_SUFFIXES or (apply_orientation and is_turned(path))
            name = f"{image_ids[index]}{'.png' if copied else path.suffix}"
            target = inside(folder / "JPEGImages", name)
            target.parent.mkdir(parents=True, exist_ok=True)  # an id may name a folder
            if copied:
                write_image(target, Image.fromarray(read(index).permute(1, 2, 0).numpy()), "png")
            else:
                target.symlink_to(path.resolve())
            boxes = zip(found.boxes.tolist(), found.labels.tolist(), strict=True)
            objects = [VOCObject(class_names[label], tuple(box)) for box, label in boxes]
            write_annotation(folder, name, size, objects, folder=Path(root).name)
            coco.add(name, size, found)
        write_split(folder, split, image_ids)
        coco.write(folder / f"{split}.json")


def _file_name(image_id: str) -> str:
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), image_id)
