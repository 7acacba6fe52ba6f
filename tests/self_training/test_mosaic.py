"""Mosaic: the boxes follow the pixels."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from detector.self_training.copy_paste import BoxedImage
from detector.self_training.mosaic import mosaic


def image_of(shade, height, width, *, complete=True):
    """Black, with an object at the left edge, reviewed in every second image, and one at the right."""
    image = torch.zeros(3, height, width, dtype=torch.uint8)
    boxes = torch.tensor([[0, 0, width // 4, height], [width // 2, height // 2, width, height]])
    for row, (x1, y1, x2, y2) in enumerate(boxes.tolist()):
        image[:, y1:y2, x1:x2] = shade + row
    reviewed = torch.tensor([shade in (20, 40), False])
    labels = torch.tensor([shade, shade + 1])
    return BoxedImage(image, boxes.float(), labels, reviewed, labels / 100, complete)


def mosaic_of(target, others, seed=0):
    return mosaic(target, iter(others).__next__, np.random.default_rng(seed))


SIZES = {20: (121, 161), 30: (60, 200), 40: (400, 200), 50: (30, 40)}


@pytest.mark.parametrize("seed", range(10))
def test_each_image_is_there_as_a_whole_in_its_shape_and_touches_the_center(seed):
    target, *others = (image_of(shade, *size) for shade, size in SIZES.items())
    made = mosaic_of(target, others, seed)
    assert made.image.shape == target.image.shape
    assert made.image.dtype == torch.uint8
    assert set(made.labels[:2].tolist()) == {20, 40}  # reviewed ones come first
    assert made.reviewed.tolist() == [True] * 2 + [False] * 6
    assert made.weights.equal(made.labels / 100)
    boxes = dict(zip(made.labels.tolist(), made.boxes.tolist(), strict=True))
    quarters = set()
    for shade, (height, width) in SIZES.items():
        for label in (shade, shade + 1):
            x1, y1, x2, y2 = boxes[label]
            assert (made.image[:, int(y1 + y2) // 2, int(x1 + x2) // 2] == label).all()
        left, top, right, bottom = map(round, [*boxes[shade][:2], boxes[shade + 1][2], boxes[shade][3]])
        assert (right - left) / (bottom - top) == pytest.approx(width / height, rel=0.05)
        assert right - left >= 80 or bottom - top >= 60  # as large as a quarter allows
        assert 80 in (left, right)
        assert 60 in (top, bottom)
        quarters.add((left == 80, top == 60))
    assert len(quarters) == 4


def test_it_is_complete_if_all_images_are():
    others = [image_of(shade, 40, 60) for shade in (30, 40, 50)]
    assert mosaic_of(image_of(20, 50, 50), others).complete
    assert not mosaic_of(image_of(20, 50, 50), [*others[:2], replace(others[2], complete=False)]).complete


def test_a_seed_decides_and_the_images_stay():
    target, others = image_of(20, 50, 50), [image_of(shade, 40, 60) for shade in (30, 40, 50)]
    before = target.image.clone()
    made = [mosaic_of(target, others, seed).image for seed in (1, 1, 2)]
    assert made[0].equal(made[1])
    assert not made[0].equal(made[2])
    assert target.image.equal(before)


def test_images_without_boxes_and_of_one_pixel():
    empty = image_of(20, 50, 50)
    fields = {name: getattr(empty, name)[:0] for name in ("boxes", "labels", "reviewed", "weights")}
    empty = replace(empty, **fields)
    assert mosaic_of(empty, [empty] * 3).boxes.shape == (0, 4)
    line = image_of(20, 1, 50)
    assert mosaic_of(line, []) is line
    assert mosaic_of(empty, [line] * 3).image.shape == (3, 50, 50)


def test_of_a_small_image_one_pixel_is_left():
    made = mosaic_of(image_of(20, 2, 2), [image_of(shade, 40, 40) for shade in (30, 40, 50)])
    assert made.image.shape == (3, 2, 2)
    assert made.boxes.shape == (8, 4)
