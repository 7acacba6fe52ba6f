"""tools/voc07.py: its whole path on a made-up VOC of 14 images, and what it refuses."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from detector.config import VOC_CLASSES, load_cfg
from detector.data.datasets.voc import VOCDataset
from detector.data.proposals import load_proposals, save_proposals
from detector.modeling.build import build_model
from detector.modeling.weights import TORCHVISION, Weights, save_weights

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "configs/voc07_pcl_pytorch_vgg16.yaml"
TINY = {
    "DEVICE": "cpu",
    "PRECISION": "float32",
    "DATASETS.WORKERS": 0,
    "INPUT.TRAIN_SIZES": "(48,64)",
    "INPUT.TEST_SIZES": "(48,)",
    "INPUT.TEST_FLIP": "False",
    "MODEL.BOX_FEATURES.WIDTHS": "(16,16)",
    "SOLVER.IMAGES_PER_STEP": 2,
    "SOLVER.MAX_ITER": 2,
    "SOLVER.STEPS": "(1,)",
    "SOLVER.CHECKPOINT_PERIOD": 1,
    "SOLVER.LOG_PERIOD": 1,
    "SOLVER.PICTURE_PERIOD": 0,
    "TEST.PICTURES": 0,
}


@pytest.fixture(scope="module")
def voc(tmp_path_factory):
    """10 + 4 images with labels, objects and proposals, 4 of which are about the objects."""
    spec = importlib.util.spec_from_file_location("made_up_voc", ROOT / "benchmarks/made_up_voc.py")
    made_up_voc = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made_up_voc)
    root = tmp_path_factory.mktemp("data") / "VOC2007"
    made_up_voc.make_voc(root, train=10, test=4, proposals=30)
    return root


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Files of a VGG16 that is narrow behind the convolutions, scaled like torchvision's and like Caffe's."""
    folder = tmp_path_factory.mktemp("weights")
    words = [word for pair in TINY.items() for word in pair]
    model = build_model(load_cfg(RECIPE, words))
    tensors = dict(model.backbone.state_dict())
    tensors |= {f"classifier.{k}": v for k, v in model.box_features.layers.state_dict().items()}
    for name, factor in (("torchvision", 1.0), ("caffe", 58.0)):
        scaled = {**tensors, "features.0.weight": tensors["features.0.weight"] * factor}
        save_weights(folder / f"{name}.pth", Weights(scaled, TORCHVISION))
    return folder


@pytest.fixture
def words(voc, weights, tmp_path):
    values = {
        **TINY,
        "OUTPUT_DIR": tmp_path / "run",
        "DATASETS.ROOT": voc,
        "DATASETS.PROPOSALS": voc / "proposals.npz",
        "MODEL.WEIGHTS": weights / "caffe.pth",
    }
    return [str(word) for pair in values.items() for word in pair]


def test_from_the_checks_to_the_result(words, command, load_tool, tmp_path, capsys, monkeypatch):
    """The training was interrupted after half of its steps; the command finishes it, tests and compares."""
    half = [*words, "SOLVER.MAX_ITER", "1"]
    assert command("train")(["--config-file", str(RECIPE), *half]) == 0
    (tmp_path / "run/model_final.pt").unlink()
    tool, arguments = load_tool("voc07"), ["--config-file", str(RECIPE), "--force", *words]
    assert tool.main(arguments) == 0
    output = capsys.readouterr().out
    assert "weights    of Caffe" in output
    assert "has 10 images, expected the 5011" in output
    assert re.search(r"mAP50 \(11 points\) +\d+\.\d +49\.2", output)
    assert "Not comparable" in output
    result = json.loads((tmp_path / "run/RESULT.json").read_text())
    assert result["recipe"] == "voc07_pcl_pytorch_vgg16"
    assert result["published"] == {"mAP50_11point": 49.2, "CorLoc": 65.0}
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert result["found"] == {name: metrics[name] for name in ("mAP50_11point", "CorLoc")}
    assert (result["steps"], result["checks"]["trainval"]["images"]) == (2, 10)
    assert len(result["problems"]) == 4  # two splits, the number of proposals and their recall
    assert result["tested_with"]["packages"]["torch"] == torch.__version__
    assert result["trained_with"]["device"] == "cpu"
    resumed = (tmp_path / "run/log.txt").read_text().split("steps       2")[1]
    assert "step 2/2" in resumed
    assert "step 1/2" not in resumed

    monkeypatch.setattr(tool, "train", lambda *_, **__: pytest.fail("it is trained again"))
    (tmp_path / "run/RESULT.json").unlink()
    assert tool.main(["--config-file", RECIPE.stem, *arguments[2:], "INPUT.TEST_SIZES", "(64,)"]) == 0
    other = json.loads((tmp_path / "run/RESULT.json").read_text())
    (path,) = (tmp_path / "run/tests").glob("*/metrics.json")  # with other sizes it is a test of its own
    assert other["per_class"] == json.loads(path.read_text())["per_class"] != result["per_class"]
    assert other["published"] == result["published"]


def test_other_files_than_the_recipes_are_refused(words, weights, load_tool, tmp_path, caplog, capsys):
    tool, arguments = load_tool("voc07"), ["--config-file", str(RECIPE), *words]
    assert tool.main([*arguments, "MODEL.WEIGHTS", str(weights / "torchvision.pth")]) == 2
    assert "expected the 5011" in caplog.text
    assert "torchvision weights, the recipe has those of Caffe" in caplog.text
    assert not (tmp_path / "run").exists()
    assert tool.main([*arguments, "--check-only", "--force"]) == 0
    assert capsys.readouterr().out.endswith("next: the same command without --check-only\n")
    assert not (tmp_path / "run").exists()


def test_missing_weights_are_named_before_the_proposals_are_measured(words, load_tool, monkeypatch, caplog):
    tool = load_tool("voc07")
    monkeypatch.setattr(tool, "measure_proposals", lambda *_: pytest.fail("the proposals are measured"))
    assert tool.main(["--config-file", str(RECIPE), *words, "MODEL.WEIGHTS", "none.pth"]) == 2
    assert "none.pth is not a file: make it with tools/convert_weights.py" in caplog.text


def test_the_counts_are_those_of_voc07(load_tool):
    tool = load_tool("voc07")
    totals = {split: sum(counts) for split, counts in tool.OBJECTS.items()}
    assert totals == {"trainval": 12608, "test": 12032}
    assert {split: len(counts) for split, counts in tool.OBJECTS.items()} == {"trainval": 20, "test": 20}


def test_a_split_with_other_objects_is_named(voc, load_tool, monkeypatch):
    tool, dataset = load_tool("voc07"), VOCDataset(voc, "test", VOC_CLASSES)
    monkeypatch.setattr(tool, "IMAGES", {"test": 4})
    counts = tool.objects_by_class(dataset)
    monkeypatch.setattr(tool, "OBJECTS", {"test": tuple(counts.tolist())})
    assert tool.voc07_problems("test", dataset) == []
    counts[14] += 1
    monkeypatch.setattr(tool, "OBJECTS", {"test": tuple(counts.tolist())})
    (problem,) = tool.voc07_problems("test", dataset)
    assert f"person {counts[14] - 1} for {counts[14]}" in problem


def test_proposals_that_cover_everything_have_no_problem_but_their_number(voc, load_tool, tmp_path):
    tool, dataset = load_tool("voc07"), VOCDataset(voc, "trainval", VOC_CLASSES)
    random = load_proposals(voc / "proposals.npz")
    boxes = [
        np.concatenate([dataset.annotation(i).boxes.numpy(), random[image_id].numpy()])
        for i, image_id in enumerate(dataset.image_ids)
    ]
    sizes = [dataset.image_size(i) for i in range(len(dataset))]
    save_proposals(tmp_path / "p.npz", dataset.image_ids, boxes, sizes)
    cfg = load_cfg(RECIPE, ["DATASETS.PROPOSALS", str(tmp_path / "p.npz")])
    measured = tool.measure_proposals(cfg, dataset)
    assert measured["recall at 0.5"] == 1.0
    assert 30 <= measured["an image"] <= 33
    (problem,) = tool.proposal_problems(measured)
    assert "expected about 2000" in problem


def test_the_published_figures_are_those_of_the_header(load_tool):
    tool = load_tool("voc07")
    ours = tool.published_figures(ROOT / "configs/voc07_ours_oicr_reg_vgg16.yaml")
    mist = tool.published_figures(ROOT / "configs/voc07_mist_reg_wetectron_vgg16.yaml")
    assert (ours, mist) == (None, {"mAP50_11point": 54.9, "CorLoc": 68.8})


def test_the_report_says_that_seeds_differ_by_points(load_tool):
    result = {
        "recipe": "voc07_mist_reg_wetectron_vgg16",
        "steps": 30000,
        "train_seconds": 60.0,
        "found": {"mAP50_11point": 52.2, "CorLoc": None},
        "published": {"mAP50_11point": 54.9, "CorLoc": 68.8},
        "problems": [],
    }
    text = load_tool("voc07").report(result)
    assert "Nobody" not in text
    assert "1 to 3 points" in text
