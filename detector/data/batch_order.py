"""The order in which training draws images."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count, islice

import numpy as np
import torch

from detector.utils.errors import DataError

_Entry = tuple[int, int]  # index of an image, draw
_GOLDEN = (5**0.5 - 1) / 2


def repeat_factors(labels: np.ndarray, threshold: float) -> np.ndarray:
    """How often to draw each image while others are drawn once (LVIS, Gupta et al., arXiv 1908.03195, A.1).

    A class that the share f < `threshold` of the images shows has the factor sqrt(threshold / f), others 1;
    an image has the largest factor of its classes.

    Args:
        labels: (N, C) bool.
        threshold: in [0, 1]; 0: all factors are 1.

    Returns:
        (N,) float64, at least 1.
    """
    shares = np.maximum(labels.mean(axis=0), 1 / len(labels))  # (C,); no image has a class that none shows
    factors = np.maximum(1, np.sqrt(threshold / shares))
    return np.where(labels, factors, 1.0).max(axis=1, initial=1.0)


class SeededBatches:
    """Endless batches of (index, draw): every image once per epoch, in an order given by (seed, epoch).

    A batch may span two epochs, so all have `images_per_batch` entries. `draw` depends on (seed, position)
    and seeds the random part of the transform. Each of several processes takes every `world_size`-th batch;
    together they read the same batches as a single process.

    Args:
        start: number of batches to skip, of all processes together.
        rank: number of this process, from 0.
        world_size: number of processes.
        window: number of batches within which images are sorted by shape, for less padding; 1: not sorted.
            Images are drawn, resized and flipped as without it: only the composition of the batches changes.
        shape: maps (index, draw) to (height, width), for sorting.
        repeats: how often an epoch draws each image on average; a fraction is rounded up or down
            at random, in such a way that all epochs are equally long. None: once.
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
        repeats: Sequence[float] | np.ndarray | None = None,
    ):
        if num_images < 1 or (repeats is not None and not np.any(repeats)):
            raise DataError("there are no images to train on")
        self.images_per_batch = images_per_batch
        self.ends = None if repeats is None else np.cumsum(repeats)  # (N,)
        self.epoch_length = num_images if self.ends is None else max(1, round(self.ends[-1]))
        self.seed, self.first, self.world_size = seed, start + rank, world_size
        self.window, self.shape = window, shape

    def __iter__(self) -> Iterator[list[_Entry]]:
        if self.window == 1 or self.shape is None:
            return self._as_drawn(self.first, self.world_size)
        return self._sorted(self.shape)

    def _as_drawn(self, first: int, step: int = 1) -> Iterator[list[_Entry]]:
        epoch, order = -1, []
        for number in count(first, step):
            position, batch = number * self.images_per_batch, []
            for _ in range(self.images_per_batch):
                if position // self.epoch_length != epoch:
                    epoch = position // self.epoch_length
                    order = self._order(epoch)
                batch.append((order[position % self.epoch_length], _mix(self.seed, 1, position)))
                position += 1
            yield batch

    def _order(self, epoch: int) -> list[int]:
        """The images of an epoch.

        Image i covers an interval as long as its repeats, beginning where that of image i - 1 ends; it is
        drawn once for each integer in it after a shift of all intervals (systematic sampling). The first
        shift is random; multiples of the golden ratio spread those of all epochs evenly, so that an image
        with 0.5 repeats is drawn in about every second one, and not never in a short run.
        """
        order = _permutation(self.epoch_length, _mix(self.seed, 0, epoch))
        if self.ends is None:
            return order
        shift = (np.random.default_rng([self.seed, 3]).random() + epoch * _GOLDEN) % 1
        last = np.floor(self.ends * (self.epoch_length / self.ends[-1]) + shift).astype(np.int64)
        last[-1] = self.epoch_length  # despite the rounding in the line above
        images = np.repeat(np.arange(len(last)), np.diff(last, prepend=0))
        return images[order].tolist()

    def _sorted(self, shape: Callable[[int, int], tuple[int, int]]) -> Iterator[list[_Entry]]:
        """The batches of each window, whose entries are sorted by shape, in random order.

        Batch n depends on n alone, so that a resumed run continues as an uninterrupted one.
        """
        current, batches, order = -1, [], []
        for number in count(self.first, self.world_size):
            window, place = divmod(number, self.window)
            if window != current:
                current = window
                unsorted = chain(*islice(self._as_drawn(window * self.window), self.window))
                entries = sorted(unsorted, key=lambda entry: _shape_key(*shape(*entry)))
                size = self.images_per_batch
                batches = [entries[i : i + size] for i in range(0, len(entries), size)]
                order = _permutation(self.window, _mix(self.seed, 2, window))
            yield batches[order[place]]


def _shape_key(height: int, width: int) -> tuple[bool, int]:
    """The sort key: portrait and landscape images in one batch would be padded to squares."""
    return height > width, height * width


def _permutation(number: int, seed: int) -> list[int]:
    return torch.randperm(number, generator=torch.Generator().manual_seed(seed)).tolist()


def _mix(seed: int, stream: int, position: int) -> int:
    """A seed of 32 bits, the most that torch's CPU generator uses; the same on every platform."""
    return int(np.random.SeedSequence([seed, stream, position]).generate_state(1)[0])
