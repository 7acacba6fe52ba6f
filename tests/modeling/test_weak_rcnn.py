import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.criterion import Criterion
from detector.modeling.head import Head, ImageHead
from detector.modeling.refinement import Refinement, cluster_loss
from detector.modeling.regression import RegressionBranch, RegressionLoss
from detector.modeling.weak_rcnn import WeakRCNN, compile_model

# The network sees RGB in 0 to 255 as it is.
PLAIN = {"pixel_mean": (0.0, 0.0, 0.0), "pixel_std": (1 / 255, 1 / 255, 1 / 255)}
OICR, MIST, PCL = Refinement("oicr"), Refinement("mist"), Refinement("pcl", loss=cluster_loss)


def make_model() -> WeakRCNN:
    backbone = SmallBackbone((8, 16))
    box_features = BoxFeatures(16, backbone.stride, output_size=3, widths=(20,), dropout=0.0)
    return WeakRCNN(backbone, box_features, Head(20, 2, 3, init_std=0.1), **PLAIN)


def test_images_are_normalized_and_their_padding_becomes_the_mean(device):
    mean, std, sizes = (0.5, 0.4, 0.3), (0.25, 0.2, 0.1), [(20, 30), (24, 18)]
    model = make_model().to(device)
    model.pixel_mean, model.pixel_std = torch.tensor(mean, device=device), torch.tensor(std, device=device)
    seen = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].cpu()))
    images = torch.randint(256, (2, 3, 24, 30)).byte()
    rois, counts = torch.tensor([[0.0, 1, 1, 9, 9], [1, 1, 1, 9, 9]]), torch.tensor([1, 1])
    with torch.no_grad():
        model(images.to(device), rois.to(device), counts, torch.tensor(sizes, device=device))
    shift, scale = (torch.tensor(values)[:, None, None] for values in (mean, std))
    for image, original, (height, width) in zip(seen[0], images, sizes, strict=True):
        torch.testing.assert_close(
            image[:, :height, :width], (original[:, :height, :width] / 255 - shift) / scale
        )
        assert image[:, height:].count_nonzero() == image[:, :, width:].count_nonzero() == 0


def test_normalization_is_not_in_the_state_dict():
    assert not any(name.startswith("pixel") for name in make_model().state_dict())


def test_training_and_testing_return_the_same_type(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [5, 7])
    trained = model(batch.images, batch.rois, batch.counts)
    tested = model.eval()(batch.images, batch.rois, batch.counts)
    torch.testing.assert_close(trained.scores(), tested.scores())


def test_a_batch_can_be_learned(make_batch):
    torch.manual_seed(0)
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [30, 40])
    criterion, optimizer = Criterion(PCL), torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = criterion(model(batch.images, batch.rois, batch.counts), batch)
        sum(loss.values()).backward()
        optimizer.step()
        losses.append(loss["mil"].item())
    assert losses[-1] < 0.2 * losses[0]


def test_the_image_head_classifies_the_whole_image(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [5, 7])
    assert "image" not in Criterion(PCL)(model(batch.images, batch.rois, batch.counts), batch)
    model.image_head = ImageHead(16, 2)
    outputs = model(batch.images, batch.rois, batch.counts)
    assert outputs.image_logits.shape == (2, 2)
    loss = Criterion(PCL)(outputs, batch)["image"]
    scores = outputs.image_logits.sigmoid()
    expected = -torch.where(batch.labels == 1, scores, 1 - scores).log().mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(p.grad is not None for p in model.backbone.parameters())


def test_every_parameter_gets_a_gradient(make_batch):
    model, batch = make_model(), make_batch([[1, 1]], [30])
    sum(Criterion(PCL)(model(batch.images, batch.rois, batch.counts), batch).values()).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_an_image_without_proposals_beside_one_with(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [0, 7])
    losses = Criterion(PCL)(model(batch.images, batch.rois, batch.counts), batch)
    sum(losses.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("refinement", [None, OICR, PCL, MIST])
def test_one_class_can_be_learned(refinement, make_batch):
    torch.manual_seed(0)
    batch = make_batch([[1], [0]], [30, 40])
    backbone = SmallBackbone((8, 16))
    box_features = BoxFeatures(16, backbone.stride, output_size=3, widths=(20,), dropout=0.0)
    streams = 0 if refinement is None else 2
    head = Head(20, 1, streams, init_std=0.1)
    model = WeakRCNN(backbone, box_features, head, regression=RegressionBranch(20, 1), **PLAIN)
    criterion = Criterion(refinement, stream_weights=(3, 1), regression=RegressionLoss(OICR))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        optimizer.zero_grad()
        outputs = model(batch.images, batch.rois, batch.counts)
        losses = criterion(outputs, batch)
        sum(losses.values()).backward()
        assert [name for name, p in model.named_parameters() if p.grad is None] == []
        optimizer.step()
    assert losses["mil"] < 0.1
    if refinement:
        assert outputs.scores()[:30].max() > outputs.scores()[30:].max()


def test_the_regression_branch_joins_the_mean_of_the_streams(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [5, 7])
    alone = model(batch.images, batch.rois, batch.counts)
    assert alone.deltas is None
    model.regression = RegressionBranch(20, 2)
    outputs = model(batch.images, batch.rois, batch.counts)
    assert outputs.deltas.shape == (12, 2, 4)
    probs = [*outputs.refinements, outputs.regression.logits.softmax(dim=1)]
    torch.testing.assert_close(outputs.scores(), sum(probs)[:, 1:] / 4)
    losses = Criterion(PCL, regression=RegressionLoss(PCL))(outputs, batch)
    assert list(losses) == ["mil", "refine_1", "refine_2", "refine_3", "regress_classes", "regress_boxes"]


def test_without_streams_the_regression_branch_scores_alone(make_batch):
    batch, backbone = make_batch([[1, 0]], [5]), SmallBackbone((8, 16))
    box_features = BoxFeatures(16, backbone.stride, output_size=3, widths=(20,))
    model = WeakRCNN(
        backbone, box_features, Head(20, 2, 0), regression=RegressionBranch(20, 2), **PLAIN
    ).eval()
    outputs = model(batch.images, batch.rois, batch.counts)
    torch.testing.assert_close(outputs.scores(), outputs.regression.logits.softmax(dim=1)[:, 1:])


def test_a_recomputed_backbone_gives_the_same_gradients(make_batch):
    model, batch = make_model(), make_batch([[1, 0], [0, 1]], [5, 7])
    gradients = []
    for recompute in (False, True):
        model.recompute_backbone = recompute
        sum(Criterion(PCL)(model(*batch.inputs), batch).values()).backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
        model.zero_grad()
    assert all(kept.equal(anew) for kept, anew in zip(*gradients, strict=True))


def test_new_sizes_and_counts_do_not_recompile():
    torch._dynamo.reset()
    model, counter = make_model(), CompileCounter()
    plain = copy.deepcopy(model)
    compile_model(model, backend=counter)
    assert model.state_dict().keys() == plain.state_dict().keys()
    generator, compiled = torch.Generator().manual_seed(0), []
    for images, height, width, proposals in [
        # On a CPU torch takes other convolutions for images below 20,480 numbers, which is more code.
        *((1, 160, 176, 3), (2, 176, 160, 4), (1, 193, 167, 5)),
        *((3, 170, 170, 6), (1, 160, 220, 30), (2, 182, 171, 7)),
    ]:
        inputs = torch.randn(images, 3, height, width, generator=generator)
        corners = torch.rand(proposals * images, 2, generator=generator) * 16
        rois = torch.cat([torch.zeros(len(corners), 1), corners, corners + 12], dim=1)
        counts = torch.full((images,), proposals)
        torch.testing.assert_close(model(inputs, rois, counts).mil, plain(inputs, rois, counts).mil)
        compiled.append(counter.frame_count)
    assert compiled[2:] == compiled[2:3] * 4  # after one image and several: nothing more
    assert compiled[-1] <= 4
