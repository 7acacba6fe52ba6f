"""tools/test_net.py: from weights to figures and pictures."""

import json
from pathlib import Path

import pytest

from detector.data.toybox import CLASSES

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


@pytest.fixture
def commands(command, overrides):
    """The two commands; each takes more words and returns its exit status."""

    def run(name):
        return lambda *words: command(name)(["--config-file", CONFIG, *overrides, *words])

    return run("train"), run("test")


@pytest.mark.parametrize("words", [(), ("MODEL.REGRESSION.ENABLED", "True")])
def test_figures_pictures_and_table(commands, tmp_path, capsys, words):
    train, test = commands
    assert train("SOLVER.MAX_ITER", "1", *words) == 0
    capsys.readouterr()
    assert test("TEST.PICTURES", "2", *words) == 0
    folder = tmp_path / "run"
    metrics = json.loads((folder / "metrics.json").read_text())
    for name in ("mAP50", "mAP50_11point", "CorLoc"):
        assert 0 <= metrics[name] <= 100
    assert list(metrics["per_class"]) == list(CLASSES)
    assert metrics["train_seconds"] > 0
    assert (metrics["method"], metrics["iteration"]) == ("pcl", 1)
    assert len(list((folder / "pictures").glob("*.png"))) == 3  # two, and the overview
    table = capsys.readouterr().out
    assert "on toybox_test, CorLoc on toybox_trainval" in table
    assert all(name in table for name in (*CLASSES, "metrics.json", "overview.png"))


def test_named_weights_and_another_model(commands, tmp_path, capsys):
    train, test = commands
    assert train() == 0
    weights = str(tmp_path / "run" / "checkpoints" / "000002.pt")
    assert test("--weights", weights) == 0
    (metrics,) = (tmp_path / "run" / "tests").glob("000002-*/metrics.json")
    assert json.loads(metrics.read_text())["iteration"] == 2
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert test("MODEL.METHOD", "wsddn") == 2
    assert "model_final.pt is of another model: it has head.refinements.0" in capsys.readouterr().err


def test_without_weights_the_error_says_what_to_do(commands, capsys):
    assert commands[1]() == 2
    assert capsys.readouterr().err.startswith("error: checkpoint ")
