"""Quantized networks: small, nearly as before, with the last layers in float32."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES, draw_toybox
from detector.inference.export import load_program
from detector.inference.exported_student import pad_images
from detector.inference.quantize import mean_ap, quantize_onnx, spread
from detector.utils.errors import MissingPackage

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def write_network(path: Path) -> None:
    """A convolution, and one that gives scores."""
    make, generator = onnx.helper, np.random.default_rng(0)
    shapes = {"body.weight": (32, 3, 3, 3), "head.cls_logits.weight": (2, 32, 1, 1)}
    weights = [
        onnx.numpy_helper.from_array(generator.normal(0, 0.1, shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        make.make_node("Cast", ["images"], ["pixels"], to=onnx.TensorProto.FLOAT),
        make.make_node("Conv", ["pixels", "body.weight"], ["features"], name="first"),
        make.make_node("Relu", ["features"], ["active"]),
        make.make_node("Conv", ["active", "head.cls_logits.weight"], ["scores"], name="last"),
    ]
    images = make.make_tensor_value_info("images", onnx.TensorProto.UINT8, [1, 3, "height", "width"])
    sizes = make.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [1, 2])
    scores = make.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, [1, 2, "h", "w"])
    graph = make.make_graph(nodes, "network", [images, sizes], [scores], weights)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=10), path)


def test_convolutions_are_quantized_except_the_last(tmp_path: Path) -> None:
    images = [torch.randint(256, (3, 20, 24)).byte() for _ in range(4)]
    path, small = tmp_path / "a.onnx", tmp_path / "b.onnx"
    write_network(path)
    quantize_onnx(path, small, images)
    (found,), (expected,) = (load_program("onnx", each)(*pad_images(images[3:])) for each in (small, path))
    assert 0 < (found - expected).abs().max() < 0.05 * expected.abs().max()
    model = onnx.load(small)
    producers = {output: node.op_type for node in model.graph.node for output in node.output}
    convolutions = {node.name: node for node in model.graph.node if node.op_type == "Conv"}
    assert producers[convolutions["first"].input[1]] == "DequantizeLinear"
    assert convolutions["last"].input[1] == "head.cls_logits.weight"
    quantize_onnx(path, path, images)  # in its place, the same network again
    (again,) = load_program("onnx", path)(*pad_images(images[3:]))
    assert again.equal(found)


def test_ap_of_exported_networks(tmp_path: Path) -> None:
    draw_toybox(tmp_path / "toybox", train=1, test=4)
    dataset = VOCDataset(tmp_path / "toybox", "test", CLASSES)
    order = iter(range(9))

    def right(images: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, ...]:
        truth = dataset.annotation(next(order))
        return truth.boxes, torch.ones(len(truth.boxes)), truth.labels, torch.zeros_like(truth.labels)

    assert mean_ap(right, dataset, 3) == (100.0, 3)
    nothing = torch.zeros(0, 4), torch.zeros(0), *torch.zeros(2, 0, dtype=torch.int64)
    assert mean_ap(lambda *images: nothing, dataset, 100) == (0.0, 4)


def test_paths_are_spread_evenly() -> None:
    paths = [Path(str(i)) for i in range(10)]
    assert [int(str(path)) for path in spread(paths, 4)] == [0, 2, 5, 7]
    assert spread(paths, 10) == spread(paths, 30) == paths


def test_without_onnx_the_error_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackage, match="pip install onnx onnxscript onnxruntime"):
        quantize_onnx(tmp_path / "a.onnx", tmp_path / "b.onnx", [])
