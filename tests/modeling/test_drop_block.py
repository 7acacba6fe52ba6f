"""The concrete drop block: what it drops, how often, and what it learns."""

import pytest
import torch
from torch.nn.functional import conv2d

from detector.modeling.drop_block import ConcreteDropBlock, draw


def test_whole_blocks_of_all_channels_go_and_the_rest_is_scaled():
    torch.manual_seed(0)
    drop, x = ConcreteDropBlock(4, share=0.5, size=3), torch.ones(300, 4, 7, 7)
    y = drop(x)
    assert torch.equal(y, y[:, :1].expand_as(y))
    kept = (y[:, 0] > 0).float()  # (300, 7, 7)
    partly = (kept.sum(dim=(1, 2)) > 0) & (kept.sum(dim=(1, 2)) < 49)
    assert partly.sum() > 100
    torch.testing.assert_close(y[partly].mean(dim=(1, 2, 3)), torch.ones(int(partly.sum())))
    for image in kept[partly]:  # a dropped cell has a dropped 3 x 3 block, cut off at the border, around it
        padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
        blocks = padded.unfold(0, 3, 1).unfold(1, 3, 1).amax(dim=(2, 3)) == 0  # (9, 9), by center
        covered = torch.nn.functional.max_pool2d(blocks[None].float(), 3, 1, 1)[0, 1:-1, 1:-1]
        assert torch.equal(covered == 1, image == 0)


def test_testing_changes_nothing():
    drop, x = ConcreteDropBlock(4).eval(), torch.randn(2, 4, 5, 5)
    assert drop(x) is x


def test_a_roi_that_is_dropped_entirely_is_0():
    drop = ConcreteDropBlock(4, share=1.0, size=1)
    torch.nn.init.constant_(drop.shortcut.bias, 50.0)
    y = drop(torch.ones(3, 4, 5, 5))
    assert (y == 0).all()


def test_no_cell_is_a_center_more_often_than_the_limit():
    drop = ConcreteDropBlock(4, share=0.3, size=3)
    torch.nn.init.normal_(drop.shortcut.weight, std=50)
    probs = drop.probabilities(torch.randn(200, 4, 5, 5))
    assert probs.max().item() == pytest.approx(0.3 / 9)
    assert probs.min() < 0.01


@pytest.mark.parametrize("temperature", [0.01, 1.0])
def test_draws_have_the_given_probabilities_and_a_gradient(temperature):
    torch.manual_seed(0)
    probs = torch.tensor([0.05, 0.5, 0.9]).repeat(4000, 1).requires_grad_()
    drawn = draw(probs, temperature)
    assert set(drawn.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(drawn.mean(dim=0), torch.tensor([0.05, 0.5, 0.9]), rtol=0, atol=0.03)
    drawn.sum().backward()
    assert (probs.grad >= 0).all()
    assert (probs.grad.sum(dim=0) > 0).all()


def test_it_learns_to_drop_what_the_detector_relies_on():
    """A detector whose loss falls with the features of one corner: that corner is dropped in the end."""
    torch.manual_seed(0)
    drop = ConcreteDropBlock(4, share=0.9, size=1, temperature=0.5, width=16)
    x = torch.randn(64, 4, 5, 5) * 0.1
    x[:, 0, :2, :2] += 1  # where the telling features are
    optimizer = torch.optim.Adam(drop.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -(drop(x)[:, 0, :2, :2]).mean()  # the detector wants to see them
        loss.backward()
        optimizer.step()
    probs = drop.probabilities(x).mean(dim=(0, 1))
    assert probs[:2, :2].min() > 0.7
    assert probs[2:, 2:].max() < 0.5


def test_the_features_get_the_gradient_of_what_is_kept():
    drop, x = ConcreteDropBlock(2, share=0.5, size=1), torch.randn(6, 2, 5, 5, requires_grad=True)
    y = drop(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), y.detach())  # nothing by way of the probabilities


def test_an_even_block_is_refused():
    with pytest.raises(ValueError, match="size is 2, expected an odd number"):
        ConcreteDropBlock(4, size=2)


def test_the_block_of_mists_code_by_hand():
    """Conv, BatchNorm, ReLU, conv, BatchNorm, plus a 1 x 1 convolution; the sigmoid times the limit."""
    torch.manual_seed(0)
    drop, x = ConcreteDropBlock(4, width=6, norm="batch", bound="scale"), torch.randn(9, 4, 5, 5)
    assert drop.reduce.bias is None
    assert drop.shortcut.bias is None

    def normalized(y):
        return (y - y.mean(dim=(0, 2, 3), keepdim=True)) / (
            y.var(dim=(0, 2, 3), keepdim=True, unbiased=False) + 1e-5
        ).sqrt()

    hidden = normalized(conv2d(x, drop.reduce.weight, padding=1)).relu()
    logits = normalized(conv2d(hidden, drop.expand.weight, padding=1)) + conv2d(x, drop.shortcut.weight)
    torch.testing.assert_close(drop.probabilities(x), logits.sigmoid() * 0.3 / 9)


def test_the_initial_weights_of_mists_code():
    """He's for the fan-out, where the last two convolutions have two output maps, of which one is used."""
    torch.manual_seed(0)
    drop = ConcreteDropBlock(400, width=100, norm="batch")
    for layer, maps, side in ((drop.reduce, 100, 3), (drop.expand, 2, 3), (drop.shortcut, 2, 1)):
        assert layer.weight.std().item() == pytest.approx((2 / (maps * side**2)) ** 0.5, rel=0.1)


def test_all_rois_of_a_batch_can_share_one_factor():
    torch.manual_seed(0)
    drop, x = ConcreteDropBlock(4, share=0.5, rescale="batch"), torch.ones(50, 4, 7, 7)
    y = drop(x)
    factors = y[y > 0]
    torch.testing.assert_close(factors, factors[:1].expand_as(factors))
    assert y.mean().item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rois", [0, 1, 3])
def test_every_weight_gets_a_gradient_from_any_number_of_rois(rois):
    drop = ConcreteDropBlock(4, width=6, norm="batch", bound="scale", rescale="batch")
    drop(torch.randn(rois, 4, 5, 5)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in drop.parameters())
