"""Boxes that a person has reviewed in training images, and the labels that follow from them."""

import shlex
import unicodedata
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from detector.data.datasets.annotated import (
    CVAT_CROWD_HINT,
    DIFFICULT_HINT,
    UNCLEAR_OBJECTS,
    AnnotatedImages,
    hint_nearest,
    unknown_class,
)
from detector.data.formats import ReviewImage, review_import, turn_images
from detector.structures import Hints, ReviewedBoxes
from detector.utils.errors import DataError, counted


def read_reviewed(path: Path, dataset: AnnotatedImages) -> tuple[dict[str, ReviewedBoxes], list[str]]:
    """The reviewed boxes in a file or folder of :func:`review_import`, by the ids of the images of a split.

    Difficult objects are left out, and an image with one is not complete. An image with difficult objects
    alone is left out, so that it is trained from its tags; a warning counts these.

    Returns:
        the boxes, and the names of the reviewed images that are not in the split.

    Raises:
        FileNotFoundError, DataError: of :func:`review_import`.
        DataError: no image is in the split, an image has another size there, or a class is unknown.
    """
    indices = {image_id: i for i, image_id in enumerate(dataset.image_ids)}
    here: dict[str, ReviewImage] = {}
    others = []
    images = review_import(path)
    for image in images:
        image_id = find_id(image.name, indices)
        if image.reviewed != "none" and image_id in indices:
            here[image_id] = image
        elif image.reviewed != "none":
            others.append(image.name)
    if not here:
        names = f"{images[0].name!r} there, {dataset.image_ids[0]!r} here"
        raise DataError(f"{path}: none of its {len(images)} images is in {dataset.name} (such as {names})")
    paths = [dataset.image_path(indices[image_id]) for image_id in here]
    turned = turn_images(path, list(here.values()), paths, upright=dataset.apply_orientation)
    found, unlearned = {}, []
    for image_id, image in zip(here, turned, strict=True):
        size = dataset.image_size(indices[image_id])
        if image.size != size:
            raise DataError(
                f"{path}: image {image.name!r} has the (height, width) {image.size}, expected {size}"
            )
        boxes = _reviewed_boxes(image, dataset.class_names, path)
        if image.true_boxes and not len(boxes.boxes):
            unlearned.append(image.name)
        else:
            found[image_id] = boxes
    if unlearned:
        what, hint = (
            (UNCLEAR_OBJECTS, CVAT_CROWD_HINT)
            if path.suffix == ".json"
            else ("difficult objects", DIFFICULT_HINT)
        )
        warnings.warn(
            f"{path}: {counted(len(unlearned), 'image has', 'images have')} only {what}, which training "
            f"does not learn: trained from their tags, such as {unlearned[0]}; {hint}",
            stacklevel=2,
        )
    return found, others


def find_id(name: str, image_ids: Container[str]) -> str:
    """The id of an image: its name if that is an id, else that without the suffix; in any Unicode form."""
    stem = Path(name).with_suffix("").as_posix()
    forms = [unicodedata.normalize(form, text) for text in (name, stem) for form in ("NFC", "NFD")]
    return next((text for text in (name, stem, *forms) if text in image_ids), stem)


def _reviewed_boxes(image: ReviewImage, class_names: Sequence[str], path: Path) -> ReviewedBoxes:
    for box in image.true_boxes:
        if box.label not in class_names:
            problem = unknown_class(box.label, class_names)
            raise DataError(f"{path}: image {image.name!r} has a box of {problem}")
    clear = [box for box in image.true_boxes if not box.difficult]
    boxes = torch.tensor([box.box for box in clear]).reshape(-1, 4)
    labels = torch.tensor([class_names.index(box.label) for box in clear], dtype=torch.int64)
    return ReviewedBoxes(boxes, labels, image.complete and len(clear) == len(image.boxes))


def annotations_as_reviewed(dataset: AnnotatedImages, image_ids: Iterable[str]) -> dict[str, ReviewedBoxes]:
    """The ground-truth boxes of some images as if a person had reviewed them, for experiments.

    Difficult objects and crowds are left out, and an image with one is not complete. An image with crowds
    alone is left out, too.

    Raises:
        DataError: the split has no such image, or the image has no ground-truth boxes.
    """
    indices = {image_id: i for i, image_id in enumerate(dataset.image_ids)}
    found = {}
    for image_id in image_ids:
        if image_id not in indices:
            raise DataError(f"{dataset.name} has no image {image_id!r}{hint_nearest(image_id, indices)}")
        annotation = dataset.annotation(indices[image_id])
        if annotation is None:
            raise DataError(
                f"image {image_id!r} of {dataset.name} has no ground-truth boxes, for which a list of images "
                "stands: box these images in a labeling tool, and name what detector review-import writes"
            )
        if len(annotation.crowd) and annotation.crowd.all():
            continue  # otherwise nothing would be learned from it, not even its tags
        clear = ~(annotation.difficult | annotation.crowd)  # (G,)
        complete = bool(clear.all())
        found[image_id] = ReviewedBoxes(annotation.boxes[clear], annotation.labels[clear], complete)
    return found


def shown_classes(labels: Tensor, reviewed: ReviewedBoxes) -> Tensor:
    """Labels (C,) for training: tags and classes of boxes; the boxes alone if the image is complete."""
    tags = torch.zeros_like(labels) if reviewed.complete else labels
    return tags.index_fill(0, reviewed.labels, 1)


def training_labels(
    dataset: AnnotatedImages,
    reviewed: Mapping[str, ReviewedBoxes],
    hints: Mapping[str, Hints] = MappingProxyType({}),
) -> np.ndarray:
    """(N, C) bool: whether the image shows the class, as its tags, hints and reviewed boxes say.

    Without hints and reviewed boxes it is the array of the data set, which must not be changed.
    """
    labels = dataset.all_labels()
    if reviewed or hints:
        labels = labels.copy()
    for row, image_id in enumerate(dataset.image_ids):
        if image_id in hints:
            labels[row, hints[image_id].classes.numpy()] = True
        if image_id in reviewed:
            labels[row] = shown_classes(torch.from_numpy(labels[row]), reviewed[image_id])
    return labels


def label_counts(
    dataset: AnnotatedImages,
    reviewed: Mapping[str, ReviewedBoxes] = MappingProxyType({}),
    hints: Mapping[str, Hints] = MappingProxyType({}),
) -> dict[str, tuple[int, int]]:
    """How many images show each class, by :func:`training_labels`, and how many are known not to show it."""
    shown = training_labels(dataset, reviewed, hints)
    absent = len(shown) - shown.sum(axis=0)  # (C,)
    for row, image_id in enumerate(dataset.image_ids):
        known = reviewed.get(image_id)
        if (unknown := dataset.unknown(row)) is not None and not (known and known.complete):
            absent -= unknown.numpy() & ~shown[row]
    counts = zip(shown.sum(axis=0).tolist(), absent.tolist(), strict=True)
    return dict(zip(dataset.class_names, counts, strict=True))


def contradictions(dataset: AnnotatedImages, reviewed: Mapping[str, ReviewedBoxes]) -> list[str]:
    """One message where reviewed boxes contradict the tags of their image, else none.

    They do where a tagged class has no box in a complete image, or a class without the tag has a box.
    """
    tags, labels = dataset.all_labels(), training_labels(dataset, reviewed)
    wrong = tags != labels  # (N, C)
    for row in np.flatnonzero(wrong.any(axis=1)).tolist():
        if (unknown := dataset.unknown(row)) is not None:
            wrong[row] &= ~unknown.numpy()
    rows = np.flatnonzero(wrong.any(axis=1))
    if len(rows) == 0:
        return []
    missing = (wrong & tags)[rows[0]]  # (C,)
    name = dataset.class_names[int((missing if missing.any() else wrong[rows[0]]).argmax())]
    what = (
        f"is tagged {name}, but all its objects are boxed, and no box is of this class"
        if missing.any()
        else f"has a box of {name}, but no such tag"
    )
    return [
        f"{dataset.name}: the reviewed boxes of {counted(len(rows), 'image', 'images')} contradict "
        f"their tags; training follows the boxes: correct what is wrong. "
        f"The first is {dataset.image_ids[rows[0]]}, which {what}"
    ]


def unused_images(
    source: str, names: Sequence[str], dataset: AnnotatedImages, test_set: AnnotatedImages | None
) -> list[str]:
    """One message about the images `names` of `source`, if any: reviewed, but not in the training split.

    Args:
        test_set: None: it cannot be read.
    """
    if not names:
        return []
    test_ids = frozenset(test_set.image_ids if test_set else ())
    in_no_split = [name for name in names if find_id(name, test_ids) not in test_ids]
    found = []
    if test_set and (tested := len(names) - len(in_no_split)):
        found.append(
            f"{counted(tested, 'reviewed image is', 'reviewed images are')} in {test_set.name} and not used"
        )
        if test_set.source.suffix in (".csv", ".jsonl"):  # else its boxes are in annotations of another form
            command = shlex.join(["detector", "review-import", source, "--table", str(test_set.source)])
            found[0] += f" to train; to measure AP with their boxes: {command}"
    if in_no_split:
        found.append(
            f"{counted(len(in_no_split), 'reviewed image is', 'reviewed images are')} in no "
            f"split and not used, the first is {in_no_split[0]!r} "
            f"(an image of {dataset.name} is {dataset.image_ids[0]!r})"
        )
    return [f"{source}: {'; '.join(found)}"]


def describe_reviewed(dataset: AnnotatedImages, reviewed: Mapping[str, ReviewedBoxes]) -> str:
    """A sentence for the log: how many images have reviewed boxes, and how many of these are complete."""
    complete = sum(image.complete for image in reviewed.values())
    boxes = sum(len(image.boxes) for image in reviewed.values())
    images = f"{len(reviewed)} of {len(dataset)} images"
    return f"reviewed boxes in {images}, {boxes} in all; complete in {complete} of these"


def reviewed_counts(
    reviewed: Mapping[str, ReviewedBoxes], image_ids: Iterable[str]
) -> list[tuple[int, bool]]:
    """For each image, how many of its boxes are reviewed, and whether these are all its objects."""
    found = (reviewed.get(image_id) for image_id in image_ids)
    return [(0, False) if image is None else (len(image.boxes), image.complete) for image in found]


def draw_images(image_ids: Sequence[str], share: float, seed: int) -> list[str]:
    """A share of the images, at least one. With the same seed, a larger share has the images of a smaller."""
    order = torch.randperm(len(image_ids), generator=torch.Generator().manual_seed(seed)).tolist()
    return [image_ids[i] for i in order[: max(1, round(share * len(image_ids)))]]


def reviewed_sampling_weights(boxed: np.ndarray, labels: np.ndarray, share: float) -> np.ndarray:
    """How often to draw each image (N,) so that boxed images are at least `share` of the draws of each class.

    Each class is drawn as often as if all images were drawn once; a class that no boxed image shows is drawn
    from the others, so that it does not become rare. This is exact if no image shows two classes. Otherwise a
    boxed image gets the mean weight of its classes, and any other image the largest.

    Args:
        boxed: (N,) bool.
        labels: (N, C) bool. Images without a class count as one more.
        share: in [0, 1]; 1: only boxed images are drawn.
    """
    if share == 1:
        return boxed.astype(float)
    classes = np.column_stack([labels, ~labels.any(axis=1)])  # (N, C + 1)
    count, known = classes.sum(axis=0), classes[boxed].sum(axis=0)  # (C + 1,), images and boxed ones
    shares = np.where(known > 0, np.maximum(share, known / np.maximum(count, 1)), 0)
    of_boxed = shares * count / np.maximum(known, 1)
    of_others = (1 - shares) * count / np.maximum(count - known, 1)
    mean = (classes * of_boxed).sum(axis=1) / classes.sum(axis=1)
    return np.where(boxed, mean, (classes * of_others).max(axis=1))
