import pytest
import torch

from detector.modeling.head import Head, HeadOutputs
from detector.modeling.regression import RegressionOutputs


def test_probabilities_and_shapes():
    outputs = Head(8, 4, 3)(torch.randn(7, 8), torch.tensor([3, 4]))
    assert outputs.mil.shape == (7, 4)
    assert outputs.refinements.shape == (3, 7, 5)
    torch.testing.assert_close(outputs.refinements.sum(dim=2), torch.ones(3, 7))
    image_scores = torch.stack([outputs.mil[:3].sum(dim=0), outputs.mil[3:].sum(dim=0)])
    assert ((image_scores > 0) & (image_scores < 1)).all()


def test_an_image_does_not_see_the_others_of_its_batch():
    head, features = Head(8, 4, 1), torch.randn(7, 8)
    together = head(features, torch.tensor([3, 4])).mil
    alone = torch.cat([head(features[:3], torch.tensor([3])).mil, head(features[3:], torch.tensor([4])).mil])
    torch.testing.assert_close(together, alone)


def test_scores_are_the_mean_of_the_streams_without_background():
    streams = torch.tensor([[[0.2, 0.5, 0.3]], [[0.4, 0.1, 0.5]]])
    outputs = HeadOutputs(torch.zeros(1, 2), streams)
    torch.testing.assert_close(outputs.scores(), torch.tensor([[0.3, 0.4]]))


def test_without_streams_the_mil_scores_are_the_scores():
    outputs = Head(8, 4, 0)(torch.randn(5, 8), torch.tensor([5]))
    assert outputs.scores() is outputs.mil


def test_a_part_loses_to_the_whole_by_what_is_around_it():
    head, features = Head(4, 2, 1), torch.rand(3, 4)
    context = features.clone()  # of proposals 0 and 1, parts: as much of the classes as in them
    context[2] = 0
    with torch.no_grad():
        head.proposals.weight.fill_(1)
    counts = torch.tensor([3])
    by_proposal = head(features, counts, context).mil / head.classes(features).softmax(dim=1)
    torch.testing.assert_close(by_proposal[0], by_proposal[1])
    assert (by_proposal[2] > by_proposal[0]).all()
    alone = head(features, counts).refinements
    assert torch.equal(head(features, counts, context).refinements, alone)  # the streams see no context


def test_one_class_trains():
    head = Head(8, 1, 0)
    head(torch.randn(5, 8), torch.tensor([5])).mil.sum().backward()
    assert head.classes.weight.grad.abs().sum() > 0


def test_probabilities_are_float32_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        outputs = Head(8, 4, 1)(torch.randn(5, 8), torch.tensor([5]))
    assert outputs.mil.dtype == outputs.refinements.dtype == torch.float32


@pytest.mark.parametrize("std", [0.01, 0.1])
def test_initial_weights(std):
    head = Head(1000, 20, 1, init_std=std)
    assert head.refinements[0].weight.std().item() == pytest.approx(std, rel=0.05)
    assert (head.classes.bias == 0).all()


def test_a_background_class_of_the_mil_head():
    """MIST's code: softmaxes over C + 1 classes, of which the image score of the first is to be 0."""
    head, features = Head(8, 4, 2, mil_background=True), torch.randn(5, 8)
    outputs = head(features, torch.tensor([5]))
    logits = [layer.weight @ features[2] + layer.bias for layer in (head.classes, head.proposals)]
    by_proposal = (features @ head.proposals.weight.T + head.proposals.bias).softmax(dim=0)[2]
    both = logits[0].softmax(dim=0) * by_proposal  # (5,)
    torch.testing.assert_close(outputs.mil[2], both[1:])
    torch.testing.assert_close(outputs.mil_background[2], both[:1])
    assert outputs.refinements.shape == (2, 5, 5)
    assert Head(8, 4, 2)(features, torch.tensor([5])).mil_background is None


def test_the_regression_branch_may_weigh_as_much_as_all_streams():
    """OICR with regression: the score is the mean of the branch and of the mean of the streams."""
    streams = torch.rand(3, 6, 5).softmax(dim=2)
    logits, deltas = torch.randn(6, 5), torch.zeros(6, 4, 4)
    branch = logits.softmax(dim=1)

    def scores(weight):
        return HeadOutputs(
            torch.zeros(6, 4), streams, regression=RegressionOutputs(logits, deltas, weight)
        ).scores()

    torch.testing.assert_close(scores(3.0), ((streams.mean(dim=0) + branch) / 2)[:, 1:])
    torch.testing.assert_close(scores(1.0), ((streams.sum(dim=0) + branch) / 4)[:, 1:])
    torch.testing.assert_close(scores(0.0), streams.mean(dim=0)[:, 1:])


def test_the_boxes_of_the_streams_are_averaged():
    streams, deltas = torch.rand(3, 6, 5).softmax(dim=2), torch.randn(3, 6, 4, 4)
    outputs = HeadOutputs(torch.zeros(6, 4), streams, regression=RegressionOutputs(None, deltas))
    torch.testing.assert_close(outputs.deltas, (deltas[0] + deltas[1] + deltas[2]) / 3)
    torch.testing.assert_close(outputs.scores(), streams.mean(dim=0)[:, 1:])
