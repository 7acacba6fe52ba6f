"""The next command has real paths, and a hint never fails what is done."""

import json
from pathlib import Path

import pytest
from PIL import Image

from detector.commands.hints import config_of, export_of, hint_to_predict, output_dir_of
from detector.commands.main import main


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(10):
        path = Path("my photos", f"{i}.png")
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (32, 24), (i, 0, 0)).save(path)
    Path("tags.csv").write_text(
        "image,tag\n" + "".join(f"{i}.png,{'cat' if i % 2 else 'dog'}\n" for i in range(10))
    )
    assert main(["init", "my photos", "--labels", "tags.csv"]) == 0


def test_the_pictures_of_a_run_are_those_to_test_on(data, capsys):
    run = Path("runs/mine")
    capsys.readouterr()
    hint_to_predict(run)
    assert capsys.readouterr().out == ""  # no run is there
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(Path("mine.yaml").read_text())
    hint_to_predict(run, ["--model", "weak"])
    assert capsys.readouterr().out == "next: detector predict runs/mine --model weak 'my photos'\n"


def test_the_check_names_the_training_whole(data, capsys):
    for words in (["--teacher", ""], ["OUTPUT_DIR", "runs/other"]):
        assert main(["check", "mine.yaml", *words]) == 0
    assert capsys.readouterr().out.endswith(
        "next: detector train mine.yaml OUTPUT_DIR runs/other --to detector\n"
    )


def test_the_config_of_a_table_and_of_the_folder(data):
    assert config_of(Path("mine/val.jsonl")) == Path("mine.yaml")
    assert config_of(Path("elsewhere/val.jsonl")) is None
    Path("other.yaml").write_text("names: [cat]\n")
    assert config_of() == Path("mine.yaml")
    assert output_dir_of(config_of()) == "runs/mine"
    assert output_dir_of(None) is output_dir_of(Path("other.yaml")) is None


def test_the_import_of_boxes_names_the_training_that_follows(data, capsys):
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 9, 9]}
    content = {
        "images": [{"id": 1, "file_name": "0.png", "width": 32, "height": 24}],
        "categories": [{"id": 1, "name": "dog"}],
        "annotations": [box],
    }
    Path("corrected.json").write_text(json.dumps(content))
    capsys.readouterr()
    words = ["review-import", "corrected.json", "--output", "reviewed.json", "--reviewed", "all"]
    assert main(words) == 0
    assert capsys.readouterr().out.endswith(
        "next: detector train mine.yaml --to detector DATASETS.BOXED reviewed.json "
        "OUTPUT_DIR runs/mine_boxed\n"
    )


def test_what_was_corrected_depends_on_the_tool():
    assert export_of(Path("boxes"), ["label-studio"]) == Path("export.json")
    assert export_of(Path("boxes"), ["voc"]) == Path("boxes/Annotations")
