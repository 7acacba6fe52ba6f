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
    assert [layer.dilation for layer in backbone.features if hasattr(layer, "out_channels")][-3:] == [
        (2, 2)
    ] * 3


@pytest.mark.parametrize(("stages", "frozen"), [(0, 0), (1, 2), (2, 4), (3, 7)])
def test_vgg16_freezes_whole_stages(stages, frozen):
    weights = [layer.weight for layer in VGG16(frozen_stages=stages).features if hasattr(layer, "weight")]
    assert [weight.requires_grad for weight in weights] == [False] * frozen + [True] * (13 - frozen)


def test_vgg16_takes_torchvisions_weights():
    weights = vgg16(weights=None).state_dict()
    backbone = VGG16()
    box_features = BoxFeatures(512, 8, output_size=7, widths=(4096, 4096))
    load_vgg16_weights(backbone, box_features.layers, weights)
    assert torch.equal(backbone.features[28].weight, weights["features.28.weight"])
    assert torch.equal(box_features.layers[3].weight, weights["classifier.3.weight"])
    del weights["features.28.weight"]
    with pytest.raises(RuntimeError, match=r"features\.28\.weight"):
        load_vgg16_weights(backbone, box_features.layers, weights)
