import torch

from detector.data.tiles import Tiling, cut_view, draw_tiles, tiles_of, to_picture, to_view


def test_tiles_cover_a_picture_and_the_last_is_all_of_it():
    tiles = Tiling(100, 0.25).boxes(height=230, width=320)
    covered = torch.zeros(230, 320, dtype=torch.bool)
    for x1, y1, x2, y2 in tiles[:-1].tolist():
        assert (x2 - x1, y2 - y1) == (100, 100)
        covered[y1:y2, x1:x2] = True
    assert covered.all()
    assert tiles[-1].tolist() == [0, 0, 320, 230]


def test_a_picture_no_larger_than_a_tile_is_not_cut():
    assert Tiling(100).boxes(100, 60).tolist() == [[0, 0, 60, 100]]


def test_a_thin_picture_is_cut_along_its_longer_side_alone():
    assert Tiling(100, 0.25).boxes(50, 150).tolist() == [[0, 0, 100, 50], [50, 0, 150, 50], [0, 0, 150, 50]]


def test_a_box_as_large_as_the_overlap_is_in_a_tile_wherever_it_is():
    tiling = Tiling(100, 0.25)
    tiles = tiling.boxes(400, 400)
    corner = torch.randint(0, 375, (500, 2), generator=torch.Generator().manual_seed(0))
    boxes = torch.cat([corner, corner + 25], dim=1).float()
    rows = tiles_of(boxes, tiles)
    assert (rows < len(tiles) - 1).all()
    own = tiles[rows]
    assert (boxes[:, :2] >= own[:, :2]).all()
    assert (boxes[:, 2:] <= own[:, 2:]).all()


def test_a_box_that_no_tile_holds_belongs_to_the_whole():
    tiles = Tiling(100).boxes(300, 300)
    assert tiles_of(torch.tensor([[10.0, 10, 250, 40]]), tiles).tolist() == [len(tiles) - 1]


def test_all_tiles_are_drawn_where_there_is_room():
    rows, weights = draw_tiles(5, 8, torch.Generator())
    assert rows.tolist() == list(range(5))
    assert weights.tolist() == [1] * 5


def test_sums_over_drawn_tiles_are_unbiased():
    values = torch.rand(21, generator=torch.Generator().manual_seed(0))
    sums = []
    for seed in range(4000):
        rows, weights = draw_tiles(21, 7, torch.Generator().manual_seed(seed))
        assert len(rows) == 7
        assert rows[weights == 1].tolist() == [20]
        sums.append((values[rows] * weights).sum())
    torch.testing.assert_close(torch.stack(sums).mean(), values.sum(), rtol=0.02, atol=0)


def test_boxes_move_into_a_view_and_back():
    image = torch.randint(0, 256, (3, 150, 400), dtype=torch.uint8)
    tiling = Tiling(100)
    tiles = tiling.boxes(150, 400)
    box = torch.tensor([[300.0, 50, 340, 100]])
    views = [cut_view(image, tiles, row, tiling) for row in range(len(tiles))]
    assert views[-1].shape == (3, 75, 200)  # at most twice the side of a tile
    assert to_view(box, tiles[-1], (75, 200)).tolist() == [[150, 25, 170, 50]]
    for tile, view in zip(tiles, views, strict=True):
        size = view.shape[1:]
        torch.testing.assert_close(to_picture(to_view(box, tile, size), tile, size), box)
    x1, y1, x2, y2 = to_view(box, tiles[-2], (100, 100)).int()[0].tolist()
    assert views[-2][:, y1:y2, x1:x2].equal(image[:, 50:100, 300:340])
