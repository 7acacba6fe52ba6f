import cv2
import numpy as np
import pytest

from detector.data.proposals import opencv
from detector.data.proposals.opencv import search_image


def noisy(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_the_largest_box_is_first():
    np.testing.assert_array_equal(search_image(noisy(50, 60))[0], [0, 0, 60, 50])


def test_the_boxes_do_not_depend_on_earlier_searches():
    image = cv2.GaussianBlur(noisy(80, 100), (0, 0), 4)
    first = search_image(image)
    assert len(first) > 20
    for seed in range(3):
        search_image(noisy(40, 50, seed))
        np.testing.assert_array_equal(search_image(image), first)


def test_an_opencv_without_ximgproc_is_named_with_the_remedy(monkeypatch):
    class Bare:
        __version__ = "4.0"

    installed = {"opencv-python": "4.0", "opencv-contrib-python-headless": "4.0"}
    monkeypatch.setattr(opencv, "cv2", Bare)
    monkeypatch.setattr(opencv, "package_version", installed.get)
    with pytest.raises(ImportError) as error:
        search_image(noisy(4, 4))
    assert "pip uninstall -y opencv-python opencv-contrib-python-headless\n" in str(error.value)
    assert "pip install opencv-contrib-python-headless" in str(error.value)
