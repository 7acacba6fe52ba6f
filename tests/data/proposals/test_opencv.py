import importlib.metadata

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.data.proposals import opencv
from detector.data.proposals.opencv import search_image
from detector.structures import box_iou


def noisy(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("mode", ["fast", "quality"])
@pytest.mark.parametrize(("height", "width"), [(120, 160), (500, 300)])
def test_it_boxes_an_object_in_pixels_of_the_original(mode, height, width):
    image = np.full((height, width, 3), (40, 120, 60), np.uint8)
    y1, y2, x1, x2 = height // 4, height // 2, width // 5, width // 2
    image[y1:y2, x1:x2] = (220, 40, 40)
    boxes = torch.from_numpy(search_image(image, mode=mode, longest_side=200))
    assert boxes.dtype == torch.float32
    truth = torch.tensor([[x1, y1, x2, y2]], dtype=torch.float32)
    whole = torch.tensor([[0, 0, width, height]], dtype=torch.float32)
    assert box_iou(truth, boxes).max() > 0.9
    assert torch.equal(boxes[:1], whole)  # largest first


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 100), st.integers(0, 99))
def test_boxes_lie_in_the_image_and_differ(height, width, longest_side, seed):
    boxes = search_image(noisy(height, width, seed), mode="fast", longest_side=longest_side)
    assert len(boxes) >= 1
    x1, y1, x2, y2 = boxes.T
    assert (x1 >= 0).all()
    assert (y1 >= 0).all()
    assert (x1 < x2).all()
    assert (y1 < y2).all()
    assert (x2 <= width).all()
    assert (y2 <= height).all()
    assert len(np.unique(boxes, axis=0)) == len(boxes)


def test_the_boxes_do_not_hang_on_what_was_searched_before():
    image = cv2.GaussianBlur(noisy(80, 100), (0, 0), 4)
    first = search_image(image)
    assert len(first) > 20
    for seed in range(3):
        search_image(noisy(40, 50, seed))
        np.testing.assert_array_equal(search_image(image), first)


def test_red_and_blue_are_not_swapped():
    """In gray the two halves are one; their colors are equally bright only as RGB."""
    image = cv2.GaussianBlur(noisy(60, 80), (0, 0), 3)
    assert not np.array_equal(search_image(image), search_image(image[..., ::-1].copy()))


def test_an_even_image_gives_one_box():
    np.testing.assert_array_equal(search_image(np.full((30, 50, 3), 7, np.uint8)), [[0, 0, 50, 30]])


@pytest.mark.parametrize(
    ("image", "keywords", "message"),
    [
        (np.zeros((4, 4), np.uint8), {}, r"uint8 \(H, W, 3\).*\(4, 4\)"),
        (np.zeros((3, 4, 4), np.uint8), {}, r"\(3, 4, 4\)"),
        (np.zeros((4, 4, 3), np.float32), {}, "float32"),
        (np.zeros((0, 4, 3), np.uint8), {}, "not empty"),
        (noisy(4, 4), {"mode": "slow"}, "'slow'"),
        (noisy(4, 4), {"longest_side": 0}, "longest_side"),
    ],
)
def test_bad_input(image, keywords, message):
    with pytest.raises(ValueError, match=message):
        search_image(image, **keywords)


def test_an_opencv_without_ximgproc_is_named_with_the_remedy(monkeypatch):
    class Bare:
        __version__ = "4.0"

    def version(name):
        if name in ("opencv-python", "opencv-contrib-python-headless"):
            return "4.0"
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(opencv, "cv2", Bare)
    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(ImportError) as error:
        search_image(noisy(4, 4))
    assert "pip uninstall -y opencv-python opencv-contrib-python-headless\n" in str(error.value)
    assert "pip install opencv-contrib-python-headless" in str(error.value)
