"""example.py, which `detector export` writes, runs with numpy, onnxruntime and Pillow alone."""

import json
import shutil
from pathlib import Path

import pytest
from onnx_cases import run_example
from PIL import Image

from detector.inference import onnx_example

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def write_network(path: Path) -> None:
    """A network whose one box is as large as the image, and whose second is below the threshold."""
    make, types = onnx.helper, onnx.TensorProto
    names = {
        "scores": ([0.75, 0.25], types.FLOAT, (2,)),
        "labels": ([1, 0], types.INT64, (2,)),
        "image_index": ([0, 0], types.INT64, (2,)),
    }
    constants = [
        make.make_node("Constant", [], [name], value=make.make_tensor(name, kind, shape, values))
        for name, (values, kind, shape) in names.items()
    ]
    order = make.make_tensor("rows", types.INT64, (8,), [0, 0, 2, 1, 0, 0, 2, 1])
    nodes = [
        *constants,
        make.make_node("Constant", [], ["rows"], value=order),
        make.make_node("Constant", [], ["size"], value=make.make_tensor("size", types.INT64, (2,), [2, 4])),
        make.make_node("Constant", [], ["zero"], value=make.make_tensor("zero", types.INT64, (1,), [0])),
        make.make_node("Reshape", ["sizes", "minus_one"], ["sides"]),
        make.make_node("Concat", ["zero", "sides"], ["places"], axis=0),
        make.make_node("Gather", ["places", "rows"], ["flat"]),
        make.make_node("Reshape", ["flat", "size"], ["whole"]),
        make.make_node("Cast", ["whole"], ["boxes"], to=types.FLOAT),
    ]
    flat = [make.make_tensor("minus_one", types.INT64, (1,), [-1])]
    inputs = [
        make.make_tensor_value_info("images", types.UINT8, ["batch", 3, "height", "width"]),
        make.make_tensor_value_info("sizes", types.INT64, ["batch", 2]),
    ]
    outputs = [
        make.make_tensor_value_info("boxes", types.FLOAT, [2, 4]),
        make.make_tensor_value_info("scores", types.FLOAT, [2]),
        make.make_tensor_value_info("labels", types.INT64, [2]),
        make.make_tensor_value_info("image_index", types.INT64, [2]),
    ]
    graph = make.make_graph(nodes, "network", inputs, outputs, flat)
    onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=10), path)


def test_it_prints_the_boxes_of_pictures(tmp_path: Path) -> None:
    shutil.copy(onnx_example.__file__, tmp_path / "example.py")
    write_network(tmp_path / "network.onnx")
    (tmp_path / "preprocess.json").write_text(
        json.dumps({"classes": ["cat", "chien é"], "thresholds": {"cat": 0.3, "chien é": 0.3}}),
        encoding="utf-8",
    )
    Image.new("L", (60, 40)).save(tmp_path / "gray.png")
    turned = Image.new("RGB", (60, 40))
    turned.save(tmp_path / "turned.jpg", exif=_orientation(6))
    lines = run_example(tmp_path, "network.onnx", "gray.png", "turned.jpg")
    assert lines == ["gray.png chien é 0.75 0 0 60 40", "turned.jpg chien é 0.75 0 0 40 60"]


def _orientation(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def test_it_is_short() -> None:
    code = Path(onnx_example.__file__).read_text().split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 22
