"""torchvision's Faster R-CNN with the backbones that self-training offers."""

import pytest
import torch
import torchvision
from torchvision.models.detection.rpn import RegionProposalNetwork

from detector.modeling.backbones.timm import load_timm_weights
from detector.self_training.faster_rcnn import PyramidRoIAlign, faster_rcnn
from detector.self_training.pyramids import (
    SmallPyramid,
    TimmPyramid,
    load_torchvision_weights,
    torchvision_pyramid,
)
from detector.self_training.random_sizes import RandomSizes

timm = pytest.importorskip("timm")
TRANSFORM = RandomSizes((64,), 96, (0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimmPyramid("tf_efficientnet_lite0", channels=32),
        lambda: torchvision_pyramid("mobilenet_v3", pretrained=False),
        lambda: SmallPyramid(channels=32),
    ],
    ids=["timm", "mobilenet_v3", "small"],
)
def test_losses_in_training_and_boxes_in_testing(make):
    torch.manual_seed(0)
    model = faster_rcnn(make(), 3, TRANSFORM).train()
    images = [torch.rand(3, 60, 80), torch.rand(3, 70, 50)]
    target = {"boxes": torch.tensor([[5.0, 5, 40, 45]]), "labels": torch.tensor([3])}
    nothing = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    losses = model(images, [target, nothing])
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    sum(losses.values()).backward()
    assert all(p.grad is not None for p in model.roi_heads.parameters())
    (found,) = model.eval()(images[:1])
    assert found["boxes"].shape == (len(found["scores"]), 4)
    assert ((found["labels"] >= 1) & (found["labels"] <= 3)).all()


def test_an_image_without_proposals():
    model = faster_rcnn(SmallPyramid(channels=32), 3, TRANSFORM).eval()
    torch.nn.init.constant_(model.rpn.head.bbox_pred.bias, 1e4)  # moves all of them out of the image
    for boxes, scores in model.scores([torch.rand(3, 60, 80), torch.rand(3, 70, 50)]):
        assert (boxes.shape, scores.shape) == ((0, 3, 4), (0, 3))


@pytest.mark.parametrize("training", [True, False])
def test_proposals_equal_torchvisions(training):
    torch.manual_seed(0)
    backbone = torchvision_pyramid("mobilenet_v3", pretrained=False)
    network = faster_rcnn(backbone, 3, TRANSFORM).rpn.train(training)
    counts = [2100, 300, 40]
    corners = torch.randint(-5, 85, (2, sum(counts), 2, 2)).float()  # whole: an offset rounds none of them
    corners[:, :50, 1] = corners[:, :50, 0]  # no width, no height
    boxes = torch.cat([corners.amin(dim=2), corners.amax(dim=2)], dim=2)
    arguments = boxes, torch.randn(2 * sum(counts), 1), [(60, 80), (70, 50)], counts
    theirs = RegionProposalNetwork.filter_proposals(network, *arguments)
    torch.testing.assert_close(network.filter_proposals(*arguments), theirs)


@pytest.mark.parametrize("levels", [2, 4])
def test_pooling_equals_torchvisions(levels):
    generator = torch.Generator().manual_seed(0)
    shapes = [(120, 160), (128, 100)]
    maps = {str(i): torch.randn(2, 3, 128 >> i + 2, 160 >> i + 2, generator=generator) for i in range(levels)}
    maps["pool"] = torch.zeros(2, 3, 2, 2)
    sides = torch.exp(torch.rand(40, 2, generator=generator) * 5)
    corners = torch.rand(40, 2, generator=generator) * 60
    boxes = list(torch.cat([corners, corners + sides], dim=1).split([25, 15]))
    options = {"featmap_names": ["0", "1", "2", "3"], "output_size": 7, "sampling_ratio": 2}
    ours = PyramidRoIAlign(**options)(maps, boxes, shapes)
    torch.testing.assert_close(ours, torchvision.ops.MultiScaleRoIAlign(**options)(maps, boxes, shapes))


def test_a_classifiers_weights_fit_the_timm_pyramid():
    weights = timm.create_model("tf_efficientnet_lite0").state_dict()
    backbone = TimmPyramid("tf_efficientnet_lite0").train()
    load_timm_weights(backbone, weights)
    assert torch.equal(backbone.body.state_dict()["conv_stem.weight"], weights["conv_stem.weight"])
    last = [name for name in weights if name.startswith("blocks.6")][-1]
    assert torch.equal(list(backbone.body.state_dict().values())[-1], weights[last])
    assert not backbone.body.bn1.training


def test_a_network_without_the_strides():
    with pytest.raises(ValueError, match="expected 4, 8, 16 and 32 among them"):
        TimmPyramid("vit_tiny_patch16_224")


def test_torchvisions_weights():
    weights = torchvision.models.mobilenet_v3_large().state_dict()
    backbone = torchvision_pyramid("mobilenet_v3", pretrained=True)
    load_torchvision_weights(backbone, weights)
    name = "4.block.0.0.weight"
    assert torch.equal(backbone.body.state_dict()[name], weights[f"features.{name}"])
    assert not dict(backbone.body.named_parameters())["0.0.weight"].requires_grad
    with pytest.raises(ValueError, match="weights hold no"):
        load_torchvision_weights(torchvision_pyramid("resnet50", pretrained=True), weights)
