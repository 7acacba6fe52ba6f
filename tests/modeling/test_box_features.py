import pytest
import torch

from detector.modeling.box_features import BoxFeatures, DropCells


@pytest.mark.parametrize("pool", ["roi_pool", "roi_align"])
def test_shapes(pool):
    model = BoxFeatures(6, 8, pool=pool, output_size=3, widths=(10, 12))
    rois = torch.tensor([[0.0, 0, 0, 32, 16], [1.0, 8, 8, 40, 40]])
    assert model(torch.randn(2, 6, 6, 8), rois).shape == (2, 12)
    assert model(torch.randn(2, 6, 6, 8), rois[:0]).shape == (0, 12)
    assert model.out_features == 12


def test_unknown_pool():
    with pytest.raises(ValueError, match="pool is 'max', expected 'roi_pool' or 'roi_align'"):
        BoxFeatures(6, 8, pool="max")


def test_drop_cells():
    torch.manual_seed(0)
    drop, x = DropCells(0.25), torch.ones(500, 3, 4, 4)
    y = drop(x)
    torch.testing.assert_close(y.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert torch.equal(y, y[:, :1].expand_as(y))  # all channels of a cell at once
    assert y.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(drop.eval()(x), x)
