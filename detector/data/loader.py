"""Batches for training, and images in all test passes.

A training batch depends on (seed, position) alone, not on the number of worker processes, the batches before
it or the global random state. A resumed run therefore sees the same batches as an uninterrupted one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType

import torch
from torch import Tensor
from torch.utils.data import Dataset

from detector.data.proposals import clean_proposals
from detector.data.reviewed import shown_classes
from detector.data.transforms import TestTransform, TrainTransform, resize, resized_size
from detector.structures import Batch, Hints, ImageDataset, ReviewedBoxes, Sample, Views, boxes_to_rois

_LEAST_SIDE = 16  # pixels: VGG16 halves an image up to four times and fails if nothing is left


class WeakDataset(Dataset):
    """Training samples: `dataset[index, draw]` is image `index` transformed by the random numbers of `draw`.

    Proposals with a side of at most `min_size` pixels of the image as read are dropped, and the first
    `max_count` of the others are kept. After the transform, duplicates on the feature grid are dropped.

    Args:
        source: a data set, such as :class:`VOCDataset`.
        proposals: maps image ids to boxes (R, 4) in pixels of the image as read.
        reviewed: maps the ids of reviewed images to their boxes in the same pixels. They are proposals, too,
            and their classes labels of the image; a complete image has no others.
        hints: maps image ids to points and counts, whose classes are labels of the image, too.
        transform: applied to each sample.
        stride: of the feature grid, in pixels of the transformed image.
    """

    def __init__(
        self,
        source: ImageDataset,
        proposals: Mapping[str, Tensor],
        transform: TrainTransform,
        *,
        min_size: float,
        stride: int,
        max_count: int,
        reviewed: Mapping[str, ReviewedBoxes] = MappingProxyType({}),
        hints: Mapping[str, Hints] = MappingProxyType({}),
    ):
        self.source, self.proposals, self.transform = source, proposals, transform
        self.reviewed, self.hints = reviewed, hints
        self.min_size, self.stride, self.max_count = min_size, stride, max_count

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        index, draw = key
        sample = _read_sample(self.source, self.proposals, index, self.min_size, self.max_count)
        if (given := self.hints.get(sample.image_id)) is not None:
            sample = _with_hints(sample, given)
        if (known := self.reviewed.get(sample.image_id)) is not None:
            sample = _with_reviewed(sample, known)  # last, as a complete image shows nothing else
        sample = self.transform(sample, torch.Generator().manual_seed(draw))
        boxes = clean_proposals(sample.proposals, min_size=0, stride=self.stride, max_count=self.max_count)
        return replace(sample, proposals=boxes)

    def shape(self, index: int, draw: int) -> tuple[int, int]:
        """(height, width) of the image of `dataset[index, draw]`, without reading it."""
        transform = self.transform
        size = transform.draw_size(torch.Generator().manual_seed(draw))
        return resized_size(*self.source.image_size(index), size, transform.side, transform.max_size)


class TestDataset(Dataset):
    """Test passes: `dataset[i]` is image i by each transform.

    Row r is the same proposal in every pass, so that scores can be averaged over the passes. Duplicates on
    the feature grid, which differs between passes, are kept.
    """

    __test__ = False  # pytest: not a test case

    def __init__(
        self,
        source: ImageDataset,
        proposals: Mapping[str, Tensor],
        transforms: Sequence[TestTransform],
        *,
        min_size: float,
        max_count: int,
    ):
        self.source, self.proposals, self.transforms = source, proposals, tuple(transforms)
        self.min_size, self.max_count = min_size, max_count

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, index: int) -> Views:
        sample = _read_sample(self.source, self.proposals, index, self.min_size, self.max_count)
        return make_views(sample, self.transforms)


def make_views(sample: Sample, transforms: Sequence[TestTransform]) -> Views:
    """All test passes of an image as read; passes of one size share the resized image."""
    height, width = sample.image.shape[1:]
    samples: list[Sample] = []
    for size, of_size in groupby(transforms, key=lambda transform: transform.size_options):
        resized = resize(sample, *size)
        samples += [transform.finish(resized) for transform in of_size]
    return Views(sample.image_id, (height, width), sample.proposals, tuple(samples))


def collate(samples: Sequence[Sample], multiple: int = 1) -> Batch:
    """Combine samples into a batch; images are padded at the right and the bottom.

    Args:
        multiple: the sides of the padded images are multiples of it, in pixels.
    """
    sizes = tuple((sample.image.shape[1], sample.image.shape[2]) for sample in samples)
    height, width = (
        -(-max(_LEAST_SIDE, *sides) // multiple) * multiple for sides in zip(*sizes, strict=True)
    )
    images = samples[0].image.new_zeros(len(samples), 3, height, width)
    for image, sample, (of_height, of_width) in zip(images, samples, sizes, strict=True):
        image[:, :of_height, :of_width] = sample.image
    pixels = [sample.pixel for sample in samples if sample.pixel is not None]
    unknown = [sample.unknown for sample in samples if sample.unknown is not None]
    return Batch(
        images=images,
        rois=boxes_to_rois([sample.proposals for sample in samples]),  # (sum R, 5)
        labels=torch.stack([sample.labels for sample in samples]),  # (B, C)
        counts=torch.tensor([len(sample.proposals) for sample in samples]),  # (B,)
        image_ids=tuple(sample.image_id for sample in samples),
        sizes=torch.tensor(sizes),  # (B, 2)
        pixels=torch.tensor(pixels) if pixels else None,  # (B, 2)
        unknown=torch.stack(unknown) if unknown else None,  # (B, C)
        reviewed=tuple(s.reviewed for s in samples) if any(s.reviewed for s in samples) else (),
        hints=tuple(s.hints for s in samples) if any(s.hints for s in samples) else (),
    )


def _read_sample(
    source: ImageDataset, proposals: Mapping[str, Tensor], index: int, min_size: float, max_count: int
) -> Sample:
    image_id = source.image_ids[index]
    boxes = clean_proposals(proposals[image_id], min_size=min_size, stride=1, max_count=max_count)
    labels, unknown = source.labels(index), source.unknown(index)
    return Sample(source.read_image(index), boxes, labels, image_id, unknown=unknown)


def _with_hints(sample: Sample, hints: Hints) -> Sample:
    unknown = None if sample.unknown is None else sample.unknown.index_fill(0, hints.classes, False)
    labels = sample.labels.index_fill(0, hints.classes, 1)
    return replace(sample, labels=labels, unknown=unknown, hints=hints)


def _with_reviewed(sample: Sample, reviewed: ReviewedBoxes) -> Sample:
    labels, unknown = shown_classes(sample.labels, reviewed), sample.unknown
    if unknown is not None:
        unknown = unknown & ~labels.bool() & (not reviewed.complete)
    proposals = torch.cat([reviewed.boxes, sample.proposals])
    return replace(sample, labels=labels, unknown=unknown, proposals=proposals, reviewed=reviewed)
