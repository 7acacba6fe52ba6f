"""detector.load: run folders and files, and what is no checkpoint or means harm."""

import pytest
import torch
from random_run import CLASSES, make_run

import detector
from detector.config import load_cfg
from detector.utils.errors import UserError


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture
def checkpoint(run_folder):
    return torch.load(run_folder / "model_final.pt", weights_only=True)


def test_a_folder_and_its_file_are_one_predictor(run_folder):
    image = torch.randint(0, 256, (3, 50, 70), dtype=torch.uint8)
    found, same = (detector.load(path)(image) for path in (run_folder, run_folder / "model_final.pt"))
    assert len(found.boxes) > 0
    assert found.boxes.equal(same.boxes)
    assert found.scores.equal(same.scores)
    assert set(found.names) <= set(CLASSES)
    assert [CLASSES[label] for label in found.labels.tolist()] == list(found.names)


def test_the_threshold_drops_what_scores_less(run_folder):
    image = torch.randint(0, 256, (3, 50, 70), dtype=torch.uint8)
    every = detector.load(run_folder, score_threshold=None)(image)
    middle = float(every.scores.median())
    some = detector.load(run_folder, "cpu", score_threshold=middle)(image)
    assert some.scores.equal(every.scores[every.scores > middle])
    usual = detector.load(run_folder)(image)
    assert usual.scores.equal(every.scores[every.scores > 0.3])
    assert len(usual.scores) < len(every.scores)


@pytest.mark.parametrize("threshold", [30, -0.1, float("nan"), "0.3"])
def test_a_threshold_is_from_0_to_1(run_folder, threshold):
    with pytest.raises(UserError, match=f"score_threshold is {threshold!r}, expected a number from 0 to 1"):
        detector.load(run_folder, score_threshold=threshold)


def test_another_model_is_named(run_folder):
    for path in (run_folder, run_folder / "model_final.pt"):
        with pytest.raises(UserError, match="model is 'studnet', expected 'auto', 'weak' or 'student'"):
            detector.load(path, model="studnet")


def test_a_config_is_not_what_to_load(run_folder):
    with pytest.raises(UserError, match=r"config\.yaml is a config, .* pass the run folder"):
        detector.load(run_folder / "config.yaml")


def test_a_file_with_its_config_needs_no_folder(run_folder, checkpoint, tmp_path):
    text = load_cfg(run_folder / "config.yaml", ["TEST.MAX_DETECTIONS", "1"]).dump()
    torch.save({**checkpoint, "config": text}, tmp_path / "a.pt")
    predictor = detector.load(
        tmp_path / "a.pt", overrides={"INPUT.TEST_SIZES": [48], "INPUT.TEST_FLIP": False}
    )
    assert predictor.class_names == CLASSES
    assert [(pass_.size, pass_.flip) for pass_ in predictor.transforms] == [(48, False)]
    assert len(predictor(torch.zeros(3, 50, 70, dtype=torch.uint8)).boxes) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the config in .*a\.pt is empty"),
        ("_BASE_: /etc/passwd", "there is no key _BASE_"),
        ("!!python/object/apply:os.system ['true']", "is not yaml"),
        ("- 1", "holds a list"),
        (
            "{MODEL: {BACKBONE: {NAME: timm, TIMM_NAME: 'hf-hub:a/b'}}}",
            "expected the plain name of a network",
        ),
        ("{DATASETS: {CLASSES: [], FORMAT: coco}}", "names no classes"),
    ],
)
def test_a_file_without_a_config_or_with_a_hostile_one_is_refused(checkpoint, tmp_path, text, message):
    torch.save({**checkpoint, "config": text}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=message):
        detector.load(tmp_path / "a.pt")


def test_what_is_not_there_is_named(run_folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model_final\.pt does not exist; .* is no run folder"):
        detector.load(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.pt does not exist"):
        detector.load(tmp_path / "nowhere.pt")
    with pytest.raises(ValueError, match="device is 'gpu', expected 'auto', 'cpu' or 'cuda'"):
        detector.load(run_folder, "gpu")


def test_other_names_are_unknown():
    with pytest.raises(AttributeError, match="module 'detector' has no attribute 'lode'"):
        detector.lode  # noqa: B018


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: detector.load(None), "path is None, expected the path of a run folder or a checkpoint"),
        (
            lambda: detector.evaluate(None),
            "config is None, expected the path of a run folder or a config file",
        ),
        (lambda: detector.train({"SEED": 1}), r"config is \{'SEED': 1\}, expected the path of a config file"),
        (
            lambda: detector.label("runs/demo", {"a.jpg": ["cat"]}),
            "labels is {.*}, expected the path of a table",
        ),
        (
            lambda: detector.label("runs/demo", "a.csv", ["a.jpg"]),
            r"images is \['a.jpg'\], expected the path of",
        ),
        (lambda: detector.label(None, "train.csv"), "weights is None, expected the path of a run folder"),
    ],
    ids=["load", "evaluate", "train", "labels", "images", "weights"],
)
def test_an_argument_that_is_no_path_is_named(call, message):
    with pytest.raises(UserError, match=message):
        call()
