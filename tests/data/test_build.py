"""From a config to data sets and batches."""

import json
import logging

import numpy as np
import pytest
from PIL import Image

from detector.config import Settings, with_values
from detector.config.settings import DatasetSettings
from detector.data.build import (
    build_dataset,
    build_snapshot_views,
    build_test_transforms,
    build_train_loader,
    build_training_set,
)
from detector.data.proposals import save_proposals


@pytest.fixture
def cfg(tmp_path):
    """Five pictures of cells; the second has a misspelt label."""
    names = "abcde"
    for name in names:
        Image.new("RGB", (60, 40)).save(tmp_path / f"{name}.png")
    boxes = [np.array([[0.0, 0, 30, 30]], dtype=np.float32)] * 5
    save_proposals(tmp_path / "proposals.npz", list(names), boxes, [(40, 60)] * 5)
    rows = (f"{name}.png,cell;{'nucleuss' if name == 'b' else 'nucleus'}" for name in names)
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n")
    data = DatasetSettings(
        format="image_labels",
        root=str(tmp_path),
        train_split="train",
        classes=(),
        proposals=str(tmp_path / "proposals.npz"),
        workers=0,
    )
    return Settings(datasets=data)


def test_training_warns_of_labels_that_cannot_be_learned_or_are_misspelt(cfg, caplog):
    with caplog.at_level(logging.WARNING):
        build_train_loader(cfg, build_training_set(cfg), stride=8)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "all 5 images show 'cell'" in caplog.text
    assert "did you mean 'nucleus'?" in caplog.text


def test_training_does_not_warn_of_a_class_that_only_boxes_or_points_show(cfg, tmp_path, caplog):
    values = {"DATASETS.CLASSES": ("cell", "nucleus", "nucleuss", "membrane", "virus")}
    content = {
        "images": [{"id": 0, "file_name": "a.png", "height": 40, "width": 60}],
        "categories": [{"id": 0, "name": "membrane"}],
        "annotations": [{"id": 0, "image_id": 0, "category_id": 0, "bbox": [1, 1, 9, 9], "reviewed": True}],
    }
    values |= {
        "DATASETS.BOXED": str(tmp_path / "boxes.json"),
        "DATASETS.HINTS": str(tmp_path / "points.jsonl"),
    }
    cfg = with_values(cfg, values)
    (tmp_path / "boxes.json").write_text(json.dumps(content))
    (tmp_path / "points.jsonl").write_text('{"file": "b.png", "counts": {"virus": 1}}')
    with caplog.at_level(logging.WARNING), pytest.warns(UserWarning, match="box of membrane"):
        build_train_loader(cfg, build_training_set(cfg), stride=8)
    assert "all 5 images show 'cell'" in caplog.text
    assert "no image shows" not in caplog.text


def test_an_unknown_label_is_an_error_in_training_too(cfg):
    cfg = with_values(cfg, {"DATASETS.CLASSES": ("cell", "nucleus")})
    with pytest.raises(
        ValueError, match=r"train\.csv, line 2: unknown class 'nucleuss' \(did you mean nucleus"
    ):
        build_dataset(cfg, "train")


def test_inclusive_rois_are_those_of_training_tests_and_snapshots(cfg):
    cfg = with_values(cfg, {"INPUT.INCLUSIVE_ROIS": True})
    training_set = build_training_set(cfg)
    assert build_train_loader(cfg, training_set, stride=8).dataset.transform.inclusive_rois
    assert {each.inclusive_rois for each in build_test_transforms(cfg.input)} == {True}
    (views,) = build_snapshot_views(cfg, training_set, [0])
    assert views.samples[0].pixel is not None
