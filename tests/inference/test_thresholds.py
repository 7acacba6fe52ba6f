"""thresholds.json: what is written is used for the same weights, and is validated on load."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from random_run import CLASSES, make_run

import detector
from detector.evaluation.thresholds import Threshold
from detector.inference.thresholds import FILE, encode, find_thresholds, read
from detector.utils.errors import DataError
from detector.utils.files import file_digest

PIXELS = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
CHOSEN = [Threshold(0.25, "tags", 0.5), Threshold(0.5, "boxes", 0.75), Threshold(0.0, "none", 0.0)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_run(tmp_path / "run")
    (folder / FILE).write_bytes(encode(CHOSEN, CLASSES, file_digest(folder / "model_final.pt")))
    return folder


def test_a_predictor_takes_the_threshold_of_each_class(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    every = detector.load(run, "cpu", score_threshold=0)(PIXELS)
    values = torch.tensor([each.value for each in CHOSEN])
    expected = every[every.scores > values[every.labels]]
    with caplog.at_level(logging.INFO, "detector"):
        found = detector.load(run, "cpu")(PIXELS)
    assert 0 < len(expected) < len(every)
    assert (found.boxes.tolist(), found.names) == (expected.boxes.tolist(), expected.names)
    assert f"a box scores more than {CLASSES[0]} 0.25, {CLASSES[1]} 0.50, {CLASSES[2]} 0.00" in caplog.text
    assert str(run / FILE) in caplog.text
    assert len(detector.load(run, "cpu", score_threshold=0.9)(PIXELS)) < len(found)


def test_other_weights_have_none(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = run / "model_final.pt"
    assert read(run, CLASSES, file_digest(weights)) == CHOSEN
    (run / FILE).write_bytes(encode(CHOSEN, CLASSES, "0" * 64))
    assert find_thresholds(weights, CLASSES).tolist() == pytest.approx([0.3] * 3)
    with caplog.at_level(logging.INFO, "detector"):
        detector.load(run, "cpu")
    assert f"a box scores more than 0.3; detector test {run} chooses this" in caplog.text
    (run / FILE).unlink()
    assert find_thresholds(weights, CLASSES).tolist() == pytest.approx([0.3] * 3)
    assert find_thresholds(weights, CLASSES, 0.5).tolist() == [0.5] * 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda content: content["classes"].pop(CLASSES[0]), "it has the classes"),
        (lambda content: content.update(classes=None), "it has no classes"),
        (lambda content: content["classes"].update({CLASSES[0]: 3}), "the entry of"),
        (lambda content: content["classes"][CLASSES[0]].update(value=1.5), "expected a value and an f1 from"),
        (lambda content: content["classes"][CLASSES[0]].update(value="0.3"), "expected a value and an f1"),
        (lambda content: content["classes"][CLASSES[0]].update(value=True), "expected a value and an f1"),
        (lambda content: content["classes"][CLASSES[0]].pop("f1"), "expected a value and an f1"),
    ],
)
def test_a_damaged_file_is_named(run: Path, change, problem: str) -> None:
    content = json.loads((run / FILE).read_text())
    change(content)
    (run / FILE).write_text(json.dumps(content))
    with pytest.raises(DataError, match=problem) as caught:
        detector.load(run, "cpu")
    assert str(run / FILE) in str(caught.value)
    assert "run `detector test` again" in str(caught.value)
    detector.load(run, "cpu", score_threshold=0.3)
