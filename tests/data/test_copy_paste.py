"""Copy-paste: the boxes follow the pixels."""

import numpy as np
import pytest
import torch

from detector.data.copy_paste import paste_objects

SHADES = 50, 100, 150, 200  # of the objects of the other image


def other_image():
    """Gray objects in a row: of class 1, 2, 1 and 3; the second of class 1 is never pasted."""
    image = torch.zeros(3, 40, 80, dtype=torch.uint8)
    boxes = torch.tensor([[20.0 * i, 4, 20 * i + 16, 30] for i in range(4)])
    for shade, (x1, y1, x2, y2) in zip(SHADES, boxes.int().tolist(), strict=True):
        image[:, y1:y2, x1:x2] = shade
    return image, boxes, torch.tensor([1, 2, 1, 3])


@pytest.mark.parametrize("seed", range(30))
def test_the_boxes_are_where_the_objects_are(seed):
    image = torch.full((3, 60, 60), 255, dtype=torch.uint8)
    boxes, labels = torch.tensor([[0.0, 0, 60, 60], [2, 2, 4, 4]]), torch.tensor([7, 8])
    pasted, new_boxes, new_labels, kept = paste_objects(
        image, boxes, labels, other_image, np.random.default_rng(seed)
    )
    assert (image == 255).all()
    assert kept.tolist() == [True, (pasted[:, 2:4, 2:4] == 255).float().mean() >= 0.5]
    count = int(kept.sum())
    assert new_labels[:count].equal(labels[kept])
    assert new_boxes[:count].equal(boxes[kept])
    assert len(new_boxes) - count in (1, 2)
    for (x1, y1, x2, y2), label in zip(
        new_boxes[count:].int().tolist(), new_labels[count:].tolist(), strict=True
    ):
        shade = SHADES[[1, 2, None, 3].index(label)]
        part = pasted[:, y1:y2, x1:x2]
        assert part.numel() > 0
        assert (part == shade).float().mean() >= 0.5  # the second may cover a part of the first
        assert (x2 - x1) * (y2 - y1) <= 0.51 * 60 * 60
    outside = torch.ones(60, 60, dtype=torch.bool)
    for x1, y1, x2, y2 in new_boxes[count:].int().tolist():
        outside[y1:y2, x1:x2] = False
    assert set(pasted[:, outside].unique().tolist()) <= {255, *SHADES}


def test_a_seed_decides():
    image, boxes, labels = other_image()
    first, again, another = (
        paste_objects(image, boxes, labels, other_image, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert not first[0].equal(another[0])


def test_images_without_boxes_give_nothing():
    image, boxes, labels = other_image()
    empty = image, boxes[:0], labels[:0]
    pasted, new_boxes, _, kept = paste_objects(image, boxes, labels, lambda: empty, np.random.default_rng(0))
    assert pasted.equal(image)
    assert new_boxes.equal(boxes)
    assert kept.all()
    pasted, new_boxes, new_labels, kept = paste_objects(*empty, other_image, np.random.default_rng(0))
    assert len(new_boxes) == len(new_labels) > 0
    assert len(kept) == 0
