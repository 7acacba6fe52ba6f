"""detector.modeling.compiled: what torch.compile is given, and how often."""

import torch
from torch._dynamo.testing import CompileCounter

from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.compiled import compile_model
from detector.modeling.head import Head
from detector.modeling.weak_rcnn import WeakRCNN


def make_model():
    torch.manual_seed(0)
    backbone = SmallBackbone((8, 16))
    box_features = BoxFeatures(
        backbone.out_channels, backbone.stride, output_size=2, widths=(8,), dropout=0.0
    )
    return WeakRCNN(
        backbone, box_features, Head(8, 2, 1), pixel_mean=(0.0, 0.0, 0.0), pixel_std=(1 / 255,) * 3
    )


def test_new_sizes_and_counts_compile_nothing_anew():
    torch._dynamo.reset()
    model, plain, counter = make_model(), make_model(), CompileCounter()
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
