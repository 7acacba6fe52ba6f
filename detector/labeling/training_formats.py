"""Folders that other projects train from: the images of both splits, with boxes in the form each reads.

    ultralytics    images/SPLIT/NAME.jpg, labels/SPLIT/NAME.txt, data.yaml
    rf-detr        SPLIT/NAME.jpg, SPLIT/_annotations.coco.json    COCO as Roboflow exports it

Their sources are https://docs.ultralytics.com/datasets/detect and the data sets of https://rfdetr.roboflow.com.
Images get names without folders, pictures__a.jpg for pictures/a.jpg: Ultralytics takes the last folder
`images` of a path for its own, and writes what it predicts to NAME.txt.
"""

import hashlib
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import yaml

from detector.data.datasets.image_labels import find_table
from detector.data.datasets.image_table import picture_name
from detector.data.formats import ReviewImage, encode_coco, turn_images
from detector.data.formats.yolo import encode_lines
from detector.data.images import in_any_form
from detector.data.pictures import flat_name
from detector.data.sources.splits import TRAIN, VAL
from detector.inference.load import find_checkpoint, read_run
from detector.inference.thresholds import ScoreThreshold, find_thresholds
from detector.labeling.label import label, read_tags
from detector.self_training.networks import Model
from detector.utils.errors import DataError, UserError, counted
from detector.utils.files import file_digest, reading
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder

TRAINING_FORMATS = ("ultralytics", "rf-detr")
_RF_DETR_FOLDERS = {TRAIN: "train", VAL: "valid"}
_INSTANCES = "_annotations.coco.json"
_UNREAD = (".jfif", ".gif", ".ppm", ".pgm")  # of IMAGE_SUFFIXES, by Ultralytics 8.4.190


class _Split(NamedTuple):
    name: str
    table: Path
    images: list[ReviewImage]  # with names without folders
    files: list[Path]  # of the images


def write_training_folder(
    form: str,
    weights: str | Path,
    labels: Path,
    output: Path,
    *,
    device: str = "auto",
    score_threshold: ScoreThreshold = "auto",
    model: Model = "auto",
) -> dict[str, list[ReviewImage]]:
    """Write both splits of the tables of `detector init`, with boxes that a person drew or that are found.

    Args:
        form: one of TRAINING_FORMATS.
        weights, device, score_threshold, model: of :func:`detector.labeling.label.label`.
        labels: one of the two tables, mine/train.jsonl or mine/val.jsonl; the other is beside it.
        output: a folder to write to; files in it are replaced only if the same call made them.

    Returns:
        the images of each split, with the names that they have in the folder.

    Raises:
        FileNotFoundError: one of the tables is missing.
        UserError, OSError: as of :func:`label`.
    """
    if form not in TRAINING_FORMATS:
        raise UserError(f"the format is {form!r}, expected one of {', '.join(TRAINING_FORMATS)}")
    tables = {split: find_table(labels.parent, split) for split in (TRAIN, VAL)}
    if labels.resolve() not in {path.resolve() for path in tables.values()}:
        raise DataError(
            f"{labels} is the table of no split: name {tables[TRAIN]}; {tables[VAL]} is used, too"
        )
    checkpoint = find_checkpoint(weights, model)
    class_names = read_run(checkpoint, model=model)[2].datasets.classes
    thresholds = find_thresholds(checkpoint, class_names, score_threshold).tolist()
    words = [form, file_digest(checkpoint), thresholds, *(file_digest(path) for path in tables.values())]
    with folder_lock(output):
        outputs = OutputFolder(output, hashlib.sha256(json.dumps(words).encode()).hexdigest())
        outputs.check(["data.yaml" if form == "ultralytics" else f"train/{_INSTANCES}"])
        splits = []
        for name, table in tables.items():
            images = label(checkpoint, table, device=device, score_threshold=score_threshold, model=model)
            splits.append(_split(name, table, images))
        encode = _encode_ultralytics if form == "ultralytics" else _encode_rf_detr
        for name, content in encode(splits, class_names):
            outputs.write(name, content)
    return {split.name: split.images for split in splits}


def _split(name: str, table: Path, images: Sequence[ReviewImage]) -> _Split:
    """The images with the boxes of the table in place of those found, and with names without folders.

    Raises:
        DataError: two of them would have one name.
    """
    rows = {picture_name(row.file): row for row in read_tags(table, table.parent)[0]}
    flat: dict[str, str] = {}
    found = []
    for image in images:
        short, boxes = flat_name(image.name), rows[image.name].boxes
        if short in flat:
            both = f"{flat[short]} and {image.name}"
            raise DataError(f"{table}: {both} would both be {short} in one folder: rename one of them")
        flat[short] = image.name
        found.append(replace(image, name=short, boxes=image.boxes if boxes is None else tuple(boxes)))
    files = [in_any_form(table.parent / rows[image.name].file) for image in images]
    return _Split(name, table, found, files)


def _encode_ultralytics(splits: Sequence[_Split], class_names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file. There is no place for scores, nor for objects that AP ignores."""
    names = (image.name for split in splits for image in split.images)
    if unread := [name for name in names if name.lower().endswith(_UNREAD)]:
        warnings.warn(
            f"Ultralytics does not read {counted(len(unread), 'image', 'images')}, such as {unread[0]}, and "
            "leaves them out: convert them to PNG or JPEG",
            stacklevel=2,
        )
    for split in splits:
        for image, file in zip(split.images, split.files, strict=True):
            yield f"images/{split.name}/{image.name}", _read(file)
            boxes = tuple(box._replace(score=None) for box in image.boxes if not box.difficult)
            lines = encode_lines(replace(image, boxes=boxes), class_names)
            yield f"labels/{split.name}/{PurePosixPath(image.name).with_suffix('.txt')}", lines.encode()
    # Without `path`, folders are relative to data.yaml, wherever that is.
    data = {"train": f"images/{TRAIN}", "val": f"images/{VAL}", "names": dict(enumerate(class_names))}
    yield "data.yaml", yaml.safe_dump(data, allow_unicode=True, sort_keys=False).encode()


def _encode_rf_detr(splits: Sequence[_Split], class_names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file. The boxes are of the pixels as stored: RF-DETR does not read EXIF."""
    for split in splits:
        folder = _RF_DETR_FOLDERS[split.name]
        for image, file in zip(split.images, split.files, strict=True):
            yield f"{folder}/{image.name}", _read(file)
        turned = turn_images(split.table, split.images, split.files, upright=False)
        stored = [replace(image, stated=True) for image in turned]
        yield f"{folder}/{_INSTANCES}", encode_coco(stored, class_names)
        if split.name == VAL:  # a third split is expected: the second again, as there are two
            again = [replace(image, name=f"../{folder}/{image.name}") for image in stored]
            yield f"test/{_INSTANCES}", encode_coco(again, class_names)


def _read(file: Path) -> bytes:
    with reading(file, "image"):
        return file.read_bytes()
