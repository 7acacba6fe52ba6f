"""Convolutional networks of timm as backbones."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import timm
from timm.layers import Conv2dSame, pad_same
from timm.models import FeatureListNet
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from detector.layers import depthwise_conv2d
from detector.modeling.backbones import Backbone
from detector.utils.errors import UserError
from detector.utils.exporting import is_exporting


def create_network(name: str, **options: Any) -> Any:  # an nn.Module, whose other attributes have no types
    """Create a network of timm with random weights, without downloads; see :class:`DepthwiseConv`.

    Args:
        name: e.g. "tf_efficientnet_lite0".
        options: keyword arguments of `timm.create_model`.

    Raises:
        UserError: timm has no network of that name, or it is an address such as "hf-hub:OWNER/NAME", which
            timm would download.
    """
    if ":" in name or not timm.is_model(name):
        near = get_close_matches(name, timm.list_models(), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"timm network {name!r}: expected the name of a network of timm{hint}")
    network = timm.create_model(name, **options)
    for path, conv in list(network.named_modules()):
        if isinstance(conv, nn.Conv2d) and conv.groups == conv.in_channels == conv.out_channels > 1:
            network.set_submodule(path, DepthwiseConv(conv))
    return network


class DepthwiseConv(nn.Module):
    """A depthwise convolution of timm, with detector.layers and the parameters of `conv`.

    On a CPU torch takes five times as long for the gradients. torch's op stays on a GPU, where training with
    ours has not been measured, and in an exported network, as every format supports it.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.weight, self.bias, self.groups = conv.weight, conv.bias, conv.groups
        self.kernel_size, self.stride, self.padding = conv.kernel_size, conv.stride, conv.padding
        self.dilation = conv.dilation
        self.pads_as_tensorflow = isinstance(conv, Conv2dSame)

    def forward(self, features: Tensor) -> Tensor:
        if self.pads_as_tensorflow:  # by the size of the input, and more on the right and below
            features = pad_same(features, list(self.kernel_size), list(self.stride), list(self.dilation))
        sizes: Any = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        if features.is_cuda or is_exporting():
            return F.conv2d(features, self.weight, self.bias, **sizes, groups=self.groups)
        return depthwise_conv2d(features, self.weight, self.bias, **sizes)


class TimmBackbone(Backbone):
    """Images (B, 3, H, W) to the features (B, D, H / stride, W / stride) of one stage of a timm network.

    Batch norm always uses its running statistics: the batches of a detector are small, and the features of an
    image must not depend on the other images of its batch.

    Args:
        name: timm's model name, e.g. "tf_efficientnet_lite0".
        stride: pixels per feature; selects the stage. Later stages are not built.
        frozen_stages: number of stages, from the input, that are not trained; the first includes the stem.

    Raises:
        UserError: there is no such network, or it has no stage of that stride or fewer stages than
            `frozen_stages`.
    """

    def __init__(self, name: str, *, stride: int = 16, frozen_stages: int = 0) -> None:
        super().__init__()
        network = create_network(name)
        stages = list(network.feature_info)
        strides = [stage["reduction"] for stage in stages]
        if stride not in strides:
            raise UserError(f"stride is {stride}, but {name} has stages of stride {strides}")
        index = strides.index(stride)
        if frozen_stages > index + 1:
            raise UserError(
                f"frozen_stages is {frozen_stages}, but {name} has {index + 1} stages up to stride {stride}"
            )
        nested = "." in stages[index]["module"]  # stages in one nn.Sequential, as EfficientNet's "blocks.4"
        self.body = FeatureListNet(network, out_indices=(index,), flatten_sequential=nested)
        self.stride = stride
        self.out_channels = stages[index]["num_chs"]
        last = stages[frozen_stages - 1]["module"].replace(".", "_") if frozen_stages else None
        for name, child in self.body.named_children() if last else ():
            child.requires_grad_(False)
            if name == last:
                break

    def train(self, mode: bool = True) -> "TimmBackbone":
        super().train(mode)
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)[0]


def load_timm_weights(backbone: TimmBackbone, weights: Mapping[str, Tensor]) -> None:
    """Load the state dict of a classifier by order: packages use different names in the same order.

    Raises:
        UserError: a tensor is missing or has another shape; names it.
    """
    state = backbone.body.state_dict()
    given = list(weights.items())
    for i, (name, tensor) in enumerate(state.items()):
        found = f"{given[i][0]} of shape {tuple(given[i][1].shape)}" if i < len(given) else "nothing"
        if i >= len(given) or given[i][1].shape != tensor.shape:
            raise UserError(f"weights hold {found} where {name} of shape {tuple(tensor.shape)} is expected")
    backbone.body.load_state_dict({name: given[i][1] for i, name in enumerate(state)})
