"""Warnings about a data set: classes, unreadable or repeated images, suspicious boxes."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from detector.data.datasets.annotated import AnnotatedImages
from detector.data.images import count_pages
from detector.data.large_images import LargeImage
from detector.data.loader import read_parts
from detector.structures import Annotation, ImageDataset, box_iou
from detector.utils.errors import DataError, counted, shortened

_RARE = 4  # a class with 1/4 of the images of another one of nearly the same name is probably misspelled
_MOST_SHOWN = 10  # pairs of classes
_LONGEST = 10.0  # aspect ratio: more is suspicious
_WHOLE = 0.98  # share of the image: a larger box localizes nothing
_FEW, _OFTEN, _UNBALANCED = 20, 0.9, 10  # images of a class; share of the images; times as many images
# Correlation of the gradients of nearly the same images. Of 131,328 pairs of photographs, 12 have more, of
# 924,120 pairs of tiles of circuit boards 158, of 79,800 pairs of gray textures none; and all photographs
# with their own copies that were scaled, brightened or saved as JPEG.
_NEAR = 0.8
_LEAST_CONTRAST = 0.05  # gray levels between neighboring cells: with less, an image counts as one color
_BLOCK = 1024  # images that are compared at once
_SKETCHED = 1024  # pixels of the shorter side of an image that is too large to be read at once
_SAME = 0.95  # IoU: two boxes of a class with more are probably the same object


class Pixels(NamedTuple):
    """The result of reading an image."""

    error: str | None  # the reason if it cannot be read
    digest: bytes  # equal for images with the same pixels
    sketch: np.ndarray = np.zeros(0)  # the result of sketch_gradients; empty if there is an error
    pages: int = 1  # of the file


def read_all(source: ImageDataset, threads: int) -> Iterator[Pixels]:
    """Decode every image, in order; an image that cannot be read is no error."""

    def read(index: int) -> Pixels:
        try:
            image = read_parts(source, index)
            image = image.reduced(_SKETCHED) if isinstance(image, LargeImage) else image
        except (OSError, DataError) as error:
            return Pixels(str(error), b"")
        content = repr(tuple(image.shape)).encode() + image.numpy().tobytes()
        digest = hashlib.sha1(content, usedforsecurity=False).digest()
        return Pixels(None, digest, sketch_gradients(image), _pages(source, index))

    with ThreadPoolExecutor(max(1, threads)) as pool:
        yield from pool.map(read, range(len(source.image_ids)))


def _pages(source: ImageDataset, index: int) -> int:
    """1 if pages behind the first are damaged, or if the image is no file."""
    try:
        return count_pages(source.image_path(index)) if isinstance(source, AnnotatedImages) else 1
    except (OSError, DataError):
        return 1


def page_findings(name: str, readable: Mapping[str, Pixels]) -> list[str]:
    """One message if files have several pages or frames, of which the first alone is read; else none.

    Args:
        name: of the data set in the message.
        readable: its images, by id.
    """
    if not (several := [image_id for image_id, pixels in readable.items() if pixels.pages > 1]):
        return []
    return [
        f"{name}: {counted(len(several), 'file has', 'files have')} several pages or frames, such as "
        f"{several[0]} ({readable[several[0]].pages}): only the first is used; save the others as files of "
        "their own"
    ]


def repeated_images(
    datasets: Iterable[AnnotatedImages], readable: Mapping[str, Mapping[str, Pixels]]
) -> list[str]:
    """The images that have the same pixels, with their data sets and their classes, which should agree.

    Args:
        readable: the images of each data set, by its name, that could be read, by their ids.
    """
    same: dict[bytes, list[str]] = defaultdict(list)
    for dataset in datasets:
        for image_id, labels in zip(dataset.image_ids, dataset.all_labels(), strict=True):
            if pixels := readable[dataset.name].get(image_id):
                shown = [dataset.class_names[column] for column in np.flatnonzero(labels)]
                same[pixels.digest].append(f"{dataset.name} {image_id} ({', '.join(shown) or 'no class'})")
    return [" = ".join(images) for images in same.values() if len(images) > 1]


def sketch_gradients(image: Tensor) -> np.ndarray:
    """A descriptor (450,) float16 of length 1 that scaling, recompression and small changes barely affect.

    It holds the horizontal and vertical differences between pixels of a 16 x 16 copy, less the mean of each,
    which pictures of one camera may share. It is 0 for an image of one color.

    Args:
        image: (3, H, W) uint8.
    """
    gray = adaptive_avg_pool2d(image.float().mean(dim=0)[None], (16, 16))[0].double().numpy()  # (16, 16)
    steps = np.stack([np.diff(gray, axis=1)[:-1], np.diff(gray, axis=0)[:, :-1]])  # (2, 15, 15)
    steps = (steps - steps.mean(axis=(1, 2), keepdims=True)).reshape(-1)
    length = np.linalg.norm(steps)
    flat = length < _LEAST_CONTRAST * np.sqrt(len(steps))
    return (np.zeros_like(steps) if flat else steps / length).astype(np.float16)


def near_duplicates(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> list[tuple[int, int]]:
    """Pairs (index in `first`, index in `second`) of nearly equal images, by :func:`sketch_gradients`."""
    if not len(first):
        return []
    others = np.stack(first).astype(np.float32)  # (N, 450)
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(second), _BLOCK):
        block = np.stack(second[start : start + _BLOCK]).astype(np.float32)
        near = np.argwhere(block @ others.T >= _NEAR)
        pairs += [(other, start + index) for index, other in near.tolist()]
    return pairs


def shared_images(train_set: AnnotatedImages, test_set: AnnotatedImages) -> list[str]:
    """One message if files of the test split are also in the training split, else none."""
    trained, tested = (
        {dataset.image_path(i).absolute() for i in range(len(dataset))} for dataset in (train_set, test_set)
    )
    if not (shared := sorted(map(str, trained & tested))):
        return []
    return [
        f"of {test_set.name}, {counted(len(shared), 'image is', 'images are')} in {train_set.name}, too, so "
        f"the results of the test will be too good: leave them out of one of the two, {shortened(shared, 3)}"
    ]


def tag_findings(name: str, labels: np.ndarray, class_names: Sequence[str]) -> list[str]:
    """Warnings about the balance of the labels of a training split, with what to do; usually none.

    Args:
        name: of the data set in the messages.
        labels: (N, C), more than 0 where an image shows a class.
        class_names: of the C classes.
    """
    shown = labels > 0
    counts = shown.sum(axis=0)
    named = [f"{label} ({count})" for label, count in zip(class_names, counts.tolist(), strict=True)]
    lines = []
    if few := [named[c] for c in np.flatnonzero((counts > 0) & (counts < _FEW)).tolist()]:
        lines.append(
            f"{name}: fewer than {_FEW} images show {shortened(few)}: their boxes will be poor, and vary "
            "with SEED; add images, or leave out these labels"
        )
    often = (counts > _OFTEN * len(labels)) & (counts < len(labels))
    if crowded := [named[c] for c in np.flatnonzero(often).tolist()]:
        lines.append(
            f"{name}: nearly all {len(labels)} images show {shortened(crowded)}: little is left to "
            "contrast, and boxes will settle on what images have in common; add images without them"
        )
    together = shown.T.astype(np.int64) @ shown  # (C, C) images that show both
    pairs = np.argwhere(np.triu((together == counts) & (together == counts[:, None]) & (counts > 1), k=1))
    if inseparable := [f"{class_names[a]} and {class_names[b]}" for a, b in pairs.tolist()]:
        lines.append(
            f"{name}: always together are {shortened(inseparable)}: they cannot be told apart; add "
            "images that show one of the two"
        )
    if len(class_names) == 1:
        lines.append(
            f"{name}: {class_names[0]} is the only class: boxes may settle on the part that tells it best; "
            "label what else the images show as classes, too, draw boxes in a few images, or go on from "
            "three detectors (docs/own_images.md, One class alone)"
        )
    present = counts[counts > 0]
    if len(present) > 1 and present.max() > _UNBALANCED * present.min():
        most, least = int(counts.argmax()), int(np.where(counts > 0, counts, len(labels) + 1).argmin())
        lines.append(
            f"{name}: images show {named[most]} far more often than {named[least]}: the rare classes are "
            "learned late or not at all; SOLVER.REPEAT_THRESHOLD shows their images more often"
        )
    return lines


def odd_boxes(annotation: Annotation, size: tuple[int, int], min_side: float) -> dict[str, int]:
    """The number of suspicious ground-truth boxes of an image of `size` (height, width), by reason.

    Suspicious is a box with a side of at most `min_side` pixels, since such proposals are dropped; one that
    is very long or as large as the image; and one that coincides with another of its class.
    """
    boxes = annotation.boxes[~annotation.crowd]
    sides = boxes[:, 2:] - boxes[:, :2]  # (G, 2)
    labels = annotation.labels[~annotation.crowd]
    same = (box_iou(boxes, boxes) > _SAME) & (labels[:, None] == labels[None, :])
    odd = {
        f"with a side of at most {min_side:g} pixels, as no proposal has": (sides <= min_side).any(dim=1),
        f"over {_LONGEST:g} times as long as wide": sides.amax(dim=1) > _LONGEST * sides.amin(dim=1),
        "as large as the image": sides.prod(dim=1) > _WHOLE * size[0] * size[1],
        "on another of the same class": torch.triu(same, diagonal=1).any(dim=0),
    }
    return {what: int(rows.sum()) for what, rows in odd.items() if rows.any()}


def doubtful_classes(name: str, counts: Mapping[str, tuple[int, int]], num_images: int) -> list[str]:
    """One message per kind of problem, with the classes and what to do; usually none.

    A class that no image or every image shows cannot be learned: image labels then carry no information
    about where its objects are. A class with nearly the same name as another is probably a misspelled label.

    Args:
        name: name of the data set in the messages.
        counts: the number of images that show each class, and of those that are known not to show it.
        num_images: the number of images of the data set.
    """
    lines = []
    shown = {label: images for label, (images, _) in counts.items()}
    if absent := [label for label in shown if shown[label] == 0]:
        lines.append(
            f"{name}: no image shows {_listed(absent)}, which cannot be learned: add images that do, or "
            "leave the class out of DATASETS.CLASSES"
        )
    if hidden := [
        label for label, (images, others) in counts.items() if 0 < images < num_images and not others
    ]:
        lines.append(
            f"{name}: no image is known not to show {_listed(hidden)}, which cannot be learned: where the "
            "label is not there, it is unknown; label some of these images"
        )
    if everywhere := [label for label in shown if 0 < shown[label] == num_images]:
        lines.append(
            f"{name}: all {num_images} images show {_listed(everywhere)}, which cannot be learned from image "
            "labels: add images that do not show it"
        )
    return lines + _misspelled(name, shown, num_images)


def _misspelled(name: str, counts: Mapping[str, int], num_images: int) -> list[str]:
    """One message per pair of classes of which one is probably a misspelling of the other."""
    plain = {label: "".join(filter(str.isalnum, label.casefold())) or label for label in counts}
    lines = []
    for pair in combinations(counts, 2):
        rare, frequent = sorted(pair, key=counts.__getitem__)
        if plain[rare] == plain[frequent]:
            difference = "only in capitals, spaces or punctuation"
        # "car" and "cat" are both real classes of VOC and COCO, with a similar number of images.
        elif 0 < counts[rare] * _RARE <= counts[frequent] and one_edit_apart(plain[rare], plain[frequent]):
            difference = "in one letter"
        else:
            continue
        lines.append(
            f"{name}: class {rare!r}, in {counts[rare]} of {num_images} images, differs {difference} from "
            f"{frequent!r}, in {counts[frequent]}: did you mean {frequent!r}? Correct the labels, unless "
            "they are two classes"
        )
    more = [f"{name}: {len(lines) - _MOST_SHOWN} more pairs of classes have nearly the same name"]
    return lines[:_MOST_SHOWN] + (more if len(lines) > _MOST_SHOWN else [])


def one_edit_apart(first: str, second: str) -> bool:
    """Whether replacing, inserting, removing or transposing one letter turns one into the other."""
    if first == second or abs(len(first) - len(second)) > 1:
        return False
    start = 0
    while first[start : start + 1] == second[start : start + 1]:
        start += 1
    first, second = first[start:], second[start:]
    return (
        first[1:] == second[1:]
        or first[1:] == second
        or first == second[1:]
        or (first[:2] == second[1::-1] and first[2:] == second[2:])
    )


def _listed(names: list[str]) -> str:
    return shortened([repr(name) for name in names])
