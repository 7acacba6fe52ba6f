"""The regression branch: what it learns from, its losses, and what they lead to."""

import pytest
import torch
from torch.nn.functional import log_softmax, smooth_l1_loss

from detector.layers import proposal_clusters
from detector.modeling.refinement import Refinement
from detector.modeling.regression import (
    RegressionBranch,
    RegressionLoss,
    RegressionOutputs,
    StreamRegression,
    box_loss,
    center_boxes,
)
from detector.structures import decode_boxes, encode_boxes


def outputs_of(rows, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, classes + 1, generator=generator)
    return RegressionOutputs(logits, torch.randn(rows, classes, 4, generator=generator))


def test_shapes_and_initial_weights():
    branch = RegressionBranch(500, 20)
    outputs = branch(torch.randn(7, 500))
    assert outputs.logits.shape == (7, 21)
    assert outputs.deltas.shape == (7, 20, 4)
    assert branch.classes.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert branch.boxes.weight.std().item() == pytest.approx(0.001, rel=0.05)


@pytest.mark.parametrize("labels", [Refinement("oicr"), Refinement("pcl"), Refinement("mist")])
def test_the_losses_are_those_of_loops_over_proposals(labels, make_batch):
    batch, sources = make_batch([[1, 0, 1], [0, 1, 0], [1, 1, 1]], [20, 30, 0]), torch.rand(50, 3)
    outputs = outputs_of(50)
    boxes_and_labels = batch.rois[:, 1:], sources, batch.labels, batch.counts
    found = proposal_clusters(*boxes_and_labels, method=labels.rule)
    classes, moves = [], []
    for rows in (range(20), range(20, 50)):
        entropy = box_loss = counted = 0.0
        for r in rows:
            label, weight = int(found.labels[r]), float(found.weights[r])
            entropy -= weight * float(log_softmax(outputs.logits[r], dim=0)[label])
            counted += weight > 0
            if label > 0:
                (center,) = [c for c in rows if found.centers[c] == found.clusters[r]]
                expected = encode_boxes(batch.rois[r, 1:], batch.rois[center, 1:])
                deltas = outputs.deltas[r, label - 1]
                box_loss += weight * float(smooth_l1_loss(deltas, expected, reduction="sum"))
        classes.append(entropy / len(rows))
        moves.append(box_loss / counted)
    losses = RegressionLoss(labels, weight=2.0)(outputs, sources, batch)
    assert losses["regress_classes"].item() == pytest.approx(2 * sum(classes) / 3, rel=1e-4)
    assert losses["regress_boxes"].item() == pytest.approx(2 * sum(moves) / 3, rel=1e-4)


def test_no_positive_class_no_loss_and_a_zero_gradient(make_batch):
    batch, outputs = make_batch([[0, 0, 0]], [20]), outputs_of(20)
    outputs.logits.requires_grad_()
    outputs.deltas.requires_grad_()
    losses = RegressionLoss(Refinement("oicr"))(outputs, torch.rand(20, 3), batch)
    sum(losses.values()).backward()
    assert [loss.item() for loss in losses.values()] == [0, 0]
    assert (outputs.logits.grad == 0).all()
    assert (outputs.deltas.grad == 0).all()


def test_boxes_without_area_keep_the_loss_finite(make_batch):
    batch, outputs = make_batch([[1, 0, 1]], [20]), outputs_of(20)
    batch.rois[3:6, 3:] = batch.rois[3:6, 1:3]
    outputs.deltas.requires_grad_()
    losses = RegressionLoss(Refinement("oicr"))(outputs, torch.rand(20, 3), batch)
    losses["regress_boxes"].backward()
    assert torch.isfinite(outputs.deltas.grad).all()


def test_descent_moves_members_onto_their_center(make_batch):
    torch.manual_seed(0)  # of some scores the seeds have no other members
    batch, sources = make_batch([[1, 0, 1]], [40]), torch.rand(40, 3)
    labels = Refinement("oicr", member_iou=0.3)
    found = labels.clusters(sources, batch)
    members = found.labels > 0
    assert members.sum() > 2
    deltas = torch.zeros(40, 3, 4, requires_grad=True)
    optimizer = torch.optim.Adam([deltas], lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        outputs = RegressionOutputs(torch.zeros(40, 4), deltas)
        RegressionLoss(labels)(outputs, sources, batch)["regress_boxes"].backward()
        optimizer.step()
    moved = decode_boxes(batch.rois[members, 1:], deltas.detach()[members, found.labels[members] - 1])
    centers = center_boxes(batch.rois[:, 1:], found, batch.counts)[members]
    torch.testing.assert_close(moved, centers, rtol=0, atol=0.1)
    assert (deltas[~members] == 0).all()


def test_the_box_loss_may_be_divided_by_all_proposals(make_batch):
    batch, sources = make_batch([[1, 0, 1]], [40]), torch.rand(40, 3)
    outputs = outputs_of(40)
    found = Refinement("oicr").clusters(sources, batch)
    weighted, all_rows = (box_loss(outputs.deltas, found, batch, name) for name in ("weighted", "all"))
    counted = int((found.weights > 0).sum())
    assert 0 < counted < 40
    torch.testing.assert_close(weighted * counted, all_rows * 40)
    losses = RegressionLoss(Refinement("oicr"), 2.0, "all")(outputs, sources, batch)
    torch.testing.assert_close(losses["regress_boxes"], 2 * all_rows)


def test_streams_have_box_layers_of_their_own():
    module, features = StreamRegression(500, 20, 3), torch.randn(7, 500)
    outputs = module(features)
    assert outputs.logits is None
    assert outputs.deltas.shape == (3, 7, 20, 4)
    second = features @ module.boxes[1].weight.T + module.boxes[1].bias
    torch.testing.assert_close(outputs.deltas[1].flatten(1), second)
    assert module.boxes[2].weight.std().item() == pytest.approx(0.001, rel=0.05)
