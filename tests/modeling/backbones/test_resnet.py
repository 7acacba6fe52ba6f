import pytest
import torch
from torchvision.models import get_model, resnet50
from torchvision.ops import FrozenBatchNorm2d

from detector.modeling.backbones.resnet import ResNet, load_resnet_weights


def randomize_norms(network):
    """Batch norm that does something: statistics and an affine map of no particular kind, kept near 1."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, FrozenBatchNorm2d):
            for tensor in (module.weight, module.running_var):
                tensor.copy_(0.4 + 0.2 * torch.rand(tensor.shape, generator=generator))
            module.bias.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
            module.running_mean.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
    return network.eval()


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])  # of each kind of block
@torch.no_grad()
def test_dilated_features_contain_those_of_the_strided_network(name):
    strided = randomize_norms(ResNet(name, stride=32))
    images = torch.randn(1, 3, 64, 96)
    expected = strided(images)
    assert expected.shape == (1, strided.out_channels, 2, 3)
    for stride in (16, 8):
        dilated = ResNet(name, stride=stride).eval()
        dilated.load_state_dict(strided.state_dict())
        features = dilated(images)
        assert features.shape == (1, strided.out_channels, 64 // stride, 96 // stride)
        step = 32 // stride
        torch.testing.assert_close(features[:, :, ::step, ::step], expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_resnet50_is_torchvisions():
    ours, images = randomize_norms(ResNet("resnet50", stride=8)), torch.randn(1, 3, 64, 64)
    theirs = resnet50(norm_layer=FrozenBatchNorm2d, replace_stride_with_dilation=[False, True, True]).eval()
    theirs.load_state_dict({**theirs.state_dict(), **ours.state_dict()})
    theirs.avgpool = theirs.fc = torch.nn.Identity()
    torch.testing.assert_close(ours(images).flatten(1), theirs(images))


def test_batch_norm_is_frozen_in_training():
    backbone = ResNet("resnet18").train()
    before = {name: tensor.clone() for name, tensor in backbone.named_buffers()}
    features = backbone(torch.randn(2, 3, 64, 64) + 5)
    features.mean().backward()
    assert before
    assert all(tensor.equal(before[name]) for name, tensor in backbone.named_buffers())
    assert not [name for name, _ in backbone.named_parameters() if "bn" in name or "downsample.1" in name]


@pytest.mark.parametrize(
    ("stages", "frozen"), [(0, set()), (1, {"conv1"}), (3, {"conv1", "layer1", "layer2"})]
)
def test_frozen_stages(stages, frozen):
    backbone = ResNet("resnet18", frozen_stages=stages)
    assert {n.split(".")[0] for n, p in backbone.named_parameters() if not p.requires_grad} == frozen
    assert {n.split(".")[0] for n, p in backbone.named_parameters() if p.requires_grad} & frozen == set()


def test_torchvisions_weights():
    weights = get_model("resnet18", weights=None).state_dict()  # batch norm that counts its batches
    backbone = ResNet("resnet18")
    load_resnet_weights(backbone, weights)
    assert torch.equal(backbone.layer4[1].conv2.weight, weights["layer4.1.conv2.weight"])
    assert torch.equal(backbone.bn1.running_var, weights["bn1.running_var"])
    del weights["layer3.0.conv1.weight"]
    with pytest.raises(RuntimeError, match=r"layer3\.0\.conv1\.weight"):
        load_resnet_weights(backbone, weights)


def test_no_other_stride():
    with pytest.raises(ValueError, match="stride is 4, expected 8, 16 or 32"):
        ResNet("resnet18", stride=4)
