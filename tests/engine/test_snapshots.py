"""detector.engine.snapshots: looking at the streams while they learn changes nothing."""

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from detector.engine.snapshots import Snapshots, attend, list_snapshots
from detector.evaluation.attention import load_attention
from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.head import Head
from detector.modeling.refinement import Refinement
from detector.modeling.weak_rcnn import WeakRCNN
from detector.structures import Sample, Views


@pytest.fixture
def model():
    torch.manual_seed(0)
    backbone = SmallBackbone()
    features = BoxFeatures(
        backbone.out_channels, backbone.stride, pool="roi_pool", output_size=2, widths=(8,), dropout=0.5
    )
    return WeakRCNN(
        backbone, features, Head(8, 3, 2, init_std=0.1), pixel_mean=(0.0, 0.0, 0.0), pixel_std=(1 / 255,) * 3
    ).train()


def views(image_id="a"):
    generator = torch.Generator().manual_seed(1)
    corners = torch.rand(20, 2, generator=generator) * 20
    boxes = torch.cat([corners, corners + 8 + 10 * torch.rand(20, 2, generator=generator)], dim=1)
    sample = Sample(
        torch.randn(3, 64, 64, generator=generator), boxes * 1.6, torch.tensor([0.0, 1, 1]), image_id
    )
    return Views(image_id, (40, 40), boxes, (sample,))


def snapshots(**changes):
    image = torch.full((3, 40, 40), 100, dtype=torch.uint8)
    values = {
        "views": [views()],
        "images": [image],
        "class_names": "abc",
        "refinement": Refinement("pcl"),
        "period": 3,
    }
    return Snapshots(**{**values, **changes})


def test_a_snapshot_is_written_and_drawn_and_leaves_no_trace(model, tmp_path):
    before, state = [p.clone() for p in model.state_dict().values()], torch.get_rng_state()
    with SummaryWriter(tmp_path) as writer:
        for iteration in (3, 6):
            snapshots().take(model, iteration, tmp_path, writer)
    assert torch.get_rng_state().equal(state)
    assert model.training
    assert model.box_features.training
    assert all(p.grad is None for p in model.parameters())
    assert all(one.equal(other) for one, other in zip(before, model.state_dict().values(), strict=True))
    assert [path.name for path in list_snapshots(tmp_path)] == ["000003.npz", "000006.npz"]
    events = EventAccumulator(str(tmp_path), size_guidance={"images": 0})
    events.Reload()
    assert [event.step for event in events.Images("streams/a")] == [3, 6]


def test_what_it_holds(model, tmp_path):
    with SummaryWriter(tmp_path) as writer:
        snapshots().take(model, 3, tmp_path, writer)
    (seen,) = load_attention(list_snapshots(tmp_path)[0])
    assert (seen.image_id, seen.labels.tolist()) == ("a", [1, 2])
    assert seen.boxes.equal(views().proposals)
    assert seen.scores.shape == (3, 20, 2)
    assert seen.centers.shape == seen.clusters.shape == (3, 20)
    for centers, clusters in zip(seen.centers, seen.clusters, strict=True):
        assert set(centers[centers >= 0].tolist()) == {1, 2}  # every class of the image, and no other
        assert len(clusters[centers >= 0].unique()) == int((centers >= 0).sum())  # one center a cluster


def test_without_refinement_streams_there_are_scores_alone(model):
    model.head.refinements = torch.nn.ModuleList()
    seen = attend(model.eval(), views(), None)
    assert seen.scores.shape == (1, 20, 2)
    assert (seen.clusters == -1).all()


def test_weights_that_are_not_finite_are_left_to_the_next_step(model, tmp_path):
    torch.nn.init.constant_(model.head.classes.weight, float("nan"))
    with SummaryWriter(tmp_path) as writer:
        snapshots().take(model, 3, tmp_path, writer)
    assert list_snapshots(tmp_path) == []


def test_when_one_is_due():
    due = [iteration for iteration in range(1, 9) if snapshots().due(iteration, 8)]
    assert due == [3, 6, 8]
