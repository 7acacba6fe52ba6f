"""nms, batched_nms, roi_pool and roi_align in code that was written for torchvision's ops of these names.

Values are compared with torchvision in the tests of each op. Here are the ways of calling: torch.jit.script,
torch.fx, argument types, exceptions and extreme values. docs/layers.md lists the differences.
"""

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torchvision.ops
from nms_cases import expected_batched, make_set
from roi_cases import features, make_boxes
from torch import Tensor, nn
from torchvision.models.feature_extraction import get_graph_node_names

import detector.layers

BOTH = [detector.layers, torchvision.ops]
ROI_OPS = ["roi_pool", "roi_align"]
MODULES = {
    "RoIPool": lambda module, size: module.RoIPool(size, 0.5),
    "RoIAlign": lambda module, size: module.RoIAlign(size, 0.5, 2),
    "RoIAlign, adaptive": lambda module, size: module.RoIAlign(size, 0.5, -1, aligned=True),
}


def scripted(function: Callable) -> Callable:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch.jit.script is deprecated
        return torch.jit.script(function)


@pytest.fixture
def boxes_per_image(device: torch.device) -> list[Tensor]:
    return list(make_boxes(20, device=device)[:, 1:].split([13, 7]))


# ---- torch.jit.script ----


@pytest.mark.parametrize("size", [3, (2, 3), [2, 3]])
@pytest.mark.parametrize("op", ROI_OPS)
def test_scripted_roi_functions(op: str, size, boxes_per_image: list[Tensor], device: torch.device) -> None:
    function = getattr(detector.layers, op)
    input, rois = features(2, 3, 9, 13, device=device), make_boxes(20, device=device)
    for boxes in (rois, boxes_per_image):
        assert torch.equal(scripted(function)(input, boxes, size, 0.5), function(input, boxes, size, 0.5))
    last = input.detach().contiguous(memory_format=torch.channels_last)
    pooled = scripted(function)(last, rois, size, 0.5)
    assert torch.equal(pooled, function(last, rois, size, 0.5))
    assert pooled.stride() == function(last, rois, size, 0.5).stride()


@pytest.mark.parametrize("op", ROI_OPS)
def test_gradient_of_scripted_roi_functions(op: str, device: torch.device) -> None:
    function = scripted(getattr(detector.layers, op))
    input, boxes = features(2, 2, 4, 5, device=device), make_boxes(6, 2, (6, 8), device=device)
    assert torch.autograd.gradcheck(lambda input: function(input, boxes, 2), input, nondet_tol=0.0)


@pytest.mark.parametrize("size", [3, (2, 3), [2, 3]])
@pytest.mark.parametrize("name", MODULES)
def test_scripted_modules(name: str, size, boxes_per_image: list[Tensor], device: torch.device) -> None:
    class Pooling(nn.Module):
        """Takes only lists, so that the compiler must narrow the type of boxes."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = MODULES[name](detector.layers, size)

        def forward(self, images: Tensor, boxes: list[Tensor]) -> Tensor:
            return self.layer(images, boxes)

    input = features(2, 3, 9, 13, device=device)
    module = Pooling()
    assert torch.equal(scripted(module)(input, boxes_per_image), module(input, boxes_per_image))


def test_scripted_nms(device: torch.device) -> None:
    boxes, scores, idxs = (tensor.to(device) for tensor in make_set(100))
    for groups in (idxs, idxs.float()):
        kept = scripted(detector.layers.batched_nms)(boxes, scores, groups, 0.5)
        assert torch.equal(kept, detector.layers.batched_nms(boxes, scores, groups, 0.5))
    assert torch.equal(scripted(detector.layers.nms)(boxes, scores, 0.5),
                       detector.layers.nms(boxes, scores, 0.5))  # fmt: skip
    mask, count = scripted(detector.layers.nms_mask)(boxes, scores, 0.5, None)
    assert mask.sum() == count


# ---- torch.fx ----


class Calls(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, images: Tensor, boxes: Tensor) -> Tensor:
        return self.layer(images, boxes)


@pytest.mark.parametrize("name", MODULES)
def test_fx_traces_modules(name: str, device: torch.device) -> None:
    module = MODULES[name](detector.layers, 2)
    input, boxes = features(2, 3, 9, 13, device=device), make_boxes(20, device=device)
    assert torch.equal(torch.fx.symbolic_trace(module)(input, boxes), module(input, boxes))


@pytest.mark.parametrize("name", MODULES)
def test_module_is_one_node_of_a_trace(name: str) -> None:
    """torchvision's create_feature_extractor can then select the output of the layer."""
    trained, evaluated = get_graph_node_names(Calls(MODULES[name](detector.layers, 2)))
    assert trained == evaluated
    assert trained[:2] == ["images", "boxes"]
    assert len(trained) == 3


def test_fx_traces_nms() -> None:
    boxes, scores, _ = make_set(50)
    traced = torch.fx.symbolic_trace(detector.layers.nms, concrete_args={"iou_threshold": 0.5})
    assert torch.equal(traced(boxes, scores, 0.5), detector.layers.nms(boxes, scores, 0.5))


# ---- arguments ----


@pytest.mark.parametrize("name", MODULES)
def test_module_keywords(name: str) -> None:
    input, rois = features(2, 3, 9, 13), make_boxes(20, inverted=False)
    ours, theirs = (MODULES[name](module, 2)(input=input, rois=rois) for module in BOTH)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("op", ROI_OPS)
def test_integers_of_numpy_as_sizes(op: str) -> None:
    input, rois = features(2, 3, 9, 13), make_boxes(20)
    for module in BOTH:
        function = getattr(module, op)
        expected = function(input, rois, (3, 3))
        for size in (np.int64(3), (np.int32(3), np.int64(3)), [np.uint8(3), 3]):
            assert torch.equal(function(input, rois, size), expected)


def test_integers_of_numpy_in_other_ops() -> None:
    input, weight = torch.rand(1, 2, 5, 5), torch.rand(2, 1, 3, 3)
    resized = detector.layers.upsample_bilinear2d(input, (np.int64(7), np.int64(8)))
    assert torch.equal(resized, detector.layers.upsample_bilinear2d(input, (7, 8)))
    strided = detector.layers.depthwise_conv2d(input, weight, stride=np.int64(2), padding=(np.int32(1), 1))
    assert torch.equal(strided, detector.layers.depthwise_conv2d(input, weight, stride=2, padding=1))


@pytest.mark.parametrize("op", ROI_OPS)
def test_wrong_shape_of_boxes_is_an_assertion_error(op: str) -> None:
    for module in BOTH:
        for boxes in (torch.zeros(1, 4), [torch.zeros(1, 3)]):
            with pytest.raises(AssertionError):
                getattr(module, op)(torch.zeros(1, 1, 8, 8), boxes, (2, 2))


def test_wrong_shapes_for_nms_are_runtime_errors() -> None:
    for shapes in [((4,), (3,)), ((3, 5), (3,)), ((3, 4), (3, 2)), ((3, 4), (4,))]:
        for module in BOTH:
            with pytest.raises(RuntimeError):
                module.nms(*(torch.rand(shape) for shape in shapes), 0.5)


def test_batched_nms_of_no_boxes_without_scores() -> None:
    empty = torch.empty(0, dtype=torch.int64)
    for module in BOTH:
        assert torch.equal(module.batched_nms(empty, None, None, None), empty)
        assert torch.equal(module.batched_nms(torch.empty(0, 4), None, None, 0.5), empty)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16, torch.float64])
def test_any_dtype_of_groups(dtype: torch.dtype, device: torch.device) -> None:
    boxes, scores, idxs = (tensor.to(device) for tensor in make_set(300))
    groups = (idxs * -1).to(dtype)  # contains 0 and, as a floating-point number, -0
    expected = expected_batched(boxes.cpu(), scores.cpu(), groups.cpu(), 0.5)
    assert torch.equal(detector.layers.batched_nms(boxes, scores, groups, 0.5).cpu(), expected)


# ---- extreme values ----


def test_minus_infinity_and_nan_in_roi_pool() -> None:
    input = torch.full((1, 1, 4, 4), -math.inf)
    input[0, 0, :, 2:] = torch.nan
    ours, theirs = (module.roi_pool(input, torch.tensor([[0, 0, 0, 3, 3.0]]), 2) for module in BOTH)
    assert torch.equal(ours, theirs)
    assert torch.equal(ours, torch.full((1, 1, 2, 2), torch.finfo(torch.float32).min))


def test_minus_infinity_in_roi_align() -> None:
    input = features(1, 1, 6, 6).detach()
    input[0, 0, 2, 2] = -math.inf
    boxes = torch.tensor([[0, 0.2, 0.3, 4.1, 4.2]], dtype=torch.float64)
    ours, theirs = (module.roi_align(input, boxes, 4, sampling_ratio=2) for module in BOTH)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert ours.isinf().any()


def test_differences_from_torchvision() -> None:
    """What docs/layers.md says of NaN boxes and thresholds: an error here, a value there."""
    boxes, scores, _ = make_set(5)
    boxes[2, 1] = torch.nan
    assert len(torchvision.ops.nms(boxes, scores, 0.5)) > 0
    with pytest.raises(RuntimeError, match=r"boxes\[2, 1\] is nan"):
        detector.layers.nms(boxes, scores, 0.5)
    rois = torch.tensor([[0, 0, 0, torch.nan, 3.0]])
    assert torchvision.ops.roi_pool(torch.zeros(1, 1, 4, 4), rois, 2).shape == (1, 1, 2, 2)
    with pytest.raises(RuntimeError, match=r"boxes\[0, 3\] is nan"):
        detector.layers.roi_pool(torch.zeros(1, 1, 4, 4), rois, 2)
