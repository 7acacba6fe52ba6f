import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from detector.data.loader import make_views
from detector.data.transforms import TestTransform, TrainTransform, flip, resize, resized_size
from detector.structures import Sample


def sample(height=40, width=60, boxes=((0, 0, 60, 40), (10, 5, 30, 20))):
    generator = torch.Generator().manual_seed(0)
    return Sample(
        image=torch.randint(256, (3, height, width), dtype=torch.uint8, generator=generator),
        proposals=torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        labels=torch.tensor([1.0, 0.0]),
        image_id="a",
    )


@pytest.mark.parametrize(
    ("size", "side", "max_size", "expected"),
    [
        (80, "shortest", 1000, (80, 120)),
        (80, "longest", 1000, (53, 80)),
        (80, "shortest", 90, (60, 90)),
        (200, "longest", 90, (60, 90)),
        (20, "shortest", 1000, (20, 30)),
    ],
)
def test_sizes_by_hand(size, side, max_size, expected):
    assert resized_size(40, 60, size, side, max_size) == expected
    assert resized_size(60, 40, size, side, max_size) == expected[::-1]


@given(
    height=st.integers(1, 3000),
    width=st.integers(1, 3000),
    size=st.integers(1, 1500),
    max_size=st.integers(1, 2000),
    side=st.sampled_from(["shortest", "longest"]),
)
def test_sizes_keep_their_promises(height, width, size, max_size, side):
    new_height, new_width = resized_size(height, width, size, side, max_size)
    assert min(new_height, new_width) >= 1
    assert max(new_height, new_width) <= max_size
    named = min if side == "shortest" else max
    assert named(new_height, new_width) <= size
    capped = max(new_height, new_width) == max_size
    assert capped or named(new_height, new_width) == size
    # The shape is kept to half a pixel a side.
    scale = min(size / named(height, width), max_size / max(height, width))
    assert abs(new_height - height * scale) <= 0.5 or new_height == 1
    assert abs(new_width - width * scale) <= 0.5 or new_width == 1


def test_boxes_scale_by_the_exact_ratios():
    # 41 x 60 to shortest 20: 20 x 29 pixels, ratios 20/41 and 29/60.
    result = resize(sample(41, 60, [(0, 0, 60, 41), (6, 8.2, 30, 41)]), 20, "shortest", 100)
    assert result.image.shape == (3, 20, 29)
    assert torch.allclose(result.proposals, torch.tensor([[0, 0, 29, 20], [2.9, 4, 14.5, 20]]))
    assert (result.image_id, result.labels.tolist()) == ("a", [1, 0])


@pytest.mark.parametrize("size", [13, 25, 100])
def test_pixels_are_those_of_pillow_to_one_level(size):
    original = sample()
    image = resize(original, size, "shortest", 1000).image
    height, width = image.shape[1:]
    pillow = Image.fromarray(original.image.permute(1, 2, 0).numpy()).resize((width, height), Image.BILINEAR)
    assert image.dtype == torch.uint8
    assert np.abs(image.permute(1, 2, 0).numpy().astype(int) - np.asarray(pillow)).max() <= 1


def test_no_proposals_stay_none():
    result = flip(resize(sample(boxes=[]), 20, "shortest", 100))
    assert result.proposals.shape == (0, 4)


def test_flip_moves_boxes_with_pixels():
    original = sample()
    original.image[:, 5:20, 10:30] = 0
    flipped = flip(original)
    x1, y1, x2, y2 = (int(side) for side in flipped.proposals[1])
    assert (x1, y1, x2, y2) == (30, 5, 50, 20)
    assert flipped.image[:, y1:y2, x1:x2].max() == 0
    again = flip(flipped)
    assert torch.equal(again.image, original.image)
    assert torch.equal(again.proposals, original.proposals)


def train_transform(**changes):
    options = {"sizes": (20, 30, 50), "side": "shortest", "max_size": 200, "flip": True}
    return TrainTransform(**{**options, **changes})


def test_train_transform_is_a_function_of_the_generator():
    original, transform = sample(), train_transform()
    before = original.image.clone()
    first = transform(original, torch.Generator().manual_seed(7))
    second = transform(original, torch.Generator().manual_seed(7))
    assert torch.equal(first.image, second.image)
    assert torch.equal(first.proposals, second.proposals)
    assert first.image.dtype == torch.uint8
    assert torch.equal(original.image, before)  # the input is left alone


def test_train_transform_draws_sizes_and_flips_evenly():
    original, transform = sample(), train_transform()
    seen = []
    for seed in range(300):
        result = transform(original, torch.Generator().manual_seed(seed))
        x1, _, x2, _ = result.proposals[1].tolist()
        seen.append((result.image.shape[1], x1 + x2 > result.image.shape[2]))
    for size in (20, 30, 50):
        assert 70 < sum(height == size for height, _ in seen) < 130
        assert 25 < sum(height == size and flipped for height, flipped in seen) < 75


def test_train_transform_without_flip_keeps_the_sizes_drawn():
    original = sample()
    for seed in range(20):
        result = train_transform(flip=False)(original, torch.Generator().manual_seed(seed))
        flipped = train_transform()(original, torch.Generator().manual_seed(seed))
        assert result.proposals[1, :2].tolist() == pytest.approx(
            [10 * result.image.shape[2] / 60, result.image.shape[1] / 8]
        )
        assert result.image.shape == flipped.image.shape


def test_test_transform_is_the_pass_it_names():
    original = sample()
    passes = [TestTransform(20, "shortest", 200, flip) for flip in (False, True)]
    plain, flipped = make_views(original, passes).samples
    assert plain.image.shape == (3, 20, 30)
    assert torch.equal(plain.image, resize(original, 20, "shortest", 200).image)
    assert torch.equal(flipped.image, plain.image.flip(2))
    assert flipped.proposals.tolist() == [[0, 0, 30, 20], [15, 2.5, 25, 10]]
