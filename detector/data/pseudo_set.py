"""Detections as a data set that any detector can be trained on: a folder in VOC's layout, and COCO's JSON."""

from collections.abc import Sequence
from pathlib import Path

from detector.data.coco_writer import COCOWriter
from detector.data.voc_writer import VOCObject, new_voc_folder, write_annotation, write_split
from detector.structures import Detections


def write_pseudo_set(
    root: str | Path,
    split: str,
    class_names: Sequence[str],
    images: Sequence[tuple[Path, tuple[int, int]]],
    detections: Sequence[Detections],
) -> None:
    """Writes the new folder `root`, which appears when it is complete.

    The images are not copied: JPEGImages holds links to them. Annotations are XML files with inclusive,
    1-based boxes, which :class:`VOCDataset` reads back as they were; SPLIT.json has the same in COCO's form:
    boxes x, y, width, height and category ids from 1, in the order of the classes.

    Args:
        images: file and size (height, width) of each image.
        detections: the boxes of each.

    Raises:
        FileExistsError: there is such a folder already.
        ValueError: the two differ in length.
    """
    coco = COCOWriter(class_names)
    with new_voc_folder(root) as folder:
        for (path, size), found in zip(images, detections, strict=True):
            name = f"{found.image_id}{path.suffix}"
            link = folder / "JPEGImages" / name
            link.parent.mkdir(parents=True, exist_ok=True)  # an id may name a folder
            link.symlink_to(path.resolve())
            boxes = zip(found.boxes.tolist(), found.labels.tolist(), strict=True)
            objects = [VOCObject(class_names[label], tuple(box)) for box, label in boxes]
            write_annotation(folder, name, size, objects, folder=Path(root).name)
            coco.add(name, size, found)
        write_split(folder, split, [found.image_id for found in detections])
        coco.write(folder / f"{split}.json")
