"""`detector label` and `detector review-import`: boxes go to a labeling tool and come back."""

import json

import pytest
from PIL import Image
from random_run import CLASSES, make_run

from detector.commands.main import main


def test_boxes_of_tagged_images_are_written_and_read_back(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    Image.effect_noise((64, 48), 80).convert("RGB").save(tmp_path / "a.png")
    (tmp_path / "tags.csv").write_text(f"file,labels\na.png,{CLASSES[0]}\n")
    words = [str(run), "--labels", str(tmp_path / "tags.csv"), "--output", str(tmp_path / "boxes")]
    assert main(["label", *words, "--format", "coco", "--score-threshold", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 box in 1 image, 1 of them doubtful" in out
    assert "next: detector review-import" in out
    written, imported = tmp_path / "boxes" / "coco.json", tmp_path / "reviewed.json"
    words = [str(written), "--output", str(imported)]
    assert main(["review-import", *words]) == 2  # nobody has reviewed anything
    assert "none of its 1 images has a reviewed box" in capsys.readouterr().err
    assert main(["review-import", *words, "--reviewed", "all"]) == 0
    assert "1 ground-truth box in 1 image:" in capsys.readouterr().out
    (box,) = json.loads(imported.read_text())["annotations"]
    assert box["bbox"] == json.loads(written.read_text())["annotations"][0]["bbox"]


def test_boxes_of_images_to_test_on_go_into_their_table(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    Image.effect_noise((64, 48), 80).convert("RGB").save(tmp_path / "a.png")
    (tmp_path / "val.csv").write_text(f"file,labels\na.png,{CLASSES[0]}\n")
    words = ["--labels", str(tmp_path / "val.csv"), "--output", str(tmp_path / "boxes"), "--format", "coco"]
    assert main(["label", str(run), *words]) == 0
    written = tmp_path / "boxes" / "coco.json"
    words = ["review-import", str(written), "--table", str(tmp_path / "val.csv"), "--reviewed", "all"]
    capsys.readouterr()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"boxes in 1 of 1 images: {tmp_path}/val.jsonl; the table before: {tmp_path}/val.csv.bak" in out
    assert out.endswith("next: detector test RUN\n")
    drawn = json.loads(written.read_text())["annotations"]
    x, y, width, height = drawn[0]["bbox"]
    row = json.loads((tmp_path / "val.jsonl").read_text())
    assert (row["file"], row["labels"], len(row["boxes"])) == ("a.png", [CLASSES[0]], len(drawn))
    assert row["boxes"][0]["box"] == [x, y, x + width, y + height]
    with pytest.raises(SystemExit):
        main([*words, "--output", "both.json"])
