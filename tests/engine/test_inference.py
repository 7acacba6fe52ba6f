"""detector.engine.inference: scores averaged over test passes."""

from types import SimpleNamespace

import torch
from torch import nn

from detector.engine.inference import predict
from detector.structures import Sample


class Echo(nn.Module):
    """Scores (R, 2): the x1 of each RoI, and the mean of the image; notes how it was called."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.9)

    def forward(self, images, rois, counts):
        assert images.shape[0] == 1
        assert counts.tolist() == [len(rois)]
        assert not torch.is_grad_enabled()
        scores = torch.stack([self.dropout(rois[:, 1]), images.mean().expand(len(rois))], dim=1)
        return SimpleNamespace(scores=lambda: scores)


def sample(value, boxes):
    return Sample(torch.full((3, 4, 6), value), boxes, torch.zeros(2), "a")


def test_the_mean_over_the_passes():
    boxes = torch.tensor([[1.0, 0, 2, 2], [3, 0, 4, 4]])
    loader = [("a", boxes, [sample(0.0, boxes), sample(1.0, boxes * 3)])]
    (result,) = predict(Echo().train(), loader, device=torch.device("cpu"))
    assert result.image_id == "a"
    assert result.proposals.equal(boxes)
    assert result.scores.equal(torch.tensor([[2.0, 0.5], [6.0, 0.5]]))


def test_an_image_without_proposals_has_no_scores():
    boxes = torch.zeros(0, 4)
    (result,) = predict(Echo(), [("a", boxes, [sample(0.0, boxes)])], device=torch.device("cpu"))
    assert result.scores.shape == (0, 2)


def test_gradients_are_on_again_between_images():
    boxes = torch.ones(1, 4)
    results = predict(Echo(), [("a", boxes, [sample(0.0, boxes)])] * 2, device=torch.device("cpu"))
    next(results)
    assert torch.is_grad_enabled()
