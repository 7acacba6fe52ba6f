"""OICR, MIST and PCL: proposals to pseudo labels to a loss of a whole batch."""

import pytest
import torch

from detector.layers import pcl_loss, proposal_clusters
from detector.layers.proposal_clusters import ProposalClusters
from detector.modeling.refinement import (
    Refinement,
    Seeds,
    cluster_loss,
    cross_entropy_loss,
    suppressed_by_any,
)
from detector.structures import Batch, boxes_to_rois


def best_of_each_class(boxes, scores, labels):
    """OICR's rule for scores without ties, as a function."""
    rows, classes = [], labels.nonzero()[:, 0]
    for c in classes.tolist():
        free = torch.ones(len(boxes), dtype=torch.bool)
        free[rows] = False
        rows.append(int(torch.where(free, scores[:, c], -1).argmax()))
    chosen = torch.tensor(rows, dtype=torch.int64)
    return Seeds(chosen, classes, scores[chosen, classes])


OICR, MIST, PCL = Refinement("oicr"), Refinement("mist"), Refinement("pcl", loss=cluster_loss)
CUSTOM = Refinement(best_of_each_class)


def loss_of(refinement, probs, sources, batch):
    """The losses (K,) of streams whose pseudo labels are made from `sources`."""
    return refinement.loss(probs, refinement.clusters(sources, batch), batch.counts)


@pytest.mark.parametrize("refinement", [OICR, MIST, PCL, CUSTOM])
def test_a_batch_is_the_mean_of_its_images(refinement, make_batch):
    batch = make_batch([[1, 0, 1], [0, 1, 0]], [20, 30])
    probs, sources = torch.rand(2, 50, 4).softmax(dim=2), torch.rand(2, 50, 3)
    alone = []
    for rows, labels in ((slice(0, 20), batch.labels[:1]), (slice(20, 50), batch.labels[1:])):
        rois, counts = batch.rois[rows], torch.tensor([rows.stop - rows.start])
        one = type(batch)(batch.images[:1], rois, labels, counts, ("one",))
        alone.append(loss_of(refinement, probs[:, rows], sources[:, rows], one))
    torch.testing.assert_close(loss_of(refinement, probs, sources, batch), (alone[0] + alone[1]) / 2)


@pytest.mark.parametrize("refinement", [OICR, MIST, PCL, CUSTOM])
def test_streams_do_not_see_each_other(refinement, make_batch):
    batch = make_batch([[1, 0, 1], [0, 1, 0]], [20, 30])
    probs, sources = torch.rand(2, 50, 4).softmax(dim=2), torch.rand(2, 50, 3)
    alone = [loss_of(refinement, probs[k : k + 1], sources[k : k + 1], batch) for k in range(2)]
    torch.testing.assert_close(loss_of(refinement, probs, sources, batch), torch.cat(alone))


@pytest.mark.parametrize("refinement", [OICR, MIST, PCL, CUSTOM])
def test_no_positive_class_no_loss_and_a_zero_gradient(refinement, make_batch):
    batch = make_batch([[0, 0, 0]], [20])
    logits = torch.randn(1, 20, 4, requires_grad=True)
    loss = loss_of(refinement, logits.softmax(dim=2), torch.rand(1, 20, 3), batch)
    loss.sum().backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("refinement", [OICR, MIST, PCL, CUSTOM])
def test_gradient_descent_on_the_loss_agrees_with_the_pseudo_labels(refinement, make_batch):
    batch, source = make_batch([[1, 0, 1]], [40]), torch.rand(40, 3)
    logits = torch.zeros(40, 4, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.2)
    for _ in range(100):
        optimizer.zero_grad()
        loss_of(refinement, logits.softmax(dim=1)[None], source[None], batch).sum().backward()
        optimizer.step()
    found = refinement.clusters(source, batch)
    counted = found.weights > 0
    assert counted.any()
    if refinement is not PCL:  # every weighted proposal takes its own label; in PCL a cluster shares one
        assert torch.equal(logits.argmax(dim=1)[counted], found.labels[counted])
    background = counted & (found.labels == 0)
    assert (logits.argmax(dim=1)[background] == 0).all()


def test_a_rule_that_is_a_function_gets_what_the_compiled_op_gives(make_batch):
    batch = make_batch([[1, 0, 1], [0, 0, 0], [0, 1, 0]], [20, 10, 30])
    sources = torch.rand(2, 60, 3)
    for scores in (sources, sources[0]):
        for expected, found in zip(OICR.clusters(scores, batch), CUSTOM.clusters(scores, batch), strict=True):
            assert torch.equal(expected, found)


def test_cross_entropy_loss_by_hand():
    probs = torch.tensor([[[0.1, 0.9], [0.6, 0.4]]])
    nothing = torch.tensor([[-1, -1]])
    found = ProposalClusters(torch.tensor([[1, 0]]), torch.tensor([[0.5, 2.0]]), nothing, nothing)
    losses = torch.tensor([0.5, 2.0]) * -(torch.tensor([0.9, 0.6]) + 1e-6).log()
    torch.testing.assert_close(cross_entropy_loss(probs, found, torch.tensor([2])), losses.mean()[None])


def test_options_reach_the_rule_and_the_assignment(make_batch):
    batch, source = make_batch([[1, 1]], [60]), torch.rand(60, 2)
    probs = torch.rand(60, 3).softmax(dim=1)
    rule, assignment = {"graph_iou": 0.6, "max_centers": 2}, {"member_iou": 0.4, "ignore_iou": 0.0}
    found = proposal_clusters(
        batch.rois[:, 1:], source, batch.labels, batch.counts, method="pcl", **rule, **assignment
    )
    expected = pcl_loss(probs, found.labels, found.weights, found.clusters)
    changed = Refinement("pcl", rule, cluster_loss, **assignment)
    torch.testing.assert_close(loss_of(changed, probs[None], source[None], batch)[0], expected)
    assert not torch.isclose(loss_of(PCL, probs[None], source[None], batch)[0], expected)


def overlap(a, b):
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(wide, 0) * max(high, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


@pytest.mark.parametrize("seed", range(5))
def test_mist_of_its_authors_code_in_plain_python(seed, make_batch):
    batch = make_batch([[1, 0, 1]], [60], seed=seed)
    scores = torch.rand(60, 3, generator=torch.Generator().manual_seed(seed))
    boxes, expected = batch.rois[:, 1:], []
    for c in (0, 2):
        best = sorted(range(60), key=lambda r: -float(scores[r, c]))[: int(60 * 0.37)]
        for i, r in enumerate(best):
            if all(overlap(boxes[r].tolist(), boxes[s].tolist()) < 0.2 for s in best[:i]):
                expected.append((r, c))
    firsts = {r: c for r, c in reversed(expected)}
    expected = [(r, c) for r, c in expected if firsts[r] == c]  # a second class does not matter, see below
    found = suppressed_by_any(boxes, scores, batch.labels[0], top_share=0.37, nms_iou=0.2)
    assert list(zip(found.rows.tolist(), found.classes.tolist(), strict=True)) == expected
    assert torch.equal(found.weights, scores[found.rows, found.classes])
    greedy = Refinement("mist", {"top_share": 0.37, "nms_iou": 0.2}).clusters(scores, batch)
    assert len(expected) < int((greedy.centers >= 0).sum())


def test_a_proposal_that_was_suppressed_suppresses():
    """A chain of three: by NMS the first and the last are seeds, by MIST's code the first alone."""
    boxes = torch.tensor([[0.0, 0, 10, 10], [6, 0, 16, 10], [12, 0, 22, 10]])
    scores, labels = torch.tensor([[0.9], [0.8], [0.7]]), torch.ones(1)
    found = suppressed_by_any(boxes, scores, labels, top_share=1.0)
    assert found.rows.tolist() == [0]
    batch = Batch(torch.zeros(1, 3, 8, 8), boxes_to_rois([boxes]), labels[None], torch.tensor([3]), ("a",))
    greedy = Refinement("mist", {"top_share": 1.0}).clusters(scores, batch)
    assert greedy.centers.tolist() == [0, -1, 1]


def test_a_proposal_of_two_classes_is_a_seed_of_the_first_and_suppresses_for_both():
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [40, 0, 50, 10]])
    scores = torch.tensor([[0.9, 0.9], [0.1, 0.8], [0.2, 0.3]])
    found = suppressed_by_any(boxes, scores, torch.ones(2), top_share=1.0)
    assert list(zip(found.rows.tolist(), found.classes.tolist(), strict=True)) == [(0, 0), (2, 0)]
    assert found.weights.tolist() == pytest.approx([0.9, 0.2])


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (6, 1), (14, 2)])
def test_the_share_is_rounded_down_to_at_least_one(count, expected):
    boxes = torch.arange(count).float()[:, None] * 20 + torch.tensor([0.0, 0, 10, 10])
    found = suppressed_by_any(boxes, torch.rand(count, 1), torch.ones(1), top_share=0.15)
    assert len(found.rows) == expected
    none = suppressed_by_any(boxes, torch.rand(count, 1), torch.zeros(1))
    assert len(none.rows) == len(none.classes) == len(none.weights) == 0
