"""data/padding.py: long images that enlarge the batches of all others."""

from pathlib import Path

import pytest

from detector.data.padding import padding_findings


class Sized:
    name = "mine"

    def __init__(self, *sizes):
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def image_size(self, index):
        return self.sizes[index]

    def image_path(self, index):
        return Path(f"{index}.jpg")


USUAL = ((300, 400), (400, 300), (300, 300))


def test_strips_are_named_with_what_helps():
    (line,) = padding_findings(Sized(*USUAL, (5, 700), (700, 5)), 300, "shortest", 2000)
    assert line.startswith("mine: 2 images are over 4 times as long as wide or high, 3.jpg, 4.jpg: padded ")
    assert "up to 25 times the pixels" in line  # 2000 x 2000 in place of 400 x 400
    assert line.endswith("or set INPUT.MAX_SIZE 400")
    assert not padding_findings(Sized(*USUAL, (5, 700), (700, 5)), 300, "shortest", 400)


@pytest.mark.parametrize(
    ("sizes", "side"),
    [
        (USUAL, "shortest"),
        ((*USUAL, (300, 1000)), "shortest"),  # a panorama, with less than three times the pixels
        ((*USUAL, (5, 700)), "longest"),  # which bounds both sides
        (((5, 700), (5, 700), (300, 400)), "shortest"),  # not a few
        (((5, 700),), "shortest"),
    ],
)
def test_nothing_is_said_where_padding_costs_little(sizes, side):
    assert padding_findings(Sized(*sizes), 300, side, 2000) == []
