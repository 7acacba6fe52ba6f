import re

import numpy as np
import pytest
import torch

from detector.data.check import (
    Pixels,
    doubtful_classes,
    near_duplicates,
    odd_boxes,
    one_edit_apart,
    page_findings,
    read_all,
    sketch_gradients,
    tag_findings,
)
from detector.structures import Annotation
from detector.utils.errors import DataError


class Pictures:
    image_ids = ("a", "b", "c", "d")

    def read_image(self, index):
        if index == 1:
            raise DataError("image b cannot be read")
        shape = (3, 2, 4) if index == 3 else (3, 4, 2)
        return torch.full(shape, 7, dtype=torch.uint8)


def test_every_image_is_read_even_if_others_are_damaged():
    for threads in (0, 1, 3):
        a, b, c, d = read_all(Pictures(), threads)
        assert b.error == "image b cannot be read"
        assert a.error is c.error is d.error is None
        assert a.digest == c.digest != d.digest  # the same bytes, but another shape


def test_files_with_several_pages_are_named():
    readable = {"a": Pixels(None, b""), "b": Pixels(None, b"", pages=3)}
    (line,) = page_findings("mine_train", readable)
    assert line.startswith("mine_train: 1 file has several pages or frames, such as b (3): only the first")
    assert page_findings("mine_train", {"a": readable["a"]}) == []


def annotation_of(boxes, labels, crowd=False):
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    no, crowds = torch.zeros(len(boxes), dtype=torch.bool), torch.full((len(boxes),), crowd)
    return Annotation("a", boxes, torch.tensor(labels, dtype=torch.int64), no, crowds)


def test_odd_boxes():
    same = [[10, 10, 50, 50], [10, 10, 50, 51], [10, 10, 50, 50]]
    boxes = [[0, 0, 100, 99], [5, 5, 7, 20], [5, 5, 60, 10], *same]
    annotation = annotation_of(boxes, [0, 0, 0, 0, 0, 1])
    odd = odd_boxes(annotation, (100, 100), min_side=2)
    assert list(odd.values()) == [1, 1, 1, 1]
    assert list(odd) == [
        "with a side of at most 2 pixels, as no proposal has",
        "over 10 times as long as wide",
        "as large as the image",
        "on another of the same class",
    ]
    assert odd_boxes(annotation_of([], []), (100, 100), min_side=2) == {}


def test_crowds_are_not_odd():
    crowd = annotation_of([[0, 0, 100, 100]], [0], crowd=True)
    assert odd_boxes(crowd, (100, 100), min_side=2) == {}


def doubtful(images, total):
    """The messages about classes that so many of `total` images show; the others are known not to."""
    return doubtful_classes("set", {name: (n, total - n) for name, n in images.items()}, total)


def test_a_sound_set_gives_no_warning():
    assert doubtful({"car": 30, "cat": 12, "dog": 3, "plant": 9}, 40) == []
    assert doubtful({"cell": 30}, 40) == []  # one class, with images that do not show it


def test_classes_of_no_image_are_named_in_one_line():
    (line,) = doubtful({"cat": 5, "cow": 0, "whale": 0}, 9)
    assert "no image shows 'cow', 'whale'" in line
    assert "DATASETS.CLASSES" in line


@pytest.mark.parametrize("counts", [{"cell": 9}, {"cell": 9, "nucleus": 4}, {"cell": 9, "nucleus": 0}])
def test_a_class_of_every_image_is_named(counts):
    line = doubtful(counts, 9)[-1]
    assert "all 9 images show 'cell'" in line
    assert "add images that do not show it" in line


@pytest.mark.parametrize(
    ("rare", "frequent"),
    [("catt", "cat"), ("brid", "bird"), ("dg", "dog"), ("cow", "caw"), ("Cat", "cat"), ("bigcat", "big cat")],
)
def test_a_label_that_is_nearly_another_is_named(rare, frequent):
    for names in ((rare, frequent), (frequent, rare)):
        counts = {name: 1 if name == rare else 8 for name in names}
        (line,) = doubtful(counts, 20)
        assert f"class {rare!r}, in 1 of 20 images, differs" in line
        assert f"did you mean {frequent!r}?" in line


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("cat", "cart", True),
        ("cat", "at", True),
        ("cat", "ca", True),
        ("cat", "cta", True),
        ("cat", "act", True),
        ("cat", "cap", True),
        ("a", "", True),
        ("cat", "cat", False),
        ("", "", False),
        ("cat", "tac", False),
        ("cat", "cats!", False),
        ("abcd", "badc", False),
    ],
)
def test_one_edit(first, second, expected):
    assert one_edit_apart(first, second) is expected
    assert one_edit_apart(second, first) is expected


def test_a_class_that_is_nowhere_known_to_be_absent():
    (line,) = doubtful_classes("set", {"cat": (4, 0), "dog": (4, 3)}, 9)
    assert "known not to show 'cat'" in line


def test_many_classes_are_not_all_listed():
    (line,) = doubtful({f"{'ab'[i % 2] * (i + 1)}": 0 for i in range(0, 60, 5)}, 9)
    assert line.count("'") == 20
    assert "and 2 more" in line


def test_many_pairs_are_not_all_listed():
    lines = doubtful(dict.fromkeys(["cat", "Cat", "CAT", "c.at", "c a t", "ca-t"], 3), 9)
    assert len(lines) == 11
    assert "5 more pairs" in lines[-1]


def smooth_image(seed, size=(80, 120)):
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 6, 8, generator=generator) * 255
    return torch.nn.functional.interpolate(coarse, size=size, mode="bilinear")[0].round().byte()


def test_copies_are_found_in_other_sizes_and_brightness():
    first = [sketch_gradients(smooth_image(seed)) for seed in range(50)]
    copies = [smooth_image(7, (60, 90)), (smooth_image(20).float() * 0.8 + 20).byte(), smooth_image(99)]
    second = [sketch_gradients(image) for image in copies]
    assert near_duplicates(first, second) == [(7, 0), (20, 1)]
    assert near_duplicates([], second) == near_duplicates(first, []) == []


def test_textures_of_little_contrast_are_not_nearly_the_same():
    """They share the light of the camera, and else have nothing but grain."""
    grain = np.random.default_rng(0)
    rows, columns = np.mgrid[:120, :160]
    light = 140 + 20 * columns / 160 - 15 * rows / 120
    noise = [light + grain.normal(0, deviation, light.shape) for deviation in [6] * 40 + [12] * 40]
    images = [torch.from_numpy(each.clip(0, 255).astype(np.uint8)).expand(3, -1, -1) for each in noise]
    sketches = [sketch_gradients(image) for image in images]
    assert near_duplicates(sketches, sketches) == [(i, i) for i in range(80)]
    brighter = [sketch_gradients((image.float() * 1.1 + 5).byte()) for image in images]
    assert near_duplicates(sketches, brighter) == [(i, i) for i in range(80)]
    flat = [sketch_gradients(torch.full((3, 30, 40), value, dtype=torch.uint8)) for value in (0, 90)]
    assert near_duplicates(flat, flat) == []


def labels_of(*columns):
    """(N, C) bool from strings such as "1101", one a class."""
    return np.array([[letter == "1" for letter in column] for column in columns]).T


def test_balanced_tags_give_no_warning():
    assert tag_findings("set", labels_of("1" * 30 + "0" * 30, "0" * 30 + "1" * 30), ("cat", "dog")) == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            ("1" * 19 + "0" * 41, "0" * 19 + "1" * 41),
            r"fewer than 20 images show cat \(19\): .*or leave out these labels",
        ),
        (("1" * 55 + "0" * 5, "1" * 5 + "0" * 25 + "1" * 30), r"nearly all 60 images show cat \(55\): "),
        (("1" * 30 + "0" * 30,), r"cat is the only class: "),
        (("1" * 30 + "0" * 30, "1" * 30 + "0" * 30), r"always together are cat and dog: "),
        (
            ("1" * 600 + "0" * 150, "0" * 600 + "1" * 50 + "0" * 100),
            r"cat \(600\) far more often than dog \(50\): ",
        ),
    ],
)
def test_what_tags_will_do_to_the_result_is_said(columns, message):
    (line,) = tag_findings("set", labels_of(*columns), ("cat", "dog")[: len(columns)])
    assert re.search(message, line)
