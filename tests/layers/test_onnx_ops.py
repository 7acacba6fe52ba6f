"""The table that torch.onnx.export takes, without the rest of the package."""

import pytest
import torch
from nms_cases import make_set
from torch import Tensor, nn

from detector import layers


class Keep(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        return layers.nms(boxes, scores, 0.5)


def test_nms_in_onnx(tmp_path) -> None:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    from detector.layers.onnx_ops import translations

    boxes, scores, _ = make_set(40)
    boxes, scores = boxes.float(), torch.rand(40, generator=torch.Generator().manual_seed(0))
    path = tmp_path / "nms.onnx"
    table = translations()
    torch.onnx.export(
        Keep(), (boxes, scores), path, dynamo=True, opset_version=18, custom_translation_table=table
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    (kept,) = session.run(None, dict(zip(names, (boxes.numpy(), scores.numpy()), strict=True)))
    expected = layers.nms(boxes, scores, 0.5)
    assert 1 < len(expected) < 40
    assert kept.tolist() == expected.tolist()
