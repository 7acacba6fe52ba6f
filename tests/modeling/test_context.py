import pytest
import torch

from detector.modeling.context import enlarge_rois, ring


def test_rois_are_enlarged_about_their_middles():
    rois = torch.tensor([[1.0, 10, 20, 30, 60]])
    assert enlarge_rois(rois, 1.5).tolist() == [[1, 5, 10, 35, 70]]


def test_the_ring_leaves_out_the_cells_whose_middle_is_inside():
    # Middles at 0, 2/7, 4/7, 6/7 of half the enlarged side, of which the proposal has 1 / 1.8 = 0.556
    expected = torch.ones(7, 7)
    expected[2:5, 2:5] = 0
    assert torch.equal(ring(7, 1.8), expected)


def test_a_ring_without_cells_is_refused():
    with pytest.raises(ValueError, match=r"context is 1.1, expected at least 1.17: .* 7 x 7"):
        ring(7, 1.1)
    ring(7, 1.17)
