"""detector.layers.selective_search beside a reference in Python, and on images that are hard to search."""

import numpy as np
import pytest
import selective_search_reference as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.layers import selective_search
from detector.layers.selective_search import COLOR_SPACES, FAST, MEASURES, QUALITY, SearchStrategy


def make_image(height: int, width: int, seed: int, noise: float = 6) -> np.ndarray:
    """Rectangles of a few colors, with noise: regions of all sizes."""
    rng = np.random.default_rng(seed)
    image = np.full((height, width, 3), rng.integers(0, 256, 3))
    for _ in range(4):
        y, x = rng.integers(0, height), rng.integers(0, width)
        image[y : y + height // 2, x : x + width // 2] = rng.integers(0, 256, 3)
    return np.clip(image + rng.normal(0, noise, image.shape), 0, 255).astype(np.uint8)


def as_tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)  # strided: not contiguous


@settings(deadline=None, max_examples=25)
@given(
    height=st.integers(1, 14),
    width=st.integers(1, 14),
    seed=st.integers(0, 2**31),
    strategies=st.lists(
        st.tuples(
            st.sampled_from(COLOR_SPACES),
            st.sampled_from([0, 1, 20, 200]),
            st.lists(st.sampled_from(MEASURES), min_size=1, max_size=4, unique=True).map(tuple),
        ),
        min_size=1,
        max_size=3,
    ),
    min_size=st.sampled_from([0, 2, 9]),
)
def test_equal_boxes_as_the_reference(
    height: int, width: int, seed: int, strategies: list[tuple], min_size: int
) -> None:
    image = make_image(height, width, seed)
    [boxes] = selective_search([as_tensor(image)], strategies, min_size=min_size, seed=seed)
    assert [tuple(box) for box in boxes.int().tolist()] == reference.search(image, strategies, min_size, seed)


@settings(deadline=None, max_examples=60)
@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    noise=st.sampled_from([0, 2, 6, 60]),
    seed=st.integers(0, 2**31),
    ks=st.lists(st.sampled_from([0, 1, 5, 20, 100, 150, 450, 100_000]), min_size=2, max_size=5, unique=True),
    min_size=st.sampled_from([0, 4, 100]),
)
def test_scales_of_a_color_space_are_searched_together_as_alone(
    height: int, width: int, noise: int, seed: int, ks: list[int], min_size: int
) -> None:
    image = as_tensor(make_image(height, width, seed, noise))
    strategies = [SearchStrategy("lab", k) for k in ks]
    [together] = selective_search([image], strategies, min_size=min_size)
    alone = [selective_search([image], [strategy], min_size=min_size)[0] for strategy in strategies]
    assert torch.equal(together.unique(dim=0), torch.cat(alone).unique(dim=0))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99), st.sampled_from([FAST, QUALITY]))
def test_boxes_lie_in_the_image_and_differ(height: int, width: int, seed: int, strategies: tuple) -> None:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    [boxes] = selective_search([as_tensor(noise)], strategies, min_size=0, seed=seed)
    x1, y1, x2, y2 = boxes.T
    assert boxes.dtype == torch.float32
    assert ((x1 >= 0) & (y1 >= 0) & (x1 < x2) & (y1 < y2) & (x2 <= width) & (y2 <= height)).all()
    assert len(boxes.unique(dim=0)) == len(boxes)
    assert [0, 0, width, height] in boxes.tolist()


def test_an_object_gets_its_box() -> None:
    image = torch.full((3, 60, 80), 90, dtype=torch.uint8)
    image[0, 10:40, 20:50] = 220
    [boxes] = selective_search([image], FAST)
    assert [20, 10, 50, 40] in boxes.tolist()


def test_max_boxes_takes_the_first() -> None:
    image = as_tensor(make_image(60, 80, 3))
    [every] = selective_search([image], FAST, min_size=5)
    [first] = selective_search([image], FAST, min_size=5, max_boxes=10)
    assert len(every) > 10
    assert torch.equal(first, every[:10])


def test_the_seed_changes_the_order_only() -> None:
    image = as_tensor(make_image(60, 80, 3))
    [a], [b] = (selective_search([image], FAST, min_size=5, seed=seed) for seed in (0, 1))
    assert not torch.equal(a, b)
    assert torch.equal(a.unique(dim=0), b.unique(dim=0))


def test_batches_and_threads_change_nothing() -> None:
    images = [as_tensor(make_image(30 + i, 50 - i, i)) for i in range(7)]
    alone = [selective_search([image], FAST)[0] for image in images]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        together = selective_search(images, FAST)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (2, 2), (90, 120)])
def test_an_even_image_has_one_box(size: tuple[int, int]) -> None:
    for value in (0, 255):
        [boxes] = selective_search([torch.full((3, *size), value, dtype=torch.uint8)])
        assert boxes.tolist() == [[0, 0, size[1], size[0]]]


def test_a_gray_image_is_searched_as_rgb_of_equal_planes() -> None:
    gray = as_tensor(make_image(40, 50, 0))[:1]
    [boxes], [expected] = selective_search([gray], FAST), selective_search([gray.repeat(3, 1, 1)], FAST)
    assert torch.equal(boxes, expected)


def test_no_images() -> None:
    assert selective_search([]) == []


IMAGE = torch.zeros(3, 4, 4, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("image", "options", "error", "message"),
    [
        (IMAGE.float(), {}, RuntimeError, r"images\[0\] is Float"),
        (IMAGE.short(), {}, RuntimeError, r"images\[0\] is Short"),  # 16 bits
        (IMAGE[0], {}, RuntimeError, r"shape \(4, 4\)"),
        (IMAGE[:2], {}, RuntimeError, r"shape \(2, 4, 4\)"),
        (IMAGE[:, :0], {}, RuntimeError, r"shape \(3, 0, 4\)"),
        (IMAGE[:, :1, :1].expand(3, 20000, 20000), {}, RuntimeError, "16777216 pixels"),
        (IMAGE[:, :1, :1].expand(3, 1, 40000), {}, RuntimeError, "32767 a side"),
        (IMAGE.to("meta"), {}, RuntimeError, "on meta"),
        (IMAGE, {"strategies": []}, RuntimeError, "strategies"),
        (IMAGE, {"strategies": [SearchStrategy("luv", 50)]}, ValueError, "'luv'"),
        (IMAGE, {"strategies": [SearchStrategy("lab", 50, ("shape",))]}, ValueError, "'shape'"),
        (IMAGE, {"strategies": [SearchStrategy("lab", 50, ())]}, RuntimeError, r"strategies\[0\]"),
        (IMAGE, {"strategies": [SearchStrategy("lab", -1)]}, RuntimeError, r"strategies\[0\]"),
        (IMAGE, {"min_size": -1}, RuntimeError, "min_size is -1"),
        (IMAGE, {"max_boxes": -1}, RuntimeError, "max_boxes is -1"),
        (IMAGE, {"max_boxes": 0}, RuntimeError, "max_boxes is 0"),
    ],
)
def test_bad_input(image: torch.Tensor, options: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        selective_search([image], **options)


def test_fake_tensors_have_unknown_numbers_of_boxes() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        images = [mode.from_tensor(IMAGE)] * 2
        boxes = torch.ops.detector.selective_search(images, [0, 50, 15], 50, 0, 0)
    assert [box.shape[1] for box in boxes] == [4, 4]
    assert all(isinstance(box.shape[0], torch.SymInt) for box in boxes)
