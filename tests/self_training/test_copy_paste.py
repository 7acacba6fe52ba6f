"""Copy-paste: the boxes follow the pixels."""

from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from detector.self_training.copy_paste import BoxedImage, paste_objects

SHADES = 50, 100, 150, 200  # of the objects of the other image


def other_image():
    """Gray objects in a row: of class 1, 2, 1 and 3; the second of class 1 is never pasted."""
    image = torch.zeros(3, 40, 80, dtype=torch.uint8)
    boxes = torch.tensor([[20.0 * i, 4, 20 * i + 16, 30] for i in range(4)])
    for shade, (x1, y1, x2, y2) in zip(SHADES, boxes.int().tolist(), strict=True):
        image[:, y1:y2, x1:x2] = shade
    labels, reviewed = torch.tensor([1, 2, 1, 3]), torch.tensor([True, False, False, False])
    return BoxedImage(image, boxes, labels, reviewed, labels / 10, True)


def without_boxes(image):
    fields = {name: getattr(image, name)[:0] for name in ("boxes", "labels", "reviewed", "weights")}
    return replace(image, **fields)


@pytest.mark.parametrize("seed", range(30))
def test_the_boxes_are_where_the_objects_are(seed):
    white = torch.full((3, 60, 60), 255, dtype=torch.uint8)
    own = {7: [0, 0, 60, 60], 8: [2, 2, 4, 4]}  # an object covers half of the larger one at most
    boxes, labels = torch.tensor(list(own.values())).float(), torch.tensor(list(own))
    target = BoxedImage(white, boxes, labels, torch.tensor([True, False]), labels / 10, True)
    made = paste_objects(target, other_image, np.random.default_rng(seed))
    assert (white == 255).all()
    assert made.reviewed.tolist() == [label in (7, 1) for label in made.labels.tolist()]
    assert made.reviewed.sort(descending=True, stable=True)[0].equal(made.reviewed)
    assert made.weights.equal(made.labels / 10)
    outside, pasted = torch.ones(60, 60, dtype=torch.bool), []
    for (x1, y1, x2, y2), label in zip(made.boxes.int().tolist(), made.labels.tolist(), strict=True):
        if label in own:
            assert own[label] == [x1, y1, x2, y2]
            continue
        part = made.image[:, y1:y2, x1:x2]
        assert part.numel() > 0
        assert (part == SHADES[[1, 2, None, 3].index(label)]).float().mean() >= 0.5
        assert (x2 - x1) * (y2 - y1) <= 0.51 * 60 * 60
        outside[y1:y2, x1:x2] = False
        pasted.append(label)
    assert len(pasted) in (1, 2)
    small = made.image[:, 2:4, 2:4]
    assert (8 in made.labels) == bool((small == 255).float().mean() >= 0.5)
    assert set(made.image[:, outside].unique().tolist()) <= {255, *SHADES}


def test_a_box_that_is_more_than_half_covered_goes():
    white = torch.full((3, 20, 20), 255, dtype=torch.uint8)
    boxes = torch.tensor([[float(x), y, x + 4, y + 4] for x in range(0, 20, 4) for y in range(0, 20, 4)])
    target = BoxedImage(
        white, boxes, torch.arange(10, 35), torch.zeros(25, dtype=torch.bool), torch.ones(25), False
    )
    gone = 0
    for seed in range(20):
        if np.random.default_rng(seed).integers(1, 3) == 2:
            continue  # two objects may cover more than half together
        made = paste_objects(target, other_image, np.random.default_rng(seed))
        parts = [made.image[:, y1:y2, x1:x2] for x1, y1, x2, y2 in boxes.int().tolist()]
        seen = {10 + i for i, part in enumerate(parts) if (part == 255).float().mean() >= 0.5}
        assert set(made.labels.tolist()) & set(range(10, 35)) == seen
        gone += 25 - len(seen)
    assert gone > 20


def test_a_seed_decides():
    first, again, another = (
        astuple(paste_objects(other_image(), other_image, np.random.default_rng(seed))) for seed in (1, 1, 2)
    )
    assert all(a.equal(b) for a, b in zip(first[:-1], again[:-1], strict=True))
    assert not first[0].equal(another[0])


def test_images_without_boxes_give_nothing():
    image = other_image()
    same = paste_objects(image, lambda: without_boxes(image), np.random.default_rng(0))
    assert all(a.equal(b) for a, b in zip(astuple(image)[:-1], astuple(same)[:-1], strict=True))
    made = paste_objects(without_boxes(image), other_image, np.random.default_rng(0))
    assert len(made.boxes) == len(made.labels) == len(made.reviewed) > 0


def test_an_image_of_one_pixel():
    pixel = torch.zeros(3, 1, 1, dtype=torch.uint8)
    made = paste_objects(
        without_boxes(replace(other_image(), image=pixel)), other_image, np.random.default_rng(0)
    )
    assert made.image.flatten().tolist() in [[shade] * 3 for shade in SHADES]
    assert made.boxes.tolist() == [[0, 0, 1, 1]]
