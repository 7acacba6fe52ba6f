"""detector.evaluate: where results go, and what they are of; tests/tools/test_test_net.py has the figures."""

import json
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from distributed_cases import evaluate_twice, run_processes
from random_run import make_run

import detector
from detector.commands import propose as proposing
from detector.config import load_cfg
from detector.data.build import build_dataset
from detector.data.proposals.search import make_finder, propose
from detector.data.reviewed import label_counts
from detector.data.toybox import CLASSES, draw_toybox
from detector.inference import test as testing
from detector.inference.results import image_label_warning, unreliable
from detector.utils.errors import UserError
from detector.utils.files import file_digest

pytestmark = pytest.mark.usefixtures("process_as_before")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run folder as training leaves it, with a data set of two images."""
    root = tmp_path_factory.mktemp("data") / "toybox"
    draw_toybox(root, train=1, test=1)
    images = {path.stem: path for path in sorted((root / "JPEGImages").iterdir())}
    find, parameters = make_finder("grid", 300)
    propose(images, root / "proposals.npz", find, parameters, workers=1)
    folder = tmp_path_factory.mktemp("runs") / "run"
    keys = {
        "OUTPUT_DIR": folder,
        "DEVICE": "cpu",
        "DATASETS.ROOT": root,
        "DATASETS.PROPOSALS": root / "proposals.npz",
        "DATASETS.WORKERS": 0,
    }
    return make_run(folder, *[str(word) for pair in keys.items() for word in pair], classes=CLASSES)


@pytest.fixture
def run(original, tmp_path):
    """A copy of it, so moved: its config names another folder."""
    return shutil.copytree(original, tmp_path / "moved")


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_metrics_show_that_all_else_is_written(run, monkeypatch):
    """`detector train --to detector` does not repeat a test that left them."""
    monkeypatch.setattr(testing, "write_pictures", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        detector.evaluate(run)
    assert not (run / "metrics.json").exists()


def test_a_moved_run_is_tested_where_it_is(run, original):
    before = files(original)
    metrics = detector.evaluate(run)
    assert metrics == json.loads((run / "metrics.json").read_text())
    assert metrics["changed_keys"] == {}
    assert {"metrics.json", "detections.npz", "log.txt", "pictures/overview.png"} < set(files(run))
    assert files(original) == before
    again = detector.evaluate(run / "config.yaml", {"TEST.PICTURES": 1})  # which changes no figure
    assert again == {**metrics, "changed_keys": {"TEST.PICTURES": 1}}
    assert files(run / "pictures") == ["01_000002.png", "overview.png"]
    assert not (run / "results").exists()
    assert not (run / "tests").exists()


@pytest.mark.parametrize("change", ["keys", "weights"])
def test_another_test_has_a_folder_of_its_own(run, change, capsys):
    detector.evaluate(run)
    before = {name: (run / name).read_bytes() for name in files(run)}
    keys, weights = {}, None
    if change == "keys":
        keys = {"INPUT.TEST_SIZES": [48]}
    else:
        weights = run / "checkpoints" / "000001.pt"
        weights.parent.mkdir()
        shutil.copy(run / "model_final.pt", weights)
    capsys.readouterr()
    for _ in range(2):  # the same test replaces its own files
        metrics = detector.evaluate(run, keys, weights=weights)
    (folder,) = (run / "tests").iterdir()
    stem = "model_final-" if change == "keys" else "000001-"
    assert folder.name.startswith(stem)
    assert metrics == json.loads((folder / "metrics.json").read_text())
    assert metrics["changed_keys"] == keys
    assert metrics["weights"] == str(weights or run / "model_final.pt")
    assert ((48,) if keys else (64,)) == load_cfg(folder / "config.yaml").input.test_sizes
    told = capsys.readouterr()
    assert str(folder / "metrics.json") in told.out
    assert f"the results go to {folder}" in told.err
    assert all((run / name).read_bytes() == content for name, content in before.items())


def test_a_folder_without_a_run_is_the_tests_own(run, tmp_path):
    other = tmp_path / "half"
    for _ in range(2):
        detector.evaluate(run / "config.yaml", {"OUTPUT_DIR": str(other)}, weights=run / "model_final.pt")
    assert {"metrics.json", "config.yaml", "detections.npz"} < set(files(other))
    assert not (other / "tests").exists()
    keys = {"OUTPUT_DIR": str(other), "INPUT.TEST_FLIP": False}
    before = (other / "metrics.json").read_bytes()
    detector.evaluate(run / "config.yaml", keys, weights=run / "model_final.pt")
    assert (other / "metrics.json").read_bytes() == before
    assert len(list((other / "tests").glob("*/metrics.json"))) == 1


def test_classes_that_are_classified_by_chance_are_named(tmp_path, capfd):
    """Random weights: every class whose image AP is near the share of the images that show it."""
    draw_toybox(tmp_path / "toybox", train=1, test=6)
    keys = {"OUTPUT_DIR": tmp_path / "run", "DEVICE": "cpu", "DATASETS.ROOT": tmp_path / "toybox"}
    keys |= {"DATASETS.PROPOSALS": tmp_path / "proposals.npz", "DATASETS.WORKERS": 0}
    words = [str(word) for pair in keys.items() for word in pair]
    run = make_run(tmp_path / "run", *words, classes=CLASSES)
    proposing.make_proposals(config_file=run / "config.yaml", workers=1)
    metrics = detector.evaluate(run)
    counts = label_counts(build_dataset(load_cfg(run / "config.yaml"), "test"))
    chance = {name: shown / (shown + absent) for name, (shown, absent) in counts.items()}
    ap = {name: values["image_AP"] for name, values in metrics["per_class"].items() if chance[name]}
    unlearned = [name for name in ap if ap[name] / 100 < chance[name] + 0.1 * (1 - chance[name])]
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "hardly better" in line]
    assert unlearned
    assert f"image AP is {metrics['image_mAP']:.0f}, hardly" in line
    for name, value in ap.items():
        assert (f"{name} {value:.0f} ({100 * chance[name]:.0f})" in line) == (name in unlearned)


@pytest.mark.parametrize(("ap", "doubted"), [(89.4, True), (90.0, False)])
def test_labels_that_are_not_learned_well_are_doubted(ap, doubted):
    metrics = {"per_class": {"cat": {"image_AP": ap}}, "image_mAP": ap}
    slow, fast = (image_label_warning(metrics, {"cat": (1, 3)}, factor) for factor in (0.2, 1.0))
    assert slow.startswith("image AP is 89. Boxes are unreliable") if doubted else slow == ""
    assert ("BACKBONE_LR_FACTOR" in slow, "BACKBONE_LR_FACTOR" in fast) == (doubted, False)


@pytest.mark.parametrize("name", ["metrics.json", "detections.npz", "pictures/overview.png"])
def test_files_of_others_are_refused_before_the_test(run, name):
    mine = run / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(UserError, match=f"{mine} exists and is not what this command wrote"):
        detector.evaluate(run)
    assert mine.read_text() == "mine"
    assert not (run / "results").exists()


def test_other_files_stay(run):
    kept = ["results/mine.jsonl", "pictures/01_mine.png", "pictures/99_x.png"]
    for name in kept:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("mine")
    detector.evaluate(run)
    assert [(run / name).read_text() for name in kept] == ["mine"] * 3


def test_all_processes_return_the_metrics_of_each_test(run):
    """Twice in one torchrun, as after `detector.train`: the groups of processes do not share addresses."""
    results = run_processes(evaluate_twice, 2, str(run))
    first, second = json.loads((run / "metrics.json").read_text()), results[0][1]
    assert results == [(first, second)] * 2
    assert second["changed_keys"] == {"INPUT.TEST_SIZES": [48]}


@pytest.mark.parametrize(("image_ap", "doubted"), [(None, False), (95.0, False), (82.0, True)])
def test_boxes_of_a_run_that_has_not_learned_its_labels_are_doubted(tmp_path, image_ap, doubted):
    weights = tmp_path / "model_final.pt"
    weights.write_bytes(b"weights")
    assert unreliable(weights) == ""  # not tested
    metrics = {"image_mAP": image_ap, "weights_sha256": file_digest(weights)}
    (tmp_path / "metrics.json").write_text(json.dumps(metrics))
    assert ("image AP is 82" in unreliable(weights)) is doubted
    weights.write_bytes(b"others")  # trained again, and not tested
    assert unreliable(weights) == ""
