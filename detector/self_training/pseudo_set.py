"""Writer of detections as a data set to train any detector on: VOC's layout and COCO's JSON."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.datasets.voc_writer import new_voc_folder, write_annotation, write_split
from detector.data.formats import encode_coco, review_image
from detector.data.formats.coco import read as read_coco
from detector.data.images import TIFF_SUFFIXES, VOC_SUFFIXES, read_orientation
from detector.data.loader import is_large
from detector.data.reviewed import reviewed_counts
from detector.data.training_set import TrainingSet
from detector.structures import Detections
from detector.utils.distributed import is_main
from detector.utils.files import encode_image, inside, write_new

# What a line of a split file or a relative path cannot contain: white space at either end, control characters
# and line breaks, a leading slash, "..", backslashes.
_UNSAFE = re.compile(r"^\s|\s$|[\x00-\x1f\x7f-\x9f\u2028\u2029]|^/|(?<![^/])\.\.(?![^/])|\\")


def write_pseudo_set(
    root: str | Path,
    split: str,
    dataset: AnnotatedImages,
    detections: Sequence[Detections],
    *,
    reviewed: Sequence[tuple[int, bool]] = (),
) -> None:
    """Write the new folder `root`, which appears when it is complete.

    JPEGImages contains links to the images. An image is copied instead, as PNG of the pixels that the
    detector saw, if it has another suffix, which readers of this layout would not find, or if its EXIF
    orientation was applied, which they ignore; a TIFF that is read in parts is linked, since a PNG would be
    read as a whole. Annotations, which say that they are of the pixels as stored, are XML files with
    inclusive, 1-based boxes, which :class:`VOCDataset` reads back unchanged. SPLIT.json has the same boxes in
    COCO's format, with category ids from 1 in the order of the classes. Unsafe characters of an id become
    %XX, by their bytes.

    Args:
        dataset: the images.
        detections: of each image.
        reviewed: of each image, how many boxes a person has reviewed, which come first, and whether these are
            all its objects, which both files say; (): of none.

    Raises:
        FileExistsError: the folder exists.
        ValueError: `dataset` and `detections` differ in length.
    """
    reviews = []
    with new_voc_folder(root) as folder:
        image_ids = [_file_name(found.image_id) for found in detections]
        for index, found in zip(range(len(dataset)), detections, strict=True):
            path, size = dataset.image_path(index), dataset.image_size(index)
            suffixes = (*VOC_SUFFIXES, *TIFF_SUFFIXES) if is_large(dataset, index) else VOC_SUFFIXES
            copied = path.suffix not in suffixes or (dataset.apply_orientation and read_orientation(path) > 1)
            name = f"{image_ids[index]}{'.png' if copied else path.suffix}"
            target = inside(folder / "JPEGImages", name)
            target.parent.mkdir(parents=True, exist_ok=True)  # an id may name a folder
            if copied:
                pixels = dataset.read_image(index).permute(1, 2, 0).numpy()
                write_new(target, encode_image(Image.fromarray(pixels), "png"))
            else:
                target.symlink_to(path.resolve())
            count, complete = reviewed[index] if reviewed else (0, False)
            review = review_image(
                *(name, size, found, dataset.class_names),
                reviewed=count,
                complete=complete,
                upright=False,
                stated=True,
            )
            objects = [box._replace(score=None, doubtful=False) for box in review.boxes]
            flags = {"folder": Path(root).name, "verified": complete, "upright": False}
            write_annotation(folder, name, size, objects, **flags)
            reviews.append(review)
        write_split(folder, split, image_ids)
        write_new(folder / f"{split}.json", encode_coco(reviews, dataset.class_names))


def write_training_boxes(
    root: Path, split: str, training_set: TrainingSet, boxes: Mapping[int, Detections]
) -> None:
    """The boxes of all training images, by index, as the new data set `root`; the main process writes it."""
    dataset = training_set.dataset
    if is_main():
        found = [boxes[index] for index in range(len(dataset))]
        counts = reviewed_counts(training_set.reviewed, dataset.image_ids)
        write_pseudo_set(root, split, dataset, found, reviewed=counts)


def find_pseudo_set(folder: Path) -> Path | None:
    """The pseudo boxes that the student in a folder began to learn from; None: there are none."""
    return next((path for path in (folder / "pseudo", folder / "round_1" / "pseudo") if path.is_dir()), None)


def read_reviewed_counts(root: str | Path, split: str) -> list[tuple[int, bool]]:
    """What :func:`write_pseudo_set` was told as `reviewed`, from SPLIT.json."""
    images = read_coco(Path(root) / f"{split}.json")
    return [(len(image.true_boxes), image.complete) for image in images]


def read_weights(root: str | Path, split: str) -> list[Tensor]:
    """The weight (G,) of each box of each image: the score that it was written with."""
    images = read_coco(Path(root) / f"{split}.json")
    return [torch.tensor([float(box.score or 0.0) for box in image.boxes]) for image in images]


def _file_name(image_id: str) -> str:
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), image_id)
