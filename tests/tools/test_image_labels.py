"""The commands on one's own pictures: a folder and a table of labels, boxes of some pictures or of none."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import ExifTags, Image

from detector.config import load_cfg
from detector.data.datasets.voc import VOCDataset
from detector.data.toybox import CLASSES

CONFIG = str(Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml")


def table_line(dataset, index):
    """A picture of Toybox as a line of JSON."""
    annotation = dataset.annotation(index)
    pairs = zip(annotation.labels, annotation.boxes.tolist(), strict=True)
    boxes = [{"label": CLASSES[label], "box": box} for label, box in pairs]
    return {"file": f"pictures/{dataset.image_path(index).name}", "boxes": boxes}


def csv_of(lines):
    rows = (";".join(sorted({box["label"] for box in line["boxes"]})) for line in lines)
    return "\n".join(f"{line['file']},{labels}" for line, labels in zip(lines, rows, strict=True))


@pytest.fixture
def mine(toybox, tmp_path):
    """Toybox as one's own: train.csv, and val.jsonl with the boxes of the first two pictures of four.

    The first of train.csv is stored lying on its side, with a tag that says so.
    """
    root = tmp_path / "mine"
    shutil.copytree(toybox / "JPEGImages", root / "pictures")
    lines = {}
    for split in ("trainval", "test"):
        dataset = VOCDataset(toybox, split, CLASSES)
        lines[split] = [table_line(dataset, index) for index in range(len(dataset))]
    (root / "train.csv").write_text("file,labels\n" + csv_of(lines["trainval"]))
    (root / "val.csv.later").write_text(csv_of(lines["test"]))
    for line in lines["test"][2:]:
        line["labels"] = sorted({box["label"] for box in line.pop("boxes")})
    (root / "val.jsonl").write_text("\n".join(map(json.dumps, lines["test"])))
    turned, path = Image.Exif(), root / lines["trainval"][0]["file"]
    turned[ExifTags.Base.Orientation] = 6
    Image.open(path).rotate(90, expand=True).save(path, exif=turned)
    return root


@pytest.fixture
def commands(command, overrides, mine, tmp_path, monkeypatch):
    """`detector propose`, `train` and `test` on it, with the classes that the table names."""
    keys = {
        "DATASETS.FORMAT": "image_labels",
        "DATASETS.ROOT": mine,
        "DATASETS.CLASSES": "()",
        "DATASETS.TRAIN_SPLIT": "train",
        "DATASETS.TEST_SPLIT": "val",
        "DATASETS.PROPOSALS": mine / "proposals.npz",
        "PROPOSALS.MODE": "grid",
        "SOLVER.MAX_ITER": 1,
        "TEST.PICTURES": 2,
    }
    words = ["--config-file", CONFIG, *overrides, *(str(word) for pair in keys.items() for word in pair)]

    def run(name):
        return command(name)([*words, "--workers", "1"] if name == "propose" else words)

    return run


def test_from_pictures_to_figures(commands, mine, tmp_path, capsys):
    commands("propose")
    assert commands("train") == 0
    assert commands("test") == 0
    folder = tmp_path / "run"
    used = [name for name in CLASSES if name in (mine / "train.csv").read_text()]
    assert tuple(used) == load_cfg(folder / "config.yaml").datasets.classes
    metrics = json.loads((folder / "metrics.json").read_text())
    assert 0 <= metrics["mAP50"] <= 100
    assert 0 < metrics["image_mAP"] <= 100
    assert metrics["CorLoc"] is None  # train.csv has no boxes
    assert len(list((folder / "pictures").glob("*.png"))) == 3
    told = capsys.readouterr().out
    assert "AP in percent on 2 of 4 images of mine_val, those with boxes" in told
    assert "CorLoc on no image of mine_train, as none has boxes" in told
    assert "image AP" in told
    assert "AP50" in told


def test_without_a_single_box(commands, mine, tmp_path, capsys, command):
    (mine / "val.jsonl").unlink()
    (mine / "val.csv.later").rename(mine / "val.csv")
    commands("propose")
    assert commands("train") == 0
    assert commands("test") == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["mAP50"] is metrics["CorLoc"] is None
    assert 0 < metrics["image_mAP"] <= 100
    told = capsys.readouterr().out
    assert "image AP in percent on mine_val: without ground-truth boxes" in told
    assert "AP50" not in told
    assert command("report")([str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "No image of the test split has ground-truth boxes" in page
    assert len(list((tmp_path / "run" / "pictures").glob("*.png"))) == 3
