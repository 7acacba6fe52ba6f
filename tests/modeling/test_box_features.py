import pytest
import torch

from detector.modeling.box_features import BoxFeatures, DropCells, context_ring, enlarge_rois


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


@pytest.mark.parametrize("chunk", [1, 7, 20])
def test_chunks_give_the_same_features_and_gradients(chunk):
    torch.manual_seed(0)
    layer = BoxFeatures(8, 8, output_size=3, widths=(16, 12), dropout=0.0)
    features, corners = torch.randn(2, 8, 10, 12), torch.rand(20, 2) * 40
    rois = torch.cat([torch.arange(20)[:, None] % 2, corners, corners + 30], dim=1)
    upstream = torch.randn(20, 12)

    def run():
        inputs = features.clone(memory_format=torch.channels_last).requires_grad_()
        output = layer(inputs, rois)
        gradients = torch.autograd.grad(output, [inputs, *layer.parameters()], upstream)
        with torch.no_grad():
            return output.detach(), layer(inputs, rois), *gradients

    whole = run()
    layer.chunk = chunk
    torch.testing.assert_close(run(), whole)


def test_a_recomputed_chunk_drops_the_same_units():
    torch.manual_seed(0)
    layer = BoxFeatures(4, 8, output_size=2, widths=(64,), dropout=0.5, chunk=3)
    rois = torch.tensor([[0.0, 0, 0, 40, 40]]).expand(9, 5)
    output = layer(torch.rand(1, 4, 6, 6, requires_grad=True), rois)
    bias = layer.layers[0].bias
    (gradient,) = torch.autograd.grad(output.sum(), bias)
    torch.testing.assert_close(gradient, 2.0 * output.detach().count_nonzero(dim=0))  # of the units kept


def test_context_see_the_ring_around_a_proposal_alone():
    torch.manual_seed(0)
    layer = BoxFeatures(2, 8, pool="roi_align", output_size=7, widths=(6,), dropout=0.0, context=2.0)
    rois = torch.tensor([[0.0, 64, 64, 128, 128]])
    features = torch.zeros(1, 2, 24, 24)
    nothing = layer.context_features(features, rois)
    features[:, :, 10:14, 10:14] = 1  # well inside
    assert torch.equal(layer.context_features(features, rois), nothing)
    features[:, :, 5, 5] = 1  # in the corner of the ring
    assert not torch.equal(layer.context_features(features, rois), nothing)
    assert BoxFeatures(2, 8, output_size=2, widths=(6,)).context_features(features, rois) is None


def test_rois_are_enlarged_about_their_middles():
    rois = torch.tensor([[1.0, 10, 20, 30, 60]])
    assert enlarge_rois(rois, 1.5).tolist() == [[1, 5, 10, 35, 70]]


def test_the_ring_leaves_out_the_cells_whose_middle_is_inside():
    # Middles at 0, 2/7, 4/7, 6/7 of half the enlarged side, of which the proposal has 1 / 1.8 = 0.556
    expected = torch.ones(7, 7)
    expected[2:5, 2:5] = 0
    assert torch.equal(context_ring(7, 1.8), expected)


def test_a_ring_without_cells_is_refused():
    with pytest.raises(ValueError, match="context"):
        context_ring(7, 1.1)
    context_ring(7, 1.17)
