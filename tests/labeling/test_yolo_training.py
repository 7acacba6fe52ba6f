"""A folder for `yolo train`."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from random_run import CLASSES, make_run

from detector.commands.main import main
from detector.labeling.yolo_training import write_yolo_training
from detector.utils.errors import DataError


@pytest.fixture
def tables(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 40, 60, 3), dtype=np.uint8)
    for name, image in zip("abcd", pixels, strict=True):
        (tmp_path / "my pictures").mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "my pictures" / f"{name}.png")
    place = f"{tmp_path}/./my pictures"
    (tmp_path / "train.csv").write_text(f"file,labels\n{place}/a.png,{CLASSES[0]}\n{place}/b.png,\n")
    box = f'[{{"label": "{CLASSES[2]}", "box": [6, 4, 36, 24]}}]'
    rows = f'"{place}/c.png", "boxes": {box}', f'"{place}/d.png", "labels": ["{CLASSES[1]}"]'
    (tmp_path / "val.jsonl").write_text("".join(f'{{"file": {row}}}\n' for row in rows))
    return tmp_path


def test_images_and_boxes_of_both_splits(tables, capsys):
    run, output = make_run(tables / "run"), tables / "yolo"
    words = ["label", str(run), "--labels", str(tables / "train.csv"), "--output", str(output)]
    assert main([*words, "--for-training"]) == 0
    out = capsys.readouterr().out
    assert "train: " in out
    assert f"next: yolo train data={output}/data.yaml" in out
    data = yaml.safe_load((output / "data.yaml").read_text())
    assert data == {"train": "images/train", "val": "images/val", "names": dict(enumerate(CLASSES))}
    for split, names in (("train", "ab"), ("val", "cd")):
        pictures, texts = (sorted((output / kind / split).iterdir()) for kind in ("images", "labels"))
        assert [path.name for path in pictures] == [f"my pictures__{name}.png" for name in names]
        assert [path.stem for path in texts] == [path.stem for path in pictures]
        for path in pictures:
            source = tables / "my pictures" / path.name.removeprefix("my pictures__")
            assert path.read_bytes() == source.read_bytes()
        lines = [line.split() for path in texts for line in path.read_text().splitlines()]
        assert all(len(line) == 5 and all(0 <= float(word) <= 1 for word in line[1:]) for line in lines)
    assert (output / "labels/train/my pictures__b.txt").read_text() == ""
    drawn = (output / "labels/val/my pictures__c.txt").read_text()  # the box of the table, not a found one
    assert drawn == "2 0.35 0.35 0.5 0.5\n"
    assert main([*words, "--for-training"]) == 0  # the same again
    assert main([*words, "--for-training", "--format", "yolo"]) == 2
    assert main([*words]) == 2
    assert "--format is missing: one of coco, voc, yolo" in capsys.readouterr().err


def test_pictures_that_would_have_one_name(tables):
    Image.new("RGB", (60, 40)).save(tables / "my pictures__a.png")
    lines = f"my pictures/a.png,{CLASSES[0]}\nmy pictures__a.png,{CLASSES[1]}"
    (tables / "train.csv").write_text(f"file,labels\n{lines}\n")
    with pytest.raises(DataError, match=r"my pictures/a\.png and my pictures__a\.png .* rename one of them"):
        write_yolo_training(make_run(tables / "run"), tables / "train.csv", tables / "out")


def test_another_table_has_no_splits(tables):
    (tables / "tags.csv").write_text("file,labels\n")
    with pytest.raises(DataError, match=r"tags\.csv is the table of no split: name .*train\.csv"):
        write_yolo_training(make_run(tables / "run"), tables / "tags.csv", Path("unused"))


def test_the_files_for_labeling_tools_say_so(tables, capsys):
    words = ["--labels", str(tables / "train.csv"), "--output", str(tables / "boxes"), "--format", "yolo"]
    assert main(["label", str(make_run(tables / "run")), *words]) == 0
    assert "for labeling tools; --for-training writes what yolo train reads" in capsys.readouterr().out
