"""A data set of VOC 2007's sizes, made up: JPEGs of about 90 kB, proposals, and labels."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from detector.config import VOC_CLASSES
from detector.data.proposals import save_proposals
from detector.data.voc_writer import VOCObject, new_voc_folder, write_annotation, write_split

SIZES = ((375, 500), (375, 500), (333, 500), (500, 375))  # (height, width); one image of four is upright


def made_up_jpeg(size: tuple[int, int], generator: np.random.Generator) -> bytes:
    """Smooth colors with some noise: as many bytes, and so as long to decode, as a photograph of VOC."""
    height, width = size
    coarse = generator.integers(0, 256, (height // 6, width // 6, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC), dtype=np.float32)
    noisy = (smooth + generator.normal(0, 6, smooth.shape)).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, format="jpeg", quality=92)
    return file.getvalue()


def random_boxes(number: int, size: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """(number, 4) whole pixels; the middle and the sides are drawn evenly."""
    height, width = size
    sides = (0.05 + 0.75 * generator.random((number, 2)) ** 1.5) * (width, height)
    corners = generator.random((number, 2)) * ((width, height) - sides)
    return np.concatenate([corners, corners + sides], axis=1).round()


def make_voc(root: Path, *, train: int, test: int, proposals: int) -> None:
    """A folder in VOC layout with the splits trainval and test, and proposals.npz in it."""
    generator = np.random.default_rng(0)
    ids, boxes, sizes = [], [], []
    with new_voc_folder(root) as folder:
        for split, first, count in (("trainval", 0, train), ("test", train, test)):
            of_split = [f"{first + index:06d}" for index in range(count)]
            for index, image_id in enumerate(of_split):
                size = SIZES[index % len(SIZES)]
                (folder / "JPEGImages" / f"{image_id}.jpg").write_bytes(made_up_jpeg(size, generator))
                shown = generator.choice(VOC_CLASSES, size=1 + index % 2, replace=False)
                true = random_boxes(len(shown), size, generator).tolist()
                objects = [VOCObject(str(n), tuple(box)) for n, box in zip(shown, true, strict=True)]
                write_annotation(folder, f"{image_id}.jpg", size, objects, folder="made_up")
                boxes.append(random_boxes(proposals, size, generator))
                ids.append(image_id)
                sizes.append(size)
            write_split(folder, split, of_split)
    save_proposals(root / "proposals.npz", ids, boxes, sizes)


def keys(root: Path) -> list[str]:
    """Overrides that make a config of VOC 2007 one of the made-up set and of random weights."""
    values = {"DATASETS.ROOT": root, "DATASETS.PROPOSALS": root / "proposals.npz", "MODEL.WEIGHTS": ""}
    return [str(word) for pair in values.items() for word in pair]
