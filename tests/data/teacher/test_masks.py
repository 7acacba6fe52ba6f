"""The boxes around masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask as coco_mask

from detector.data.teacher.masks import mask_box
from detector.utils.errors import DataError


@given(st.integers(1, 12), st.integers(1, 12), st.floats(0.02, 0.9), st.integers(0, 1000))
def test_run_lengths_as_pycocotools_reads_them(height, width, share, seed) -> None:
    pixels = (np.random.default_rng(seed).random((height, width)) < share).astype(np.uint8)
    encoded = coco_mask.encode(np.asfortranarray(pixels))
    mask = {"size": [height, width], "counts": encoded["counts"].decode()}
    box, size = mask_box(mask)
    assert size == (height, width)
    x, y, w, h = coco_mask.toBbox(encoded).tolist()
    assert box == ((x, y, x + w, y + h) if pixels.any() else None)
    runs = np.diff(np.flatnonzero(np.diff(np.r_[2, pixels.T.ravel(), 2])), prepend=0)
    plain = [0, *runs[1:]] if pixels[0, 0] else runs[1:]
    assert mask_box({"size": [height, width], "counts": [int(each) for each in plain]}) == (box, size)
    if height > 1:
        assert mask_box(pixels.tolist()) == mask_box(pixels.astype(bool).tolist()) == (box, size)


def test_polygons_may_be_several() -> None:
    assert mask_box([[1, 2, 5, 2, 5, 9], [0, 3, 4, 3, 2, 4.5]]) == ((0, 2, 5, 9), None)
    assert mask_box([1, 2, 5, 2, 5, 9]) == ((1, 2, 5, 9), None)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"size": [4, 4], "counts": [3, 2]}, r"add up to 5 pixels, but its size \[4, 4\] has 16"),
        ({"size": [4, 4], "counts": [-1, 17]}, "add up to"),
        ({"size": [4, 4], "counts": "PP"}, "which end within a number"),
        ({"size": [4, 4], "counts": "\x10"}, "does not write"),
        ({"size": [4, 4], "counts": [0.5]}, "expected whole numbers or text"),
        ({"size": [4], "counts": []}, r"expected \[height, width\]"),
        ({"counts": "04"}, "the size None"),
        ([[1, 2, 3]], "expected run lengths"),
        ("mask", "expected run lengths"),
        ([], "expected run lengths"),
    ],
)
def test_what_is_no_mask(mask, message) -> None:
    with pytest.raises(DataError, match=message):
        mask_box(mask)
