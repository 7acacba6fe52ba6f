"""Opens the review of a run: its file and its pictures, for the server."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from detector.config import Settings
from detector.data.build import build_training_set, name_classes
from detector.data.datasets.annotated import AnnotatedImages, unknown_class
from detector.data.doubted_tags import TABLE, read_doubts
from detector.data.formats import ReviewImage, review_import, turn_images
from detector.data.formats.review_file import SUFFIX, start_of
from detector.data.reviewed import find_id
from detector.data.training_set import TrainingSet
from detector.engine.run_folder import start_run
from detector.inference.load import find_checkpoint
from detector.labeling.suggest import (
    RULES,
    FoundBoxes,
    assess,
    find_detector,
    image_name,
    student_boxes,
)
from detector.labeling.suggestions import choose
from detector.review.pictures import Pictures
from detector.review.store import NewImage, Store
from detector.utils.errors import DataError, UserError
from detector.utils.files import file_digest

logger = logging.getLogger(__name__)

_MOST_CHOSEN = 1000  # images that are ordered by diversity, which takes longer the more there are
_SIMILAR = 30  # most similar images to store for each image


class Session(NamedTuple):
    """Arguments of :func:`detector.review.server.make_app`."""

    store: Store
    pictures: Pictures
    title: str


def open_session(
    config_file: str,
    overrides: Sequence[object],
    *,
    file: Path | None = None,
    boxes: Path | None = None,
    reviewed: Literal["flags", "all"] = "flags",
) -> Session:
    """Open the review of a run; where there is none, or the detector has changed, find boxes first.

    Images that a person has opened keep their boxes. Images with reviewed boxes in DATASETS.BOXED are left
    out.

    Args:
        config_file, overrides: as :func:`detector.labeling.suggest.suggest` takes them.
        file: the file of the review; None: review.sqlite in the run folder.
        boxes, reviewed: a file of another tool to start from, see :func:`review_import`.

    Raises:
        UserError, OSError: there is no detector, no image, or a file cannot be used.
    """
    cfg, weights = find_detector(config_file, overrides)
    training_set = build_training_set(cfg)
    dataset, cfg = training_set.dataset, name_classes(cfg, training_set.dataset)
    file = Path(cfg.output_dir) / f"review{SUFFIX}" if file is None else file
    if file.suffix != SUFFIX:
        raise UserError(f"{file} cannot be the file of a review, expected the suffix {SUFFIX}")
    student = find_checkpoint(cfg.output_dir)
    imported = None if boxes is None else _import(boxes, reviewed, dataset)
    store = Store(file, dataset.class_names)
    digest = f"{file_digest(weights)} {file_digest(student)}"
    known = store.get_meta("weights") == digest and store.names()
    if imported or not known:
        images = _find_boxes(cfg, training_set, weights, student, imported or {})
        store.add_images(images, {"weights": digest, "rounds": "[]"})
    rows = {image_name(dataset, index): index for index in range(len(dataset))}
    image_ids = {name: dataset.image_ids[index] for name, index in rows.items()}
    names = store.names()
    if missing := [name for name in names.values() if name not in rows]:
        raise UserError(
            f"{file} has the image {missing[0]!r}, which {dataset.name} has not: name another file (--file)"
        )
    if (table := Path(cfg.output_dir) / TABLE).is_file():
        doubts = read_doubts(table)
        store.doubt_tags(
            {name: doubts[image_id] for name, image_id in image_ids.items() if image_id in doubts}
        )
    paths = {number: dataset.image_path(rows[name]) for number, name in names.items()}
    return Session(store, Pictures(paths, upright=dataset.apply_orientation), Path(cfg.output_dir).name)


def _import(
    path: Path, reviewed: Literal["flags", "all"], dataset: AnnotatedImages
) -> dict[str, ReviewImage]:
    """The images of a file that are in the data set, by their names there."""
    rows = {image_id: index for index, image_id in enumerate(dataset.image_ids)}
    images = review_import(path, reviewed=reviewed)
    here = [image for image in images if find_id(image.name, rows) in rows]
    if not here:
        raise DataError(f"{path}: none of its {len(images)} images is in {dataset.name}")
    indices = [rows[find_id(image.name, rows)] for image in here]
    paths = [dataset.image_path(index) for index in indices]
    found = {}
    for index, image in zip(
        indices, turn_images(path, here, paths, upright=dataset.apply_orientation), strict=True
    ):
        if image.size != dataset.image_size(index):
            size = dataset.image_size(index)
            raise DataError(f"{path}: image {image.name!r} has the size {image.size}, expected {size}")
        for box in image.boxes:
            if box.label not in dataset.class_names:
                problem = unknown_class(box.label, dataset.class_names)
                raise DataError(f"{path}: image {image.name!r} has a box of {problem}")
        found[image_name(dataset, index)] = image
    logger.info("imported    boxes of %d of %d images of %s", len(found), len(images), path)
    return found


def _find_boxes(
    cfg: Settings, training_set: TrainingSet, weak: Path, student: Path, imported: dict[str, ReviewImage]
) -> list[NewImage]:
    """The images without reviewed boxes, in the order of detector suggest."""
    dataset, reviewed = training_set.dataset, training_set.reviewed
    boxed = [i for i, image_id in enumerate(dataset.image_ids) if image_id in reviewed]
    left = [i for i, image_id in enumerate(dataset.image_ids) if image_id not in reviewed]
    if not left:
        raise UserError(f"all {len(dataset)} images of {dataset.name} have reviewed boxes (DATASETS.BOXED)")
    device = start_run(cfg, Path(cfg.output_dir))
    passes = (
        "once" if student == weak else "by the weak detector for their order, and by its student for boxes"
    )
    logger.info("looks through %d images, %s; this is done once for these weights", len(left), passes)
    found = assess(cfg, device, training_set, left, boxed, RULES[0])
    if student != weak:
        images, tag_scores, candidates = zip(
            *student_boxes(student, training_set, left, str(device)), strict=True
        )
        found = found._replace(
            images=list(images), tag_scores=torch.stack(tag_scores), candidates=list(candidates)
        )
    labels = torch.from_numpy(training_set.labels())  # (all images, C) bool
    known = {"known_features": found.known_features, "known_labels": labels[boxed]}
    order = choose(found.values, found.features, labels[left], _MOST_CHOSEN, **known)
    chosen = set(order)
    order += [row for row in found.values.argsort(descending=True).tolist() if row not in chosen]
    names = [image.name for image in found.images]
    similar, detector, rows = _similar(found.features), detector_name(student), []
    for row in order:
        image = imported.get(names[row], found.images[row])
        boxes = FoundBoxes(image, found.tag_scores[row], found.candidates[row])
        new = new_image(dataset, left[row], boxes, detector)
        rows.append(new._replace(similar=[names[other] for other in similar[row].tolist()]))
    return rows


def detector_name(weights: Path, number: int = 0) -> str:
    """The name of a detector in the file: a digest of its original weights, and its round of training."""
    return f"{file_digest(weights)[:12]}-{number}"


def new_image(dataset: AnnotatedImages, index: int, found: FoundBoxes, detector: str) -> NewImage:
    """A row of the file, from the boxes of a detector or an imported file in an image."""
    shown, unknown = dataset.labels(index).bool(), dataset.unknown(index)
    tags, unsure = (
        [dataset.class_names[i] for i in classes.nonzero()[:, 0].tolist()]
        for classes in (shown, torch.zeros_like(shown) if unknown is None else unknown)
    )
    name, best = image_name(dataset, index), found.tag_scores[shown]
    return NewImage(
        name,
        dataset.image_size(index),
        dataset.apply_orientation,
        start_of(replace(found.image, name=name), tags, unsure, detector),
        [[round(value, 4) for value in row] for row in found.candidates.tolist()],
        sum(4 * box.score * (1 - box.score) for box in found.image.boxes if box.score is not None),
        float(1 - best.min()) if len(best) else 0.0,
    )


def _similar(features: Tensor) -> Tensor:
    """(N, K): the rows of the K most similar images of each, the most similar first."""
    features = normalize(features.float(), dim=1)
    count = min(_SIMILAR + 1, len(features))
    rows = [torch.cdist(some, features).topk(count, largest=False).indices for some in features.split(1000)]
    return torch.cat(rows)[:, 1:]  # without the image itself
