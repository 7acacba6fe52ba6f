"""`detector export`: what is written runs without the model's code and says what the model says."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from random_run import make_run

import detector
from detector.commands import export as exporting
from detector.inference.export import largest_difference, load_program, save_program
from detector.inference.exported import SamePadding, ScoresAndBoxes, export_program
from detector.modeling.backbones.small import SmallBackbone
from detector.modeling.box_features import BoxFeatures
from detector.modeling.head import Head
from detector.modeling.regression import RegressionBranch
from detector.modeling.weak_rcnn import WeakRCNN

ROOT = Path(__file__).parents[2]


def random_inputs(images: int, height: int, width: int, counts: list[int]) -> tuple[torch.Tensor, ...]:
    corners = torch.rand(sum(counts), 2, 2) * torch.tensor([width, height])
    boxes = torch.cat([corners.amin(dim=1), corners.amax(dim=1)], dim=1)
    index = torch.arange(images).repeat_interleave(torch.tensor(counts)).float()
    pictures = torch.randint(256, (images, 3, height, width)).byte()
    sizes = torch.tensor([[height - i, width - 3 * i] for i in range(images)])
    return pictures, torch.cat([index[:, None], boxes], dim=1), torch.tensor(counts), sizes


@pytest.fixture(scope="module")
def inputs():
    torch.manual_seed(0)
    return [
        random_inputs(1, 64, 96, [30]),
        random_inputs(3, 97, 50, [5, 1, 14]),
        random_inputs(1, 16, 16, [1]),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("MODEL.METHOD", "wsddn", "MODEL.BOX_FEATURES.POOL", "roi_align", "MODEL.BOX_FEATURES.CONTEXT", 2.5),
        ("MODEL.REGRESSION.ENABLED", True, "MODEL.DROP_BLOCK.ENABLED", True),
        ("MODEL.BACKBONE.NAME", "timm", "MODEL.BACKBONE.TIMM_NAME", "tf_efficientnet_lite0"),
    ],
    ids=["wsddn and context", "regression", "timm"],
)
def test_all_sizes_stay_open(tmp_path, inputs, words):
    model = detector.load(make_run(tmp_path / "run", *words), "cpu").model
    program = export_program(model)
    assert largest_difference(ScoresAndBoxes(model), program.module(), inputs) < 1e-5
    assert not any(isinstance(module, SamePadding) for module in model.modules())  # a copy was changed


def tiny_network(pool="roi_pool", regression=None):
    """One stage and one stream: the C++ compiler needs a minute for the network of the toybox configs."""
    torch.manual_seed(0)
    features = BoxFeatures(8, 2, pool=pool, output_size=2, widths=(8,))
    return WeakRCNN(
        SmallBackbone((8,)),
        features,
        Head(8, 3, 1, init_std=1.0),
        regression=regression,
        pixel_mean=(0.5,) * 3,
        pixel_std=(0.2,) * 3,
    ).eval()


@pytest.mark.parametrize(
    ("pool", "regression"), [("roi_pool", None), ("roi_align", RegressionBranch(8, 3, init_std=1.0))]
)
def test_onnx_knows_both_poolings(tmp_path, inputs, pool, regression):
    pytest.importorskip("onnxscript")
    model, path = tiny_network(pool, regression), tmp_path / "a.onnx"
    save_program(export_program(model), "onnx", path)
    network = load_program("onnx", path)
    assert largest_difference(ScoresAndBoxes(model), network, inputs) < 1e-5


class Doubled(torch.nn.Module):
    """A network with an op of ours that ONNX does not support."""

    def forward(self, images, rois, counts, sizes):
        return torch.ops.detector.quick_gelu_forward(rois), rois


def test_an_op_that_onnx_does_not_support_is_named(tmp_path):
    pytest.importorskip("onnxscript")
    program = torch.export.export(Doubled(), random_inputs(1, 32, 32, [4]))
    with pytest.raises(ValueError, match=r"ONNX has no counterpart of detector\.quick_gelu_forward"):
        save_program(program, "onnx", tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def test_without_a_compiler_or_onnxscript_the_error_says_what_to_install(tmp_path, monkeypatch):
    program = torch.export.export(Doubled(), random_inputs(1, 32, 32, [4]))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler.*install g\+\+"):
        save_program(program, "aot_inductor", tmp_path / "a.pt2")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    monkeypatch.delitem(sys.modules, "detector.layers.onnx_ops", raising=False)
    with pytest.raises(ImportError, match="pip install onnx onnxscript onnxruntime"):
        save_program(program, "onnx", tmp_path / "a.onnx")


_RUN_ALONE = """
import json, sys, torch
for name in ("detector.modeling", "detector.engine", "detector.self_training", "yacs"):
    sys.modules[name] = None
import detector.layers  # the ops
networks = [torch.export.load("torch_export.pt2").module()]
networks += [torch._inductor.aoti_load_package("aot_inductor.pt2")]
torch.save([network(*torch.load("inputs.pt")) for network in networks], "outputs.pt")
"""


@pytest.mark.slow
def test_files_run_in_a_process_without_the_models_code(tmp_path, inputs):
    model = tiny_network()
    program = export_program(model)
    # Each file is compiled once: without optimization, and without a compiled header for later ones.
    quick = {
        "aot_inductor.compile_wrapper_opt_level": "O0",
        "aot_inductor.precompile_headers": False,
        "cpp_cache_precompile_headers": False,
    }
    with torch._inductor.config.patch(quick):
        for form in ("torch_export", "aot_inductor"):
            save_program(program, form, tmp_path / f"{form}.pt2")
    torch.save(inputs[1], tmp_path / "inputs.pt")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", _RUN_ALONE], check=True, env=environment, cwd=tmp_path)
    for alone in torch.load(tmp_path / "outputs.pt"):
        assert largest_difference(ScoresAndBoxes(model), lambda *_, alone=alone: alone, inputs[1:2]) < 1e-5


def test_the_command_keeps_what_agrees(command, tmp_path, capsys, monkeypatch):
    run = make_run(tmp_path / "run")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for side in (40, 56):
        Image.effect_noise((side, 48), 80).convert("RGB").save(pictures / f"{side}.png")
    program, programs = exporting.export_program, []

    def export_once(model):
        programs.append(programs[0] if programs else program(model))
        return programs[0]

    monkeypatch.setattr(exporting, "export_program", export_once)
    export = command("export")
    words = [str(run), "--format", "torch_export", "--images", str(pictures)]
    assert export(words) == 0
    assert "of the model on 2 images and 5 made from them" in capsys.readouterr().out
    path = run / "export" / "torch_export.pt2"
    about = json.loads(path.with_suffix(".json").read_text())
    assert about["check"]["difference"] <= 1e-5
    assert about["check"]["bytes"] == path.stat().st_size
    assert about["sizes"] == [64]
    kept = {key: about["proposals"][key] for key in ("mode", "sides", "min_size", "max_count")}
    assert kept == {"mode": "grid", "sides": [16, 64], "min_size": 8, "max_count": 40}
    content = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "largest_difference", lambda *_: math.nan)
        assert export(words) == 2
    assert "gives other figures than the model, by nan" in capsys.readouterr().err
    assert path.read_bytes() == content  # the earlier one, which passed
    assert sorted(each.name for each in path.parent.iterdir()) == [
        ".detector-outputs.jsonl",
        "torch_export.json",
        "torch_export.pt2",
    ]
    path.write_bytes(b"mine")
    assert export(words) == 2
    assert f"{path} exists and is not what this command wrote" in capsys.readouterr().err
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("place", ["scores", "boxes"])
def test_a_network_that_gives_nan_differs(place):
    scores, boxes = torch.rand(3, 2), torch.rand(3, 2, 4)
    wrong = {"scores": (scores.clone(), boxes), "boxes": (scores, boxes.clone())}[place]
    wrong[place == "boxes"][1, 1] = torch.nan
    inputs = [(torch.zeros(1, 3, 8, 8),)] * 2
    assert largest_difference(lambda _: (scores, boxes), lambda _: (scores, boxes), inputs) == 0
    assert math.isnan(largest_difference(lambda _: (scores, boxes), lambda _: wrong, inputs))


def test_no_images_to_check_with(command, tmp_path, capsys):
    run = make_run(tmp_path / "run", "DATASETS.ROOT", "nowhere")
    assert command("export")([str(run), "--format", "torch_export"]) == 2
    assert "error: no images to check with: nowhere is not a folder in VOC layout" in capsys.readouterr().err
    assert command("export")([str(run), "--format", "torch_export", "--count", "0"]) == 2
    assert "error: --count is 0, expected at least 1" in capsys.readouterr().err
    assert not (run / "export").exists()
