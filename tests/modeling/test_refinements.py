"""OICR, MIST and PCL: proposals to pseudo labels to a loss of a whole batch."""

import pytest
import torch

from detector.layers import pcl_loss, proposal_clusters
from detector.modeling.mist import MIST
from detector.modeling.oicr import OICR, oicr_loss
from detector.modeling.pcl import PCL


@pytest.mark.parametrize("refinement", [OICR(), MIST(), PCL()])
def test_a_batch_is_the_mean_of_its_images(refinement, make_batch):
    batch = make_batch([[1, 0, 1], [0, 1, 0]], [20, 30])
    probs, sources = torch.rand(2, 50, 4).softmax(dim=2), torch.rand(2, 50, 3)
    alone = []
    for rows, labels in ((slice(0, 20), batch.labels[:1]), (slice(20, 50), batch.labels[1:])):
        rois, counts = batch.rois[rows], torch.tensor([rows.stop - rows.start])
        one = type(batch)(batch.images[:1], rois, labels, counts, ("one",))
        alone.append(refinement(probs[:, rows], sources[:, rows], one))
    torch.testing.assert_close(refinement(probs, sources, batch), (alone[0] + alone[1]) / 2)


@pytest.mark.parametrize("refinement", [OICR(), MIST(), PCL()])
def test_streams_do_not_see_each_other(refinement, make_batch):
    batch = make_batch([[1, 0, 1], [0, 1, 0]], [20, 30])
    probs, sources = torch.rand(2, 50, 4).softmax(dim=2), torch.rand(2, 50, 3)
    alone = [refinement(probs[k : k + 1], sources[k : k + 1], batch) for k in range(2)]
    torch.testing.assert_close(refinement(probs, sources, batch), torch.cat(alone))


@pytest.mark.parametrize("refinement", [OICR(), MIST(), PCL()])
def test_no_positive_class_no_loss_and_a_zero_gradient(refinement, make_batch):
    batch = make_batch([[0, 0, 0]], [20])
    logits = torch.randn(1, 20, 4, requires_grad=True)
    loss = refinement(logits.softmax(dim=2), torch.rand(1, 20, 3), batch)
    loss.sum().backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("refinement", [OICR(), MIST(), PCL()])
def test_gradient_descent_on_the_loss_agrees_with_the_pseudo_labels(refinement, make_batch):
    batch, source = make_batch([[1, 0, 1]], [40]), torch.rand(40, 3)
    logits = torch.zeros(40, 4, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.2)
    for _ in range(100):
        optimizer.zero_grad()
        refinement(logits.softmax(dim=1)[None], source[None], batch).sum().backward()
        optimizer.step()
    method = type(refinement).__name__.lower()
    found = proposal_clusters(batch.rois[:, 1:], source, batch.labels, batch.counts, method=method)
    counted = found.weights > 0
    assert counted.any()
    if method != "pcl":  # every weighted proposal takes its own label; in PCL a cluster shares one
        assert torch.equal(logits.argmax(dim=1)[counted], found.labels[counted])
    background = counted & (found.labels == 0)
    assert (logits.argmax(dim=1)[background] == 0).all()


def test_oicr_loss_by_hand():
    probs = torch.tensor([[0.1, 0.9], [0.6, 0.4]])
    losses = oicr_loss(probs, torch.tensor([1, 0]), torch.tensor([0.5, 2.0]))
    torch.testing.assert_close(losses, torch.tensor([0.5, 2.0]) * -(torch.tensor([0.9, 0.6]) + 1e-6).log())


def test_pcl_passes_its_options_on(make_batch):
    batch, source = make_batch([[1, 1]], [60]), torch.rand(60, 2)
    probs = torch.rand(60, 3).softmax(dim=1)
    options = {"graph_iou": 0.6, "max_centres": 2, "member_iou": 0.4, "ignore_iou": 0.0}
    found = proposal_clusters(batch.rois[:, 1:], source, batch.labels, batch.counts, method="pcl", **options)
    expected = pcl_loss(probs, found.labels, found.weights, found.clusters)
    torch.testing.assert_close(PCL(**options)(probs[None], source[None], batch)[0], expected)
    assert not torch.isclose(PCL()(probs[None], source[None], batch)[0], expected)
