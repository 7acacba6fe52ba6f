"""`detector label` and `detector review-import`: boxes go to a labeling tool and come back."""

import base64
import json
from urllib.parse import unquote

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
    assert f"next: detector review-import {tmp_path}/boxes/coco.json --output reviewed.json" in out
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
    assert "next:" not in out  # no config is beside the table
    drawn = json.loads(written.read_text())["annotations"]
    x, y, width, height = drawn[0]["bbox"]
    row = json.loads((tmp_path / "val.jsonl").read_text())
    assert (row["file"], row["labels"], len(row["boxes"])) == ("a.png", [CLASSES[0]], len(drawn))
    assert row["boxes"][0]["box"] == [x, y, x + width, y + height]
    with pytest.raises(SystemExit):
        main([*words, "--output", "both.json"])


@pytest.fixture
def labeled(tmp_path):
    """Ten pictures in two folders, two of the same name, and the table and the run."""
    (tmp_path / "photos").mkdir()
    for name in ("a/Fläche 1.png", "a/2.png", "b/2.png", "b/3.png"):
        (tmp_path / "photos" / name).parent.mkdir(exist_ok=True)
        Image.effect_noise((64, 48), 80).convert("RGB").save(tmp_path / "photos" / name)
    (tmp_path / "tags.csv").write_text(f"image;tags\nFläche 1.png;{CLASSES[0]}\na/2.png;\n3;{CLASSES[1]}\n")
    return tmp_path


def label_studio(folder, *words):
    run = make_run(folder / "run")
    words = ["--labels", str(folder / "tags.csv"), "--images", str(folder / "photos"), *words]
    assert (
        main(["label", str(run), *words, "--output", str(folder / "boxes"), "--format", "label-studio"]) == 0
    )
    return json.loads((folder / "boxes" / "tasks.json").read_text())


def test_the_root_that_label_studio_has_to_serve_is_told(labeled, capsys):
    tasks = label_studio(labeled)
    told = capsys.readouterr().err
    assert f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={labeled} label-studio start" in told
    assert f"{labeled / 'photos'} as source storage" in told
    storage = json.loads((labeled / "boxes" / "local_storage.json").read_text())
    assert (storage["path"], storage["use_blob_urls"]) == (str(labeled / "photos"), True)
    assert [task["data"]["file"] for task in tasks] == ["a/Fläche 1.png", "a/2.png", "b/3.png"]
    for task in tasks:
        assert (labeled / unquote(task["data"]["image"].partition("?d=")[2])).is_file()


def test_tasks_may_have_the_pictures(labeled, capsys):
    tasks = label_studio(labeled, "--inline")
    assert "DOCUMENT_ROOT" not in capsys.readouterr().err
    kind, _, content = tasks[0]["data"]["image"].partition(";base64,")
    assert kind == "data:image/png"
    assert base64.b64decode(content) == (labeled / "photos/a/Fläche 1.png").read_bytes()


def test_pictures_that_were_uploaded_are_found_by_their_names(labeled, capsys):
    tasks = label_studio(labeled)
    for task, name in zip(tasks, ("0a1b2c3d-Fläche_1.png", "11112222-2.png", "33334444-3.png"), strict=True):
        task["data"] = {"image": f"/data/upload/7/{name}"}
        task["annotations"] = [{"result": task.pop("predictions")[0]["result"]}]
    (labeled / "export.json").write_text(json.dumps(tasks))
    words = ["review-import", str(labeled / "export.json"), "--output"]
    assert main([*words, str(labeled / "blind.json")]) == 2
    assert "name the folder of images (--images)" in capsys.readouterr().err  # for the size of 2.png
    images = ["--images", str(labeled / "photos")]
    assert main([*words, str(labeled / "reviewed.json"), *images]) == 2
    assert "2.png" in capsys.readouterr().err  # of two pictures of the name
    tasks[1]["data"]["image"] = "/data/upload/7/0000ffff-gone.png"
    tasks[1]["annotations"][0]["result"] = tasks[0]["annotations"][0]["result"]
    (labeled / "export.json").write_text(json.dumps(tasks))
    assert main([*words, str(labeled / "reviewed.json"), *images]) == 0
    told = capsys.readouterr().err
    assert "1 image is not below" in told
    assert "will not be used: gone.png" in told
    names = [image["file_name"] for image in json.loads((labeled / "reviewed.json").read_text())["images"]]
    assert sorted(names) == ["a/Fläche 1.png", "b/3.png", "gone.png"]
    assert main([*words, str(labeled / "blind.json")]) == 0
    assert "which loses their folders: pass --images" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["review-import"])
