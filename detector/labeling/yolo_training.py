"""A folder that `yolo train` of Ultralytics and RF-DETR read: images, five columns a box, and both splits.

    images/SPLIT/NAME.jpg, labels/SPLIT/NAME.txt, data.yaml    of https://docs.ultralytics.com/datasets/detect

RF-DETR does not look into folders below a split, so "pictures/a.jpg" becomes "pictures__a.jpg".
Those for labeling tools (data/formats/yolo.py) have a sixth column, the score, and no images.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import yaml

from detector.data.datasets.image_labels import find_table
from detector.data.datasets.image_table import picture_name
from detector.data.formats import ReviewImage
from detector.data.formats.yolo import encode_lines
from detector.data.images import in_any_form
from detector.data.sources.splits import TRAIN, VAL
from detector.inference.load import find_checkpoint, load
from detector.inference.thresholds import ScoreThreshold, find_thresholds
from detector.labeling.label import label, read_tags
from detector.self_training.networks import Model
from detector.utils.errors import DataError
from detector.utils.files import file_digest, reading
from detector.utils.folder_lock import folder_lock
from detector.utils.outputs import OutputFolder


def write_yolo_training(
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
        weights, device, score_threshold, model: of :func:`detector.labeling.label.label`.
        labels: one of the two tables, mine/train.jsonl or mine/val.jsonl; the other is beside it.
        output: a folder to write to; files in it are replaced only if the same call made them.

    Returns:
        the images of each split.

    Raises:
        FileNotFoundError: one of the tables is missing.
        UserError, OSError: as of :func:`label`.
    """
    tables = {split: find_table(labels.parent, split) for split in (TRAIN, VAL)}
    if labels.resolve() not in {path.resolve() for path in tables.values()}:
        raise DataError(
            f"{labels} is the table of no split: name {tables[TRAIN]}; {tables[VAL]} is used, too"
        )
    checkpoint = find_checkpoint(weights, model)
    class_names = load(checkpoint, "cpu", model=model).class_names
    thresholds = find_thresholds(checkpoint, class_names, score_threshold).tolist()
    words = [file_digest(checkpoint), thresholds, *(file_digest(path) for path in tables.values())]
    with folder_lock(output):
        outputs = OutputFolder(output, hashlib.sha256(json.dumps(words).encode()).hexdigest())
        outputs.check(["data.yaml"])
        found = {}
        for split, table in tables.items():
            images = label(checkpoint, table, device=device, score_threshold=score_threshold, model=model)
            rows = read_tags(table, table.parent)[0]
            drawn = {picture_name(row.file): row for row in rows}
            found[split] = [
                image if (boxes := drawn[image.name].boxes) is None else replace(image, boxes=boxes)
                for image in images
            ]
            for flat, image in _flat_names(found[split], table).items():
                source = in_any_form(table.parent / drawn[image.name].file)
                for name, content in _files(split, flat, image, source, class_names):
                    outputs.write(name, content)
        names = dict(enumerate(class_names))
        # Without `path`, folders are relative to data.yaml, wherever that is.
        data = {"train": f"images/{TRAIN}", "val": f"images/{VAL}", "names": names}
        outputs.write("data.yaml", yaml.safe_dump(data, allow_unicode=True, sort_keys=False).encode())
    return found


def _flat_names(images: Sequence[ReviewImage], table: Path) -> dict[str, ReviewImage]:
    """The images by a name without folders; DataError where two of them would have the same one."""
    flat: dict[str, ReviewImage] = {}
    for image in images:
        name = image.name.replace("/", "__")
        if name in flat:
            both = f"{flat[name].name} and {image.name}"
            raise DataError(f"{table}: {both} would both be {name} in one folder: rename one of them")
        flat[name] = image
    return flat


def _files(
    split: str, name: str, image: ReviewImage, source: Path, class_names: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    with reading(source, "image"):
        yield f"images/{split}/{name}", source.read_bytes()
    plain = replace(image, boxes=tuple(box._replace(score=None) for box in image.boxes))
    text = f"labels/{split}/{PurePosixPath(name).with_suffix('.txt')}"
    yield text, encode_lines(plain, class_names).encode()
