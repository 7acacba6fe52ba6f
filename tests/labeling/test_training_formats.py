"""Folders that Ultralytics and RF-DETR train from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from random_run import CLASSES, make_run

from detector.commands.main import main
from detector.data.datasets.image_labels import ImageLabels
from detector.data.teacher.read import read_teacher
from detector.labeling.training_formats import write_training_folder
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
    assert main([*words, "--format", "ultralytics"]) == 0
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
    assert main([*words, "--format", "ultralytics"]) == 0  # the same again
    assert main([*words, "--format", "yolo", "--format", "ultralytics"]) == 2
    assert main([*words]) == 2
    assert "--format is missing: one of coco, voc, yolo" in capsys.readouterr().err


def test_coco_with_splits_of_the_pixels_as_stored(tables, capsys):
    turned = Image.open(tables / "my pictures/c.png")
    exif = turned.getexif()
    exif[0x0112] = 6  # a viewer turns it by 90 degrees
    turned.save(tables / "my pictures/c.png", exif=exif)
    box = f'[{{"label": "{CLASSES[2]}", "box": [4, 6, 24, 36]}}]'
    place = f"{tables}/./my pictures"
    (tables / "val.jsonl").write_text(f'{{"file": "{place}/c.png", "boxes": {box}}}\n')
    run, output = make_run(tables / "run"), tables / "coco"
    words = ["label", str(run), "--labels", str(tables / "train.csv"), "--output", str(output)]
    assert main([*words, "--format", "rf-detr"]) == 0
    assert f"RFDETRNano().train(dataset_dir='{output}')" in capsys.readouterr().out.replace("'\"'\"'", "'")
    read = {
        split: json.loads((output / split / "_annotations.coco.json").read_text())
        for split in ("train", "valid", "test")
    }
    for split, content in read.items():
        assert [category["name"] for category in content["categories"]] == [*CLASSES]
        for row in content["images"]:
            with Image.open(output / split / row["file_name"]) as image:
                assert image.size == (row["width"], row["height"])
    found = read["train"]["annotations"]
    assert found
    assert all(0 < row["score"] <= 1 for row in found)  # RF-DETR ignores it
    (drawn,) = read["valid"]["annotations"]
    # Stored, the picture is 60 wide and 40 high: x is y of the upright one, and y is 40 - x.
    assert drawn["bbox"] == [6, 40 - 24, 30, 20]
    assert "score" not in drawn
    assert read["test"]["annotations"] == read["valid"]["annotations"]


def test_what_ultralytics_does_not_read(tables):
    with Image.open(tables / "my pictures/a.png") as image:
        image.save(tables / "a.gif")
    (tables / "train.csv").write_text(f"file,labels\na.gif,{CLASSES[0]}\n")
    box = f'"label": "{CLASSES[2]}", "box": [6, 4, 36, 24]'
    row = f'{{"file": "my pictures/c.png", "boxes": [{{{box}}}, {{{box}, "difficult": true}}]}}'
    (tables / "val.jsonl").write_text(row)
    with pytest.warns(UserWarning, match=r"does not read 1 image, such as a\.gif.* convert them"):
        write_training_folder("ultralytics", make_run(tables / "run"), tables / "train.csv", tables / "out")
    lines = (tables / "out/labels/val/my pictures__c.txt").read_text().splitlines()
    assert len(lines) == 1  # without the object that AP ignores


def test_what_ultralytics_predicts_is_a_teacher(tables):
    write_training_folder("ultralytics", make_run(tables / "run"), tables / "train.csv", tables / "out")
    (tables / "predict/labels").mkdir(parents=True)
    (tables / "predict/labels/my pictures__a.txt").write_text("2 0.5 0.5 0.5 0.5 0.75\n")
    shutil.copy(tables / "out/data.yaml", tables / "predict")
    with pytest.warns(UserWarning, match="counts as having found nothing"):
        found = read_teacher(tables / "predict", None, ImageLabels(tables, "train", CLASSES))
    boxes = found["my pictures/a"]
    assert boxes.boxes.tolist() == [[15, 10, 45, 30]]
    assert (boxes.labels.tolist(), boxes.scores.tolist()) == ([2], [0.75])


def test_pictures_that_would_have_one_name(tables):
    Image.new("RGB", (60, 40)).save(tables / "my pictures__a.png")
    lines = f"my pictures/a.png,{CLASSES[0]}\nmy pictures__a.png,{CLASSES[1]}"
    (tables / "train.csv").write_text(f"file,labels\n{lines}\n")
    with pytest.raises(DataError, match=r"my pictures/a\.png and my pictures__a\.png .* rename one of them"):
        write_training_folder("ultralytics", make_run(tables / "run"), tables / "train.csv", tables / "out")


def test_another_table_has_no_splits(tables):
    (tables / "tags.csv").write_text("file,labels\n")
    with pytest.raises(DataError, match=r"tags\.csv is the table of no split: name .*train\.csv"):
        write_training_folder("ultralytics", make_run(tables / "run"), tables / "tags.csv", Path("unused"))


def test_the_files_for_labeling_tools_say_so(tables, capsys):
    words = ["--labels", str(tables / "train.csv"), "--output", str(tables / "boxes"), "--format", "yolo"]
    assert main(["label", str(make_run(tables / "run")), *words]) == 0
    assert "for labeling tools; --format ultralytics writes what yolo train reads" in capsys.readouterr().out
