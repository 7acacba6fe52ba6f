import numpy as np

from detector.data.proposals.tiled import TiledSearch
from detector.data.tiles import Tiling


def bright_boxes(image: np.ndarray) -> np.ndarray:
    """One box around all bright pixels."""
    rows, columns = np.nonzero(image[:, :, 0] > 128)
    if not len(rows):
        return np.zeros((0, 4), np.float32)
    return np.array([[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]], np.float32)


def test_an_object_in_the_overlap_is_found_once_and_not_cut():
    image = np.zeros((100, 175, 3), np.uint8)
    image[40:60, 80:95] = 255  # in both tiles, 0 to 100 and 75 to 175
    found = TiledSearch(bright_boxes, Tiling(100, 0.25))(image)
    assert found.tolist() == [[80, 40, 95, 60]]


def test_an_object_larger_than_a_tile_is_found_in_the_whole():
    image = np.zeros((100, 175, 3), np.uint8)
    image[40:60, 20:160] = 255
    found = TiledSearch(bright_boxes, Tiling(100, 0.25))(image)
    assert found.tolist() == [[20, 40, 160, 60]]


def test_a_small_picture_is_searched_as_without_tiles():
    image = np.zeros((80, 80, 3), np.uint8)
    image[10:20, 0:80] = 255
    assert TiledSearch(bright_boxes, Tiling(100))(image).tolist() == [[0, 10, 80, 20]]
