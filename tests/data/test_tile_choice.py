import pytest

from detector.data.tile_choice import choose_tile, tile_findings


@pytest.mark.parametrize(
    ("longest", "sides", "size", "expected"),
    [
        (640, [10.0], 640, 0),  # it is not reduced
        (4000, [30.0] * 4, 640, 608),  # 32 pixels of the input: 30 * 640 / 600
        (4000, [30.0, 300, 300, 300, 300], 640, 0),  # only a fifth of the objects are small
        (4000, [2.0], 640, 160),  # enlarged four times at most
        (4000, [], 640, 672),  # a sixth, but no less than the input
        (2000, [], 640, 0),
        (20000, [], 640, 3360),
    ],
)
def test_tiles_are_as_large_as_the_smaller_objects_allow(longest, sides, size, expected):
    assert choose_tile(longest, sides, size) == expected


def test_objects_that_are_too_small_are_told_with_what_helps():
    (line,) = tile_findings("mine", 4000, [30.0], 640, tile=0)
    assert "fewer than 5 pixels" in line
    assert "set INPUT.TILE 608" in line
    assert tile_findings("mine", 4000, [30.0], 640, tile=600) == []
    (line,) = tile_findings("mine", 4000, [2.0], 640, tile=160)
    assert "fewer than 8 pixels" in line
    assert "raise INPUT.TRAIN_SIZES" in line
    (line,) = tile_findings("mine", 4000, [], 640, tile=0)
    assert "4000 pixels long" in line
    assert tile_findings("mine", 4000, [], 640, tile=640) == []
    assert tile_findings("mine", 600, [5.0], 640, tile=0) == []  # no tile helps, and init tells
