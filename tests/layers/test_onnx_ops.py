"""The table that torch.onnx.export takes, without the rest of the package."""

import copy
from pathlib import Path

import pytest
import torch
from nms_cases import make_set
from torch import Tensor, nn

from detector import layers


class Keep(nn.Module):
    def __init__(self, grouped: bool) -> None:
        super().__init__()
        self.grouped = grouped

    def forward(self, boxes: Tensor, scores: Tensor, idxs: Tensor) -> Tensor:
        if self.grouped:
            return layers.batched_nms(boxes, scores, idxs, 0.5)
        return layers.nms(boxes, scores, 0.5)


def test_group_norm_in_onnx_is_exact_in_large_images(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    from detector.layers.onnx_ops import translations

    network = nn.GroupNorm(4, 8)
    nn.init.normal_(network.weight)
    nn.init.normal_(network.bias)
    images = [torch.randn(2, 8, height, width) + 3 for height, width in ((1200, 64), (3, 500), (1, 1))]
    path, sides = tmp_path / "norm.onnx", {2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC}
    options = {"opset_version": 18, "custom_translation_table": translations(), "input_names": ["input"]}
    torch.onnx.export(network, (images[0],), path, dynamo=True, dynamic_shapes=(sides,), **options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for image in images:
        (found,) = session.run(None, {"input": image.numpy()})
        # Compared with float64, as either rounds in its own way. Sums in float32 would be off by 1e-4.
        exact = copy.deepcopy(network).double()(image.double())
        torch.testing.assert_close(torch.from_numpy(found).double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grouped", [False, True])
def test_nms_in_onnx(tmp_path: Path, grouped: bool) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    from detector.layers.onnx_ops import translations

    generator = torch.Generator().manual_seed(0)
    boxes, scores = make_set(40)[0].float(), torch.randint(20, (40,), generator=generator) / 20  # with ties
    boxes[::7], scores[::5] = boxes[::7][:, [2, 3, 0, 1]], -torch.inf  # inverted, and masked by the caller
    idxs = torch.randint(3, (40,), generator=generator) * 2  # group 1 is empty
    path, network = tmp_path / "nms.onnx", Keep(grouped)
    some = {0: torch.export.Dim("boxes")}
    torch.onnx.export(
        network,
        (boxes, scores, idxs),
        path,
        dynamo=True,
        opset_version=18,
        dynamic_shapes=(some, some, some),
        custom_translation_table=translations(),
        input_names=["boxes", "scores", "idxs"],
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wanted = [each.name for each in session.get_inputs()]
    for count in (40, 7, 0):
        inputs = boxes[:count], scores[:count], idxs[:count]
        feeds = dict(zip(("boxes", "scores", "idxs"), (each.numpy() for each in inputs), strict=True))
        (kept,) = session.run(None, {name: feeds[name] for name in wanted})
        assert kept.tolist() == network(*inputs).tolist()
    assert 1 < len(network(boxes, scores, idxs)) < 40
