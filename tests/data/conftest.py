"""Small folders in VOC layout."""

from xml.sax.saxutils import escape

import numpy as np
import pytest
from PIL import Image


class VOCFolder:
    """Writes images, annotations and splits one by one: a test can leave out or spoil any of them."""

    def __init__(self, root):
        self.root = root
        for folder in ("JPEGImages", "Annotations", "ImageSets/Main"):
            (root / folder).mkdir(parents=True)

    def image(self, image_id, height=40, width=60, suffix=".jpg", seed=0):
        path = self.root / "JPEGImages" / f"{image_id}{suffix}"
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        return path

    def xml(self, image_id, objects=()):
        """Objects are (class name, (xmin, ymin, xmax, ymax) as in the file) or (..., difficult)."""
        text = ""
        for name, box, *difficult in objects:
            sides = "".join(
                f"<{side}>{value}</{side}>"
                for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
            )
            flag = f"<difficult>{int(difficult[0])}</difficult>" if difficult else ""
            text += f"<object><name>{escape(name)}</name>{flag}<bndbox>{sides}</bndbox></object>"
        return self.raw_xml(image_id, f"<annotation>{text}</annotation>")

    def raw_xml(self, image_id, text):
        path = self.root / "Annotations" / f"{image_id}.xml"
        path.write_text(text)
        return path

    def split(self, name, image_ids):
        path = self.root / "ImageSets" / "Main" / f"{name}.txt"
        path.write_text("".join(f"{image_id}\n" for image_id in image_ids))
        return path


@pytest.fixture
def folder(tmp_path):
    """An empty folder in VOC layout to write into."""
    return VOCFolder(tmp_path / "VOC")


@pytest.fixture
def small_voc(folder):
    """Five images of different sizes in the split `trainval`; d shows nothing, the dog of e is difficult."""
    objects = {
        "a": [("cat", (1, 1, 20, 30)), ("dog", (10, 5, 60, 40))],
        "b": [("bird", (3, 4, 9, 9))],
        "c": [("cat", (2, 2, 30, 20)), ("cat", (5, 5, 40, 30), True)],
        "d": [],
        "e": [("dog", (7, 7, 30, 30), True)],
    }
    for seed, (image_id, rows) in enumerate(objects.items()):
        folder.image(image_id, height=40 + 3 * seed, width=60 - 4 * seed, seed=seed)
        folder.xml(image_id, rows)
    folder.split("trainval", objects)
    return folder
