import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.transforms.functional import InterpolationMode, resize

from detector.data.proposals import opencv, selective_search
from detector.data.proposals.selective_search import _resize
from detector.structures import box_iou

searches = pytest.mark.parametrize("search", [selective_search.search_image, opencv.search_image])


def noisy(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@searches
@pytest.mark.parametrize("mode", ["fast", "quality"])
@pytest.mark.parametrize(("height", "width"), [(120, 160), (500, 300)])
def test_it_boxes_an_object_in_pixels_of_the_original(search, mode, height, width):
    image = np.full((height, width, 3), (40, 120, 60), np.uint8)
    y1, y2, x1, x2 = height // 4, height // 2, width // 5, width // 2
    image[y1:y2, x1:x2] = (220, 40, 40)
    boxes = torch.from_numpy(search(image, mode=mode, longest_side=200))
    assert boxes.dtype == torch.float32
    truth = torch.tensor([[x1, y1, x2, y2]], dtype=torch.float32)
    whole = torch.tensor([[0, 0, width, height]], dtype=torch.float32)
    assert box_iou(truth, boxes).max() > 0.9
    assert whole.tolist()[0] in boxes.tolist()


@searches
@settings(deadline=None, max_examples=20)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 100), st.integers(0, 99))
def test_boxes_lie_in_the_image_and_differ(search, height, width, longest_side, seed):
    boxes = search(noisy(height, width, seed), mode="fast", longest_side=longest_side)
    assert len(boxes) >= 1
    x1, y1, x2, y2 = boxes.T
    assert (x1 >= 0).all()
    assert (y1 >= 0).all()
    assert (x1 < x2).all()
    assert (y1 < y2).all()
    assert (x2 <= width).all()
    assert (y2 <= height).all()
    assert len(np.unique(boxes, axis=0)) == len(boxes)


@searches
def test_red_and_blue_are_not_swapped(search):
    """In gray the two halves are one; their colors are equally bright only as RGB."""
    image = noisy(6, 8).repeat(10, axis=0).repeat(10, axis=1)
    assert not np.array_equal(search(image), search(image[..., ::-1].copy()))


@searches
def test_a_uniform_image_gives_one_box(search):
    np.testing.assert_array_equal(search(np.full((30, 50, 3), 7, np.uint8)), [[0, 0, 50, 30]])


@pytest.mark.parametrize("size", [(7, 9), (40, 3), (1, 1)])
def test_large_images_are_reduced_as_torchvision_does(size):
    planes = torch.randint(256, (3, 90, 70), generator=torch.Generator().manual_seed(0)).byte()
    expected = resize(planes, list(size), InterpolationMode.BICUBIC, antialias=True)
    assert torch.cat([_resize(plane, list(size)) for plane in planes]).equal(expected)
