from collections import Counter
from itertools import chain, islice

import numpy as np
import pytest

from detector.data.batch_order import SeededBatches, repeat_factors


@pytest.mark.parametrize("images_per_batch", [1, 2, 3, 7])
def test_every_image_once_an_epoch(images_per_batch):
    batches = islice(SeededBatches(5, images_per_batch, seed=3), 50)
    entries = [entry for batch in batches for entry in batch]
    orders = [[index for index, _ in entries[start : start + 5]] for start in range(0, len(entries) - 4, 5)]
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders)
    assert len({tuple(order) for order in orders}) > 1  # another order each epoch
    assert max(Counter(draw for _, draw in entries).values()) == 1


def test_order_does_not_depend_on_the_batch_size():
    def entries(images_per_batch):
        batches = islice(SeededBatches(5, images_per_batch, seed=3), 12 // images_per_batch)
        return [entry for batch in batches for entry in batch]

    assert entries(1) == entries(2) == entries(3)


@pytest.mark.parametrize("start", [1, 4, 13])
def test_start_continues_where_an_unbroken_run_would_be(start):
    unbroken = list(islice(SeededBatches(5, 2, seed=3), 20))
    assert list(islice(SeededBatches(5, 2, seed=3, start=start), 20 - start)) == unbroken[start:]


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("start", [0, 12])
def test_processes_read_together_what_one_would_read(world_size, start):
    alone = list(islice(SeededBatches(5, 2, seed=3, start=start), 12))
    ranks = [{"rank": rank, "world_size": world_size} for rank in range(world_size)]
    shards = [SeededBatches(5, 2, seed=3, start=start, **rank) for rank in ranks]
    rounds = islice(zip(*shards, strict=True), 12 // world_size)
    assert [batch for batches in rounds for batch in batches] == alone


def test_seeds_give_different_orders_and_draws():
    one, other = (next(iter(SeededBatches(100, 100, seed=seed))) for seed in (0, 1))
    assert [index for index, _ in one] != [index for index, _ in other]
    assert not {draw for _, draw in one} & {draw for _, draw in other}


def test_images_with_repeats_are_drawn_as_often_on_average():
    repeats = [1.0, 2.5, 1.0, 1.25, 3.0]  # 8.75, so epochs of 9
    batches = islice(SeededBatches(5, 3, seed=3, repeats=repeats), 3 * 200)
    drawn = [index for batch in batches for index, _ in batch]
    epochs = [Counter(drawn[start : start + 9]) for start in range(0, len(drawn), 9)]
    for image, factor in enumerate(repeats):
        counts = [epoch[image] for epoch in epochs]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) / len(counts) == pytest.approx(factor * 9 / 8.75, rel=0.05)
    assert len({tuple(drawn[start : start + 9]) for start in range(0, 90, 9)}) == 10
    later = islice(SeededBatches(5, 3, seed=3, start=7, repeats=repeats), 1)
    assert [index for index, _ in next(later)] == drawn[21:24]


@pytest.mark.parametrize("seed", range(8))
def test_an_image_with_half_a_repeat_is_drawn_in_one_of_a_few_epochs(seed):
    batches = islice(SeededBatches(20, 10, seed, repeats=[0.5] * 20), 3)  # 10 images an epoch
    assert {index for batch in batches for index, _ in batch} == set(range(20))


def test_repeats_of_one_change_nothing():
    plain, ones = (SeededBatches(5, 2, seed=3, repeats=each) for each in (None, [1.0] * 5))
    images = [[sorted(i for b in islice(each, 5) for i, _ in b)] for each in (plain, ones)]
    assert images[0] == images[1]


def test_no_images():
    with pytest.raises(ValueError, match="there are no images"):
        SeededBatches(0, 2, seed=0)
    with pytest.raises(ValueError, match="there are no images"):  # as where a fold holds out all that count
        SeededBatches(3, 2, seed=0, repeats=[0.0] * 3)


def test_an_epoch_has_at_least_one_image():
    batches = islice(SeededBatches(3, 2, seed=0, repeats=[0.0, 0.3, 0.0]), 3)
    assert [[index for index, _ in batch] for batch in batches] == [[1, 1]] * 3


def test_sorted_batches_hold_the_same_entries_in_like_shapes():
    def shape(index, draw):
        height, width = (24, 40, 56)[draw % 3], 60 + draw % 5
        return (height, width) if index % 2 else (width, height)

    def batches(start, count, window):
        sampler = SeededBatches(5, 3, seed=3, start=start, window=window, shape=shape)
        return list(islice(sampler, count))

    def padded(batches):
        shapes = [[shape(*entry) for entry in batch] for batch in batches]
        return sum(max(h for h, _ in batch) * max(w for _, w in batch) for batch in shapes)

    drawn, sorted_ = batches(0, 24, 1), batches(0, 24, 8)
    for first in range(0, 24, 8):
        of_window = [sorted(chain(*each[first : first + 8])) for each in (drawn, sorted_)]
        assert of_window[0] == of_window[1]
    assert padded(sorted_) < 0.85 * padded(drawn)
    assert drawn != sorted_
    assert batches(11, 13, 8) == sorted_[11:]


def test_repeat_factors_of_images():
    labels = np.zeros((100, 3), dtype=bool)
    labels[:50, 0] = labels[49:53, 1] = True  # half of the images, and 4 of them
    factors = repeat_factors(labels, 0.16)
    assert factors[49:53] == pytest.approx([2.0] * 4)  # sqrt(0.16 / 0.04)
    assert (np.delete(factors, range(49, 53)) == 1).all()
    assert (repeat_factors(labels, 0.0) == 1).all()
