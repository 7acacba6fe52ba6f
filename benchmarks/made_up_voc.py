"""A synthetic data set with the image sizes of VOC 2007: JPEGs of about 90 kB, proposals, and labels."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from detector.config import VOC_CLASSES
from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
from detector.data.labeled_box import LabeledBox
from detector.data.proposals import save_proposals

SIZES = ((375, 500), (375, 500), (333, 500), (500, 375))  # (height, width); one of four in portrait format


def synthetic_jpeg(size: tuple[int, int], generator: np.random.Generator) -> bytes:
    """Smooth colors with some noise; size and decoding time are similar to those of a VOC photograph."""
    height, width = size
    coarse = generator.integers(0, 256, (height // 6, width // 6, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.BICUBIC), dtype=np.float32)
    noisy = (smooth + generator.normal(0, 6, smooth.shape)).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(noisy).save(file, format="jpeg", quality=92)
    return file.getvalue()


def random_boxes(number: int, size: tuple[int, int], generator: np.random.Generator) -> np.ndarray:
    """Random boxes (number, 4) in whole pixels."""
    height, width = size
    sides = (0.05 + 0.75 * generator.random((number, 2)) ** 1.5) * (width, height)
    corners = generator.random((number, 2)) * ((width, height) - sides)
    return np.concatenate([corners, corners + sides], axis=1).round()


def make_voc(root: Path, *, train: int, test: int, proposals: int) -> None:
    """Write a folder in VOC layout with the splits trainval and test, and proposals.npz."""
    generator = np.random.default_rng(0)
    ids, boxes, sizes = [], [], []
    with new_voc_folder(root) as folder:
        for split, first, count in (("trainval", 0, train), ("test", train, test)):
            split_ids = [f"{first + index:06d}" for index in range(count)]
            for index, image_id in enumerate(split_ids):
                size = SIZES[index % len(SIZES)]
                (folder / "JPEGImages" / f"{image_id}.jpg").write_bytes(synthetic_jpeg(size, generator))
                shown = generator.choice(VOC_CLASSES, size=1 + index % 2, replace=False)
                object_boxes = random_boxes(len(shown), size, generator).tolist()
                objects = [LabeledBox(str(n), tuple(box)) for n, box in zip(shown, object_boxes, strict=True)]
                write_annotation(folder, f"{image_id}.jpg", size, objects, folder="synthetic")
                boxes.append(random_boxes(proposals, size, generator))
                ids.append(image_id)
                sizes.append(size)
            write_split(folder, split, split_ids)
    save_proposals(root / "proposals.npz", ids, boxes, sizes)


def keys(root: Path) -> list[str]:
    """Config overrides for this data set and random weights."""
    values = {"DATASETS.ROOT": root, "DATASETS.PROPOSALS": root / "proposals.npz", "MODEL.WEIGHTS": ""}
    return [str(word) for pair in values.items() for word in pair]
