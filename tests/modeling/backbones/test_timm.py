import pytest
import torch

timm = pytest.importorskip("timm")
from detector.modeling.backbones.timm import (  # noqa: E402
    DepthwiseConv,
    TimmBackbone,
    create_network,
    load_timm_weights,
)
from detector.utils.errors import UserError  # noqa: E402


@pytest.mark.parametrize(
    ("name", "channels"), [("tf_efficientnet_lite0", 112), ("resnet18", 256), ("mobilenetv3_small_050", 24)]
)
def test_stage_of_a_stride(name, channels):
    backbone = TimmBackbone(name, stride=16)
    assert backbone.out_channels == channels
    assert backbone(torch.randn(1, 3, 64, 96)).shape == (1, channels, 4, 6)


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "efficientnet_lite0", "mobilenetv3_small_050"])
def test_depthwise_convolutions_compute_what_those_of_timm_do(name):
    torch.manual_seed(0)
    plain = timm.create_model(name).double().eval()
    torch.manual_seed(0)
    ours = create_network(name).double().eval()
    assert ours.state_dict().keys() == plain.state_dict().keys()
    images = torch.randn(1, 3, 65, 97, dtype=torch.float64)
    results = []
    for network in (plain, ours):
        output = network(images)
        output.square().sum().backward()
        results.append([output, *(parameter.grad for parameter in network.parameters())])
    torch.testing.assert_close(results[1], results[0])
    assert any(isinstance(module, DepthwiseConv) for module in ours.modules())
    assert not any(isinstance(m, torch.nn.Conv2d) and m.groups > 1 for m in ours.modules())


def test_frozen_stages():
    backbone = TimmBackbone("tf_efficientnet_lite0", stride=16, frozen_stages=2)
    frozen = {n.split(".")[1] for n, p in backbone.named_parameters() if not p.requires_grad}
    trained = {n.split(".")[1] for n, p in backbone.named_parameters() if p.requires_grad}
    assert frozen == {"conv_stem", "bn1", "blocks_0", "blocks_1"}
    assert trained == {"blocks_2", "blocks_3", "blocks_4"}


def test_batch_norm_keeps_its_statistics():
    backbone = TimmBackbone("resnet18").train()
    before = backbone.body.bn1.running_mean.clone()
    backbone(torch.randn(2, 3, 64, 64))
    assert torch.equal(backbone.body.bn1.running_mean, before)
    assert backbone.training


def test_weights_go_by_order():
    weights = timm.create_model("resnet18").state_dict()
    renamed = {f"module.{i}": tensor for i, tensor in enumerate(weights.values())}
    backbone = TimmBackbone("resnet18", stride=16)
    load_timm_weights(backbone, renamed)
    for name, tensor in backbone.body.state_dict().items():
        assert torch.equal(tensor, weights[name])


def test_weights_of_another_network():
    backbone = TimmBackbone("resnet18", stride=16)
    with pytest.raises(ValueError, match=r"layer1\.0\.conv1\.weight of shape \(64, 64, 3, 3\)"):
        load_timm_weights(backbone, timm.create_model("resnet50").state_dict())
    with pytest.raises(ValueError, match=r"hold nothing where conv1\.weight"):
        load_timm_weights(backbone, {})


@pytest.mark.parametrize(
    "name", ["hf-hub:timm/resnet18.a1_in1k", "hf_hub:a/b", "local-dir:/tmp", "resnet181", ""]
)
def test_a_network_that_would_be_downloaded_or_is_unknown_is_refused(name, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("it went online"))
    with pytest.raises(UserError, match=f"'{name}'"):
        TimmBackbone(name)


def test_no_such_stride():
    with pytest.raises(ValueError, match=r"stride is 64, .*\[2, 4, 8, 16, 32\]"):
        TimmBackbone("resnet18", stride=64)


def test_too_many_frozen_stages():
    with pytest.raises(ValueError, match="frozen_stages is 5, but resnet18 has 4"):
        TimmBackbone("resnet18", stride=16, frozen_stages=5)
