import math
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from detector.modeling.criterion import Criterion, mil_loss
from detector.modeling.head import HeadOutputs
from detector.modeling.refinement import Refinement
from detector.modeling.regression import RegressionLoss, RegressionOutputs, StreamRegressionLoss, box_loss
from detector.structures import Batch


def test_mil_loss_by_hand():
    mil = torch.tensor([[0.3, 0.1], [0.4, 0.1], [0.25, 0.5]])
    labels, counts = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([2, 1])
    per_class = [-math.log(0.7), -math.log(0.8), -math.log(0.75), -math.log(0.5)]
    assert mil_loss(mil, labels, counts).item() == pytest.approx(sum(per_class) / 4)
    assert mil_loss(mil, labels, counts, "sum").item() == pytest.approx(sum(per_class) / 2)


def test_an_unknown_class_has_no_loss_and_others_keep_theirs():
    mil = torch.tensor([[0.3, 0.1], [0.4, 0.1]])
    labels, counts, unknown = torch.tensor([[1.0, 0.0]]), torch.tensor([2]), torch.tensor([[False, True]])
    assert mil_loss(mil, labels, counts, unknown=unknown).item() == pytest.approx(-math.log(0.7) / 2)
    assert mil_loss(mil, labels, counts, "sum", unknown).item() == pytest.approx(-math.log(0.7))


@pytest.mark.parametrize("known", [True, False])
def test_no_loss_has_a_gradient_for_an_unknown_class(make_batch, known):
    batch = make_batch([[1, 0, 1], [0, 0, 1]], [6, 5])
    unknown = torch.tensor([[False, True, False], [False, False, False]])
    batch = replace(batch, unknown=None if known else unknown)
    logits = torch.randn(2, 11, 4, requires_grad=True)
    branch, mil = torch.randn(11, 4, requires_grad=True), torch.rand(11, 3).div(9).requires_grad_()
    image = torch.randn(2, 3, requires_grad=True)
    background = torch.full((11, 1), 0.01)
    regression = RegressionOutputs(branch, torch.randn(11, 3, 4))
    outputs = HeadOutputs(mil, logits.softmax(dim=2), image, regression, background)
    criterion = Criterion(
        Refinement("oicr"), stream_weights=(1, 1), regression=RegressionLoss(Refinement("oicr"))
    )
    sum(criterion(outputs, batch).values()).backward()
    of_first, of_second = slice(0, 6), slice(6, 11)
    for gradient, column in ((logits.grad[0], 2), (logits.grad[1], 2), (branch.grad, 2), (mil.grad, 1)):
        # Through a softmax and its renormalization the gradient is 0 up to rounding.
        assert (gradient[of_first, column].abs().max() > 1e-6) == known
        assert gradient[of_first].any()
        assert gradient[of_second, column].any()
    assert (image.grad[0, 1] != 0) == known
    assert image.grad[1].all()


def test_saturated_scores_stay_finite():
    mil = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = mil_loss(mil, torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-6), rel=1e-2)
    assert torch.isfinite(mil.grad).all()


def test_scores_that_are_not_numbers_give_a_loss_that_is_none():
    """Of the loss that is not finite, the training loop names the step."""
    mil = torch.tensor([[0.3, torch.nan]], requires_grad=True)
    assert mil_loss(mil, torch.tensor([[1.0, 0.0]]), torch.tensor([1])).isnan()


def test_an_image_without_proposals_adds_nothing():
    mil, labels = torch.tensor([[0.3, 0.1]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    both = mil_loss(mil, labels, torch.tensor([1, 0]))
    torch.testing.assert_close(both, mil_loss(mil, labels[:1], torch.tensor([1])) / 2)


def test_each_stream_learns_from_the_one_before(make_batch):
    batch, seen = make_batch([[1, 0]], [4]), []

    refinement = SimpleNamespace(
        clusters=lambda sources, _batch: seen.append(sources), loss=lambda probs, *_: probs.sum(dim=(1, 2))
    )
    streams = torch.rand(3, 4, 3, requires_grad=True)
    outputs = HeadOutputs(torch.rand(4, 2), streams)
    losses = Criterion(refinement, stream_weights=(3, 1, 1))(outputs, batch)
    assert list(losses) == ["mil", "refine_1", "refine_2", "refine_3"]
    assert torch.equal(seen[0], torch.stack([outputs.mil, streams[0, :, 1:], streams[1, :, 1:]]))
    assert not seen[0].requires_grad
    torch.testing.assert_close(losses["refine_1"], 3 * streams[0].sum())


def test_without_a_refinement_there_is_only_the_mil_loss(make_batch):
    outputs = HeadOutputs(torch.rand(4, 2), torch.empty(0, 4, 3))
    assert list(Criterion(None)(outputs, make_batch([[1, 0]], [4]))) == ["mil"]


@pytest.mark.parametrize("regression", [RegressionLoss(Refinement("oicr")), StreamRegressionLoss()])
def test_a_loss_of_boxes_that_the_model_does_not_regress_is_refused(make_batch, regression):
    outputs = HeadOutputs(torch.full((2, 2), 0.1), torch.rand(1, 2, 3))
    with pytest.raises(ValueError, match="the model regresses none"):
        Criterion(Refinement("oicr"), stream_weights=(1,), regression=regression)(
            outputs, make_batch([[1, 0]], [2])
        )


def test_a_loss_of_streams_needs_streams():
    with pytest.raises(ValueError, match="StreamRegressionLoss needs refinement streams"):
        Criterion(None, regression=StreamRegressionLoss())


def test_a_weight_for_each_stream(make_batch):
    outputs = HeadOutputs(torch.rand(4, 2), torch.rand(1, 4, 3))
    with pytest.raises(ValueError, match="longer"):
        Criterion(Refinement("oicr"), stream_weights=(1, 1))(outputs, make_batch([[1, 0]], [4]))


def test_a_background_class_counts_as_one_that_no_image_shows(make_batch):
    outputs = HeadOutputs(
        torch.tensor([[0.3, 0.1], [0.4, 0.1]]),
        torch.empty(0, 2, 3),
        mil_background=torch.tensor([[0.2], [0.1]]),
    )
    loss = Criterion(None)(outputs, make_batch([[1, 0]], [2]))["mil"]
    per_class = [-math.log(0.7), -math.log(0.7), -math.log(0.8)]  # background, and the two of the labels
    assert loss.item() == pytest.approx(sum(per_class) / 3)


def test_streams_that_regress_have_their_weights_and_pseudo_labels(make_batch):
    batch, streams = make_batch([[1, 0, 1]], [20]), torch.rand(2, 20, 4).softmax(dim=2)
    outputs = RegressionOutputs(None, torch.randn(2, 20, 3, 4))
    mil = torch.rand(20, 3) / 20
    criterion = Criterion(
        Refinement("mist"), stream_weights=(3, 1), regression=StreamRegressionLoss(0.5, "all")
    )
    with patch.object(Refinement, "clusters", autospec=True, side_effect=Refinement.clusters) as clusters:
        losses = criterion(HeadOutputs(mil, streams, regression=outputs), batch)
    assert clusters.call_count == 1  # the refinement and the regression share the pseudo labels
    assert list(losses) == ["mil", "refine_1", "refine_2", "regress_1", "regress_2"]
    for name, weight, source, deltas in zip(
        ("regress_1", "regress_2"), (1.5, 0.5), (mil, streams[0, :, 1:]), outputs.deltas, strict=True
    ):
        found = Refinement("mist").clusters(source, batch)
        torch.testing.assert_close(losses[name], weight * box_loss(deltas, found, batch, "all"))


def test_a_proposal_with_a_weight_counts_as_so_many():
    """In an image of which some tiles are seen, a proposal stands for others that are not."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [40, 40, 50, 50], [80, 80, 90, 90]])
    rows, logits = torch.tensor([0, 1, 2, 2, 2]), torch.randn(1, 3, 3, requires_grad=True)
    mil = torch.tensor([[0.4, 0.01], [0.02, 0.03], [0.1, 0.02]])

    def losses(rows, weights):
        count = torch.tensor([len(rows)])
        rois = torch.cat([torch.zeros(len(rows), 1), boxes[rows]], dim=1)
        batch = Batch(torch.zeros(1, 3, 9, 9), rois, torch.tensor([[1.0, 0]]), count, ("a",))
        if weights is not None:
            batch = replace(batch, tiles=torch.tensor([1]), places=boxes[rows], weights=weights)
        outputs = HeadOutputs(mil[rows], logits[:, rows].softmax(dim=2))
        found = Criterion(Refinement("oicr", ignore_iou=0.0), stream_weights=(1,))(outputs, batch)
        return torch.stack([found["mil"], found["refine_1"]])

    weighted = losses(torch.arange(3), torch.tensor([1.0, 1, 3]))
    torch.testing.assert_close(weighted, losses(rows, None))
