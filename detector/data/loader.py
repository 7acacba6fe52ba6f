"""Batches for training and passes for testing.

A training batch is a function of (seed, position) alone: not of the number of worker processes, of what was
read before, or of the global random state. So a run resumed at batch n sees what an unbroken one sees.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, groupby
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from detector.data.proposals import clean_proposals
from detector.data.sorted_batches import sorted_batches
from detector.data.transforms import TestTransform, TrainTransform, resize, resized_size
from detector.structures import Batch, Sample, Views, boxes_to_rois

_LEAST_SIDE = 16  # VGG16 halves an image up to four times, and fails where nothing is left


class Source(Protocol):
    """What the loaders read of a data set. They never ask for true boxes."""

    image_ids: tuple[str, ...]

    def read_image(self, index: int) -> Tensor: ...

    def image_size(self, index: int) -> tuple[int, int]: ...

    def labels(self, index: int) -> Tensor: ...


class WeakDataset(Dataset):
    """Training samples: `dataset[index, draw]` is image `index` transformed by the random numbers of `draw`.

    On the image as read, proposals with a side of at most `min_size` pixels are dropped and the first
    `max_count` kept. After the transform, of those that coincide on the feature grid one is kept.

    Args:
        source: a data set, such as :class:`VOCDataset`.
        proposals: boxes (R, 4) of each image id, in pixels of the image as read.
        transform: what is done to each sample.
        min_size: pixels of the image as read.
        stride: side of a cell of the feature grid, in pixels of the transformed image.
        max_count: most proposals an image.
    """

    def __init__(
        self,
        source: Source,
        proposals: Mapping[str, Tensor],
        transform: TrainTransform,
        *,
        min_size: float,
        stride: int,
        max_count: int,
    ):
        self.source, self.proposals, self.transform = source, proposals, transform
        self.min_size, self.stride, self.max_count = min_size, stride, max_count

    def __len__(self) -> int:
        return len(self.source.image_ids)

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        index, draw = key
        sample = _read_sample(self.source, self.proposals, index, self.min_size, self.max_count)
        sample = self.transform(sample, torch.Generator().manual_seed(draw))
        boxes = clean_proposals(sample.proposals, min_size=0, stride=self.stride, max_count=self.max_count)
        return replace(sample, proposals=boxes)

    def shape(self, index: int, draw: int) -> tuple[int, int]:
        """(height, width) that the image of `dataset[index, draw]` has."""
        transform = self.transform
        size = transform.draw_size(torch.Generator().manual_seed(draw))
        return resized_size(*self.source.image_size(index), size, transform.side, transform.max_size)


class TestDataset(Dataset):
    """Test passes: `dataset[i]` is image i by each transform.

    Row r of every pass is the same proposal, so that scores can be averaged over the passes; nothing is
    merged on the feature grid, which differs from pass to pass.
    """

    __test__ = False  # not a test case, whatever pytest makes of the name

    def __init__(
        self,
        source: Source,
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
        height, width = sample.image.shape[1:]
        samples: list[Sample] = []
        for size, of_size in groupby(self.transforms, key=lambda transform: transform.size_options):
            resized = resize(sample, *size)
            samples += [transform.finish(resized) for transform in of_size]
        return Views(sample.image_id, (height, width), sample.proposals, tuple(samples))


class SeededBatches:
    """Endless batches of (index, draw): every image once per epoch, in an order made from (seed, epoch).

    Batches run on over the ends of epochs, so all have `images_per_batch` entries. `draw` is made from (seed,
    position) and seeds the random part of the transform.

    Of several processes each takes every `world_size`-th batch, so that together they read what one would.

    Args:
        start: number of batches already consumed, by all processes together.
        rank: number of this process, from 0; its first batch is that many after `start`.
        world_size: number of processes.
        window: batches among which images are sorted by shape, see :func:`sorted_batches`; 1: none are.
        shape: (index, draw) to (height, width), for that.
    """

    def __init__(
        self,
        num_images: int,
        images_per_batch: int,
        seed: int,
        start: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        window: int = 1,
        shape: Callable[[int, int], tuple[int, int]] | None = None,
    ):
        if num_images < 1:
            raise ValueError("there are no images to make batches of")
        self.num_images, self.images_per_batch = num_images, images_per_batch
        self.seed, self.first, self.world_size = seed, start + rank, world_size
        self.window, self.shape = window, shape

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        if self.window == 1 or self.shape is None:
            return self._as_drawn(self.first, self.world_size)
        return sorted_batches(
            self._as_drawn,
            lambda entry: self.shape(*entry),
            window=self.window,
            seed_of=lambda window: _mix(self.seed, 2, window),
            first=self.first,
            step=self.world_size,
        )

    def _as_drawn(self, first: int, step: int = 1) -> Iterator[list[tuple[int, int]]]:
        epoch, order = -1, []
        for number in count(first, step):
            position, batch = number * self.images_per_batch, []
            for _ in range(self.images_per_batch):
                if position // self.num_images != epoch:
                    epoch = position // self.num_images
                    generator = torch.Generator().manual_seed(_mix(self.seed, 0, epoch))
                    order = torch.randperm(self.num_images, generator=generator).tolist()
                batch.append((order[position % self.num_images], _mix(self.seed, 1, position)))
                position += 1
            yield batch


def collate(samples: Sequence[Sample], multiple: int = 1) -> Batch:
    """One batch of several samples. Images are padded with 0, the mean colour, at the right and bottom.

    Args:
        multiple: pixels; the sides of the padded images are multiples of it.
    """
    sizes = tuple((sample.image.shape[1], sample.image.shape[2]) for sample in samples)
    height, width = (
        -(-max(_LEAST_SIDE, *sides) // multiple) * multiple for sides in zip(*sizes, strict=True)
    )
    images = samples[0].image.new_zeros(len(samples), 3, height, width)
    for image, sample, (of_height, of_width) in zip(images, samples, sizes, strict=True):
        image[:, :of_height, :of_width] = sample.image
    return Batch(
        images=images,
        rois=boxes_to_rois([sample.proposals for sample in samples]),  # (sum R, 5)
        labels=torch.stack([sample.labels for sample in samples]),  # (B, C)
        counts=torch.tensor([len(sample.proposals) for sample in samples]),  # (B,)
        image_ids=tuple(sample.image_id for sample in samples),
        sizes=sizes,
        normalization=samples[0].normalization,
    )


def train_loader(
    dataset: WeakDataset,
    *,
    images_per_batch: int,
    seed: int,
    start: int = 0,
    workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    sort_window: int = 1,
    pad_multiple: int = 1,
) -> DataLoader:
    """Endless batches (:class:`Batch`), the same for any number of `workers`.

    Args:
        seed: 0 or more.
        start, rank, world_size: which batches, as of :class:`SeededBatches`.
        workers: processes that read images; 0: this process reads.
        sort_window: batches among which images are sorted by shape, to pad less; 1: none are.
        pad_multiple: pixels; the sides of the padded images are multiples of it.
    """
    batches = SeededBatches(
        len(dataset),
        images_per_batch,
        seed,
        start,
        rank=rank,
        world_size=world_size,
        window=sort_window,
        shape=dataset.shape,
    )
    return DataLoader(
        dataset,
        batch_sampler=batches,
        collate_fn=partial(collate, multiple=pad_multiple),
        pin_memory=torch.cuda.is_available(),  # so that Batch.to(..., non_blocking=True) does not block
        **_process_options(workers),
    )


def test_loader(dataset: Dataset, *, workers: int = 0) -> DataLoader:  # noqa: PT028 (not a test)
    """The items of a :class:`TestDataset` or of a part of one, one image at a time, in order."""
    return DataLoader(dataset, batch_size=None, collate_fn=_as_is, **_process_options(workers))


test_loader.__test__ = False  # type: ignore[attr-defined]  # not a test case, whatever pytest thinks


def _read_sample(
    source: Source, proposals: Mapping[str, Tensor], index: int, min_size: float, max_count: int
) -> Sample:
    image_id = source.image_ids[index]
    boxes = clean_proposals(proposals[image_id], min_size=min_size, stride=1, max_count=max_count)
    return Sample(source.read_image(index), boxes, source.labels(index), image_id)


def _process_options(workers: int) -> dict:
    return {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        # A loader draws a seed for its workers. Drawn from the global generator, it would shift the random
        # numbers of the model (dropout) after a resume.
        "generator": torch.Generator(),
    }


def _as_is(item):
    return item


def _mix(seed: int, stream: int, position: int) -> int:
    """A seed of 32 bits, which is all that torch's CPU generator reads; the same on every platform."""
    return int(np.random.SeedSequence([seed, stream, position]).generate_state(1)[0])
