"""`detector check --tags`: the table and the page of tags that are probably wrong."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from detector.commands import check_tags
from detector.config import load_cfg
from detector.data.build import build_training_set
from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES
from detector.evaluation.wrong_tags import WrongTags
from detector.labeling.tag_scores import TagScores, draw_folds, score_by_folds
from detector.modeling.build import build_model
from detector.utils.distributed import find_device

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


def read_table(run: Path) -> list[dict[str, str]]:
    with open(run / "check/tags.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def doubted(toybox, monkeypatch):
    """(image, class), a tag that is found to be missing."""
    dataset = VOCDataset(toybox, "trainval", CLASSES)
    image, label = np.argwhere(~dataset.all_labels())[0]

    def find(scores, tags, known):
        probability, joint = np.zeros(tags.shape), np.zeros((len(CLASSES), 2, 2))
        probability[image, label] = 0.9 * known[image, label]
        joint[label] = [[7, known[image, label]], [0, 4]]
        return WrongTags(probability, joint)

    heads = torch.full((len(dataset), 3, len(CLASSES)), 0.5)
    boxes = torch.tensor([1.0, 2, 30, 40]).repeat(len(dataset), len(CLASSES), 1)
    monkeypatch.setattr(check_tags, "find_wrong_tags", find)
    monkeypatch.setattr(check_tags, "score_by_folds", lambda *_, **__: TagScores(heads, boxes))
    return dataset.image_ids[image], CLASSES[label]


def test_a_missing_tag_is_written(command, overrides, doubted, tmp_path, capsys):
    assert command("check")([CONFIG, *overrides, "--tags"]) == 0
    told = capsys.readouterr().out
    (row,) = read_table(tmp_path / "run")
    assert (row["image"], row["label"], row["said"], row["likely"]) == (*doubted, "not shown", "shown")
    assert float(row["probability"]) == 0.9
    assert [row[key] for key in ("x1", "y1", "x2", "y2")] == ["1", "2", "30", "40"]
    page = (tmp_path / "run/check/tags.html").read_text()
    assert "Missing tags" in page
    assert doubted[0] in page
    assert f"{doubted[1]} missing" in page
    assert "90 % likely" in page
    assert "detector report" not in page
    assert "1 tag is doubted, 1 missing and 0 false: about 1 of them" in told
    assert "as they are: DATASETS.MISSING_TAGS 0.20 DATASETS.FALSE_TAGS 0.00" in told
    assert f"next: detector train {CONFIG}" in told
    assert command("check")([CONFIG, *overrides, "--tags"]) == 0  # its own files are replaced


def test_folds_with_and_without_a_run(command, overrides, tmp_path, capsys):
    assert command("check")([CONFIG, *overrides, "--tags"]) == 0  # trains detectors from random weights
    assert command("train")([CONFIG, *overrides]) == 0
    capsys.readouterr()
    assert command("check")([str(tmp_path / "run"), "--tags"]) == 0
    assert f"next: detector review {tmp_path / 'run'}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["small", "timm"])
def test_the_folds_take_the_backbone_of_the_run(name, overrides, tmp_path, monkeypatch):
    if name == "timm":
        pytest.importorskip("timm")
        overrides += ["MODEL.BACKBONE.TIMM_NAME", "resnet10t"]
    cfg = load_cfg(CONFIG, [*overrides, "MODEL.BACKBONE.NAME", name, "MODEL.WEIGHTS", ""])
    model = build_model(cfg)
    monkeypatch.setattr(check_tags, "load_checkpoint", lambda path: {"model": model.state_dict()})
    monkeypatch.setattr(check_tags, "check_class_names", lambda *_: None)
    (tmp_path / "model_final.pt").touch()
    found = check_tags.trained_backbone(cfg, tmp_path / "model_final.pt")
    assert found is not None
    assert found.keys() == model.backbone.state_dict().keys()


def test_an_image_is_scored_by_a_detector_that_has_not_learned_its_tags(overrides):
    """Other tags of the images of one fold do not change their scores, and change others."""
    cfg = load_cfg(CONFIG, overrides)
    training_set = build_training_set(cfg)
    first = draw_folds(len(training_set.dataset), cfg.seed, 2) == 0
    options = {"folds": 2, "steps": 2, "backbone": None}
    before = score_by_folds(cfg, training_set, find_device("cpu"), **options).heads
    training_set.dataset._labels[first] = ~training_set.dataset._labels[first]
    after = score_by_folds(cfg, training_set, find_device("cpu"), **options).heads
    assert torch.equal(before[first], after[first])
    assert not torch.equal(before[~first], after[~first])


def test_reviewed_images_are_not_doubted(command, overrides, doubted, tmp_path):
    boxed = tmp_path / "boxed.txt"
    boxed.write_text(f"{doubted[0]}\n")
    assert command("check")([CONFIG, *overrides, "DATASETS.BOXED", str(boxed), "--tags"]) == 0
    assert read_table(tmp_path / "run") == []


def test_too_few_images(command, overrides, toybox, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check_tags, "FOLDS", 5)
    assert command("check")([CONFIG, *overrides, "--tags"]) == 2
    assert "8 images, expected at least 10" in capsys.readouterr().err
