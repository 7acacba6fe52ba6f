"""Training and testing on a set in COCO's format: Toybox, written in it."""

import json
import shutil
from pathlib import Path

import pytest

from detector.config import load_cfg
from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")
CATEGORIES = {name: 3 * index + 2 for index, name in enumerate(CLASSES)}  # ids with holes


def write_split(toybox, voc_split, root, split):
    """One split of a folder in VOC layout as root/annotations/instances_SPLIT.json and root/SPLIT."""
    dataset = VOCDataset(toybox, voc_split, CLASSES)
    images, annotations = [], []
    (root / split).mkdir(parents=True)
    for index, image_id in enumerate(dataset.image_ids):
        height, width = dataset.image_size(index)
        images.append({"id": index, "file_name": f"{image_id}.jpg", "height": height, "width": width})
        shutil.copy(dataset.image_path(index), root / split)
        truth = dataset.annotation(index)
        for (x1, y1, x2, y2), label in zip(truth.boxes.tolist(), truth.labels.tolist(), strict=True):
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index,
                    "category_id": CATEGORIES[CLASSES[label]],
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "iscrowd": int(len(annotations) == 1),
                }
            )
    categories = [{"id": number, "name": name} for name, number in CATEGORIES.items()]
    content = {"images": images, "annotations": annotations, "categories": categories}
    path = root / "annotations" / f"instances_{split}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


@pytest.fixture
def words(toybox, overrides, tmp_path):
    """The config of a quick run on the set; its classes are those of the file."""
    root = tmp_path / "coco"
    write_split(toybox, "trainval", root, "train")
    write_split(toybox, "test", root, "val")
    values = {
        "DATASETS.FORMAT": "coco",
        "DATASETS.ROOT": root,
        "DATASETS.CLASSES": "[]",
        "DATASETS.TRAIN_SPLIT": "train",
        "DATASETS.TEST_SPLIT": "val",
        "SOLVER.MAX_ITER": 1,
        "TEST.PICTURES": 1,
    }
    changes = [str(word) for pair in values.items() for word in pair]
    return ["--config-file", CONFIG, *overrides, *changes]


def test_a_coco_set_trains_and_tests(command, words, tmp_path, capsys):
    pytest.importorskip("pycocotools")
    assert command("train")(words) == 0
    folder = tmp_path / "run"
    assert load_cfg(folder / "config.yaml").datasets.classes == CLASSES
    assert command("test")(["--config-file", str(folder / "config.yaml")]) == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    for name in ("mAP50", "CorLoc", "AP", "AP50", "AP75"):
        assert 0 <= metrics[name] <= 100
    assert metrics["AP_small"] is None or metrics["AP_small"] >= 0
    assert list(metrics["per_class"]) == list(CLASSES)
    assert set(metrics["per_class"]["bird"]) == {"AP50", "AP50_11point", "CorLoc", "AP", "image_AP"}
    assert command("report")([str(folder)]) == 0
    assert "COCO AP" in (folder / "report.html").read_text()
    table = capsys.readouterr().out
    assert "on coco_val, CorLoc on coco_train" in table
    assert "COCO: AP " in table


def test_a_missing_package_is_said_before_the_work(command, words, monkeypatch, capsys):
    assert command("train")(words) == 0
    monkeypatch.setitem(__import__("sys").modules, "pycocotools.cocoeval", None)
    capsys.readouterr()
    assert command("test")(words) == 2
    text = capsys.readouterr().err.splitlines()[-1]
    assert text == "error: COCO metrics need a package that is not installed: pip install pycocotools"
