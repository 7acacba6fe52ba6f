"""Toybox: a data set of drawn scenes in the layout of PASCAL VOC."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
from detector.data.toybox.objects import MAKERS
from detector.data.toybox.scene import draw_scene
from detector.utils.files import encode_image, write_new

CLASSES = tuple(sorted(MAKERS))


def draw_toybox(
    root: str | Path, *, seed: int = 0, train: int = 600, test: int = 200, classes: Sequence[str] = CLASSES
) -> None:
    """Draw the data set into the new folder `root`, with the splits `trainval` (`train` images) and `test`.

    Each image depends on (classes, seed, split, its number in the split) alone: the same call writes the same
    bytes.
    The folder appears when it is complete.

    Raises:
        FileExistsError: the folder exists.
    """
    with new_voc_folder(root) as folder:
        for split, (name, count, first) in enumerate((("trainval", train, 1), ("test", test, train + 1))):
            image_ids = [f"{first + index:06d}" for index in range(count)]
            for index, image_id in enumerate(image_ids):
                write_image(folder, image_id, (seed, split, index), classes)
            write_split(folder, name, image_ids)


def write_image(root: Path, image_id: str, seed: tuple[int, int, int], classes: Sequence[str]) -> None:
    """Draw one image and write JPEGImages/ID.jpg and Annotations/ID.xml."""
    picture, objects = draw_scene(np.random.default_rng(seed), classes)
    content = encode_image(Image.fromarray(picture), "jpeg", quality=92)
    write_new(root / "JPEGImages" / f"{image_id}.jpg", content)
    write_annotation(root, f"{image_id}.jpg", picture.shape[:2], objects, folder="toybox")
