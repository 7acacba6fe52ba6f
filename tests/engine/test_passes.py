"""detector.engine.passes: scores and boxes averaged over test passes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from detector.engine.passes import predict
from detector.engine.precision import Precision
from detector.structures import Sample, Views, flip_boxes
from detector.utils.errors import UserError

CPU = torch.device("cpu")


class Echo(nn.Module):
    """Scores (R, 2): the x1 of each RoI, and the mean of its image; notes the sizes of its batches.

    Its deltas (R, 2, 4) move class 0 by `shift` tenths of the box's width to the right.
    """

    def __init__(self, shift=None):
        super().__init__()
        self.dropout = nn.Dropout(0.9)
        self.shift = shift
        self.batches = []

    def forward(self, images, rois, counts, sizes):
        assert rois[:, 0].long().bincount(minlength=len(images)).tolist() == counts.tolist()
        assert not torch.is_grad_enabled()
        self.batches.append(len(images))
        means = images.mean(dim=(1, 2, 3))[rois[:, 0].long()]
        scores = torch.stack([self.dropout(rois[:, 1]), means], dim=1)
        deltas = None
        if self.shift is not None:
            deltas = torch.zeros(len(rois), 2, 4)
            deltas[:, 0, 0] = self.shift * means
        return SimpleNamespace(scores=lambda: scores, deltas=deltas)


def sample(value, boxes, flipped=False):
    return Sample(torch.full((3, 16, 20), value), boxes, torch.zeros(2), "a", flipped)


def views(boxes, *samples):
    return Views("a", (40, 60), boxes, samples)


def test_the_mean_over_the_passes():
    boxes = torch.tensor([[1.0, 0, 2, 2], [3, 0, 4, 4]])
    loader = [views(boxes, sample(0.0, boxes), sample(1.0, boxes * 3))]
    (result,) = predict(Echo().train(), loader, device=CPU)
    assert result.image_id == "a"
    assert result.boxes.equal(torch.stack([boxes, boxes], dim=1))
    assert result.scores.equal(torch.tensor([[2.0, 0.5], [6.0, 0.5]]))


def test_the_proposals_of_all_tiles_are_those_of_the_image():
    boxes = torch.tensor([[1.0, 0, 2, 2], [3, 0, 4, 4]])
    tiles = [views(boxes[row : row + 1], sample(0.0, boxes[row : row + 1])) for row in (0, 1)]
    whole, cut = predict(Echo(), [views(boxes, sample(0.0, boxes)), tiles], device=CPU)
    assert cut.scores.equal(whole.scores)
    assert (whole.tiles, cut.tiles) == (1, 2)


def test_passes_of_one_size_go_through_the_model_together():
    boxes = torch.tensor([[1.0, 0, 2, 2], [3, 0, 4, 4]])
    small = replace(sample(4.0, boxes), image=torch.full((3, 16, 18), 4.0))
    model = Echo()
    (result,) = predict(model, [views(boxes, sample(0.0, boxes), sample(2.0, boxes), small)], device=CPU)
    assert model.batches == [2, 1]
    assert result.scores.equal(torch.tensor([[1.0, 2], [3, 2]]))


def test_the_model_computes_in_the_precision_asked_for():
    boxes, seen = torch.ones(1, 4), []
    model = Echo()
    model.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    for precision in (None, Precision("bf16", CPU)):
        next(predict(model, [views(boxes, sample(0.0, boxes))], device=CPU, precision=precision))
    assert seen == [False, True]


def test_boxes_move_by_the_mean_of_the_passes():
    boxes = torch.tensor([[10.0, 0, 20, 10], [30, 0, 34, 4]])
    loader = [views(boxes, sample(1.0, boxes), sample(0.5, boxes * 3))]
    (result,) = predict(Echo(shift=2.0), loader, device=CPU)
    torch.testing.assert_close(result.boxes[:, 0], boxes + torch.tensor([[1.5, 0, 1.5, 0], [0.6, 0, 0.6, 0]]))
    torch.testing.assert_close(result.boxes[:, 1], boxes)


def test_what_moves_right_in_a_flipped_image_moves_left():
    boxes = torch.tensor([[10.0, 0, 20, 10]])
    flipped = sample(1.0, flip_boxes(boxes, 60), flipped=True)
    (result,) = predict(Echo(shift=2.0), [views(boxes, flipped)], device=CPU)
    torch.testing.assert_close(result.boxes[:, 0], boxes - torch.tensor([[2.0, 0, 2, 0]]))
    (result,) = predict(Echo(shift=2.0), [views(boxes, sample(1.0, boxes), flipped)], device=CPU)
    torch.testing.assert_close(result.boxes[:, 0], boxes)


def test_moved_boxes_stay_in_the_image():
    boxes = torch.tensor([[50.0, 30, 60, 40]])
    (result,) = predict(Echo(shift=5.0), [views(boxes, sample(1.0, boxes))], device=CPU)
    assert result.boxes[0, 0].tolist() == [55, 30, 60, 40]


def test_an_image_without_proposals_has_no_scores():
    boxes = torch.zeros(0, 4)
    (result,) = predict(Echo(shift=1.0), [views(boxes, sample(0.0, boxes))], device=CPU)
    assert result.scores.shape == (0, 2)
    assert result.boxes.shape == (0, 2, 4)


def test_gradients_are_on_again_between_images():
    boxes = torch.ones(1, 4)
    results = predict(Echo(), [views(boxes, sample(0.0, boxes))] * 2, device=CPU)
    next(results)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("shift", [None, 1.0])
def test_scores_that_are_not_finite_name_the_image_and_the_precision(shift):
    boxes = torch.ones(1, 4)
    results = predict(Echo(shift), [views(boxes, sample(float("nan"), boxes))], device=CPU)
    with pytest.raises(UserError, match=r"not finite, in the image a; PRECISION is 'float32'.*bf16"):
        next(results)
