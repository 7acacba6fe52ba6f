import pytest
import torch
from torchvision.models import vgg16

from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.backbones.vgg16 import VGG16, load_vgg16_weights
from detector.modeling.box_features import BoxFeatures


def test_small():
    backbone = SmallBackbone((8, 16, 24))
    assert backbone(torch.randn(1, 3, 48, 64)).shape == (1, backbone.out_channels, 6, 8)
    assert backbone.stride == 8


def test_vgg16_has_stride_8_and_an_undiminished_view():
    backbone = VGG16().eval()
    assert backbone(torch.randn(1, 3, 48, 64)).shape == (1, backbone.out_channels, 6, 8)
    # A feature of VGG16's conv5 sees 196 pixels. With pool4 gone, dilation keeps conv5's share of that.
    dilations = [layer.dilation for layer in backbone.features if hasattr(layer, "out_channels")]
    assert dilations == [(1, 1)] * 10 + [(2, 2)] * 3


def test_vgg16_keeps_pool4_at_stride_16():
    backbone = VGG16(stride=16).eval()
    assert backbone.stride == 16
    images = torch.randn(1, 3, 48, 64)
    features = backbone(images)
    assert features.shape == (1, 512, 3, 4)
    with torch.device("meta"):
        whole = vgg16(weights=None).features
    whole = whole.to_empty(device="cpu").eval()
    whole.load_state_dict({k.removeprefix("features."): v for k, v in backbone.state_dict().items()})
    torch.testing.assert_close(whole(images), torch.nn.functional.max_pool2d(features, 2))


def test_vgg16_has_no_other_stride():
    with pytest.raises(ValueError, match="stride is 4, expected 8 or 16"):
        VGG16(stride=4)


@pytest.mark.parametrize(("stages", "frozen"), [(0, 0), (1, 2), (2, 4), (3, 7)])
def test_vgg16_freezes_whole_stages(stages, frozen):
    weights = [layer.weight for layer in VGG16(frozen_stages=stages).features if hasattr(layer, "weight")]
    assert [weight.requires_grad for weight in weights] == [False] * frozen + [True] * (13 - frozen)


def test_vgg16_takes_torchvisions_weights():
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in vgg16(weights=None).state_dict().items()}
    width = {4096: 6, 25088: 512 * 4}  # fc6 and fc7 made small: a hundred million numbers take seconds
    weights = {name: torch.randn([width.get(n, n) for n in shape]) for name, shape in shapes.items()}
    backbone = VGG16()
    box_features = BoxFeatures(512, 8, output_size=2, widths=(6, 6))
    load_vgg16_weights(backbone, box_features.layers, weights)
    assert torch.equal(backbone.features[28].weight, weights["features.28.weight"])
    assert torch.equal(box_features.layers[3].weight, weights["classifier.3.weight"])
    del weights["features.28.weight"]
    with pytest.raises(RuntimeError, match=r"features\.28\.weight"):
        load_vgg16_weights(backbone, box_features.layers, weights)


def test_vgg16_image_by_image():
    torch.manual_seed(0)
    backbone = VGG16(image_by_image=True).double()
    images = torch.rand(3, 3, 32, 48).double()
    one_by_one = backbone(images)
    backbone.image_by_image = False
    torch.testing.assert_close(one_by_one, backbone(images))


def test_vgg16_without_its_last_relu():
    with_relu, without = VGG16().eval(), VGG16(last_relu=False).eval()
    without.load_state_dict(with_relu.state_dict())
    images = torch.randn(1, 3, 48, 64)
    features = without(images)
    assert features.min() < 0
    assert torch.equal(features.relu(), with_relu(images))
