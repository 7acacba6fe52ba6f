"""Batches of images of like shapes, so that little of them is padding."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from typing import Any

import torch


def sorted_batches(
    batches_from: Callable[[int], Iterable[list[Any]]],
    shape: Callable[[Any], tuple[int, int]],
    *,
    window: int,
    seed_of: Callable[[int], int],
    first: int = 0,
    step: int = 1,
) -> Iterator[list[Any]]:
    """The entries of endless batches, sorted by shape within each `window` of batches, in a drawn order.

    An image is drawn as often, in as many sizes and mirrored as often as without; only its company changes.
    Batch n is a function of n alone, so a run that begins at any number goes on as an unbroken one.

    Args:
        batches_from: all batches from a number on.
        shape: (height, width) of an entry.
        window: batches that are sorted together.
        seed_of: of the order of each window's batches.
        first, step: numbers of the batches to give: first, first + step, first + 2 step, ...
    """
    current, batches, order = -1, [], []
    for number in count(first, step):
        if number // window != current:
            current = number // window
            unsorted = list(islice(batches_from(current * window), window))
            entries = sorted(chain(*unsorted), key=lambda entry: _upright_and_area(*shape(entry)))
            size = len(unsorted[0])
            batches = [entries[i : i + size] for i in range(0, len(entries), size)]
            generator = torch.Generator().manual_seed(seed_of(current))
            order = torch.randperm(window, generator=generator).tolist()
        yield batches[order[number % window]]


def _upright_and_area(height: int, width: int) -> tuple[bool, int]:
    """What to sort by: beside each other an upright and a lying image would both be padded to a square."""
    return height > width, height * width
