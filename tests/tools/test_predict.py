"""`detector predict`: every kind of image, good and bad, to pictures, COCO and VOC."""

import inspect
import json
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from pycocotools.coco import COCO
from random_run import CLASSES, make_run

from detector import load
from detector.commands.predict import predict_files
from detector.data.images import read_image

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture
def predict(command, run_folder, tmp_path):
    """Run the command with further words; returns its exit status."""

    def run(*words: object, output: Path = tmp_path / "found", threshold: float = 0.3) -> int:
        options = ["--weights", run_folder, "--output", output, "--score-threshold", threshold]
        return command("predict")([*words, *options])

    return run


def write_good_images(folder: Path) -> None:
    folder.mkdir()
    picture = Image.fromarray(PIXELS)
    picture.save(folder / "plain.png")
    picture.convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(PIXELS[:, :, 0].astype(np.uint16) * 256).save(folder / "16bit.png")
    picture.convert("RGBA").save(folder / "alpha.png")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    picture.save(folder / "turned.jpg", exif=exif)
    frames = [Image.fromarray(PIXELS // n) for n in (2, 3)]
    picture.save(folder / "animated.gif", save_all=True, append_images=frames)
    picture.save(folder / "animated_too.png", save_all=True, append_images=frames)
    Image.new("RGB", (1, 1)).save(folder / "dot.png")


def test_an_image_whose_scores_are_not_finite_is_named(predict, tmp_path, monkeypatch, capsys):
    write_good_images(tmp_path / "in")
    monkeypatch.setattr("detector.modeling.head.HeadOutputs.scores", lambda outputs: outputs.mil * torch.nan)
    assert predict(tmp_path / "in" / "plain.png") == 2
    told = capsys.readouterr().err
    assert "plain.png: the network's output is not finite, in the image plain.png;" in told


def test_all_kinds_of_images_in_all_formats(predict, tmp_path, capsys):
    write_good_images(tmp_path / "in")
    words = [word for name in ("pictures", "coco", "voc") for word in ("--format", name)]
    assert predict(tmp_path / "in", *words) == 0
    found = tmp_path / "found"
    coco = COCO(found / "detections.json")
    images = {image["file_name"]: image for image in coco.imgs.values()}
    assert [category["name"] for category in coco.cats.values()] == list(CLASSES)
    assert len(images) == 8
    sizes = {name: (image["height"], image["width"]) for name, image in images.items()}
    assert sizes.pop("turned.jpg") == (60, 40)
    assert sizes.pop("dot.png") == (1, 1)
    assert set(sizes.values()) == {(40, 60)}
    drawn = {path.name for path in (found / "pictures").iterdir()}
    assert drawn == {Path(name).with_suffix(".jpg").name for name in images}
    assert read_image(found / "pictures" / "turned.jpg").shape == (3, 600, 400)  # enlarged
    for name, image in images.items():
        tree = ElementTree.parse((found / "Annotations" / name).with_suffix(".xml"))
        objects = tree.findall("object")
        annotations = coco.imgToAnns[image["id"]]
        assert (len(objects) == 0) == (name == "dot.png")
        assert tree.find("filename").text == name
        for thing, annotation in zip(objects, annotations, strict=True):
            assert thing.find("name").text == coco.cats[annotation["category_id"]]["name"]
            corners = [int(thing.find(f"bndbox/{edge}").text) for edge in ("xmin", "ymin", "xmax", "ymax")]
            x, y, width, height = annotation["bbox"]
            assert np.abs(np.array(corners) - (x + 1, y + 1, x + width, y + height)).max() <= 0.5
            assert annotation["score"] > 0.3
    xml = "".join(path.read_text() for path in (found / "Annotations").iterdir())
    assert "&lt;b&gt;car&lt;/b&gt; &amp; co" in xml
    assert "<b>" not in xml
    total = sum(map(len, coco.imgToAnns.values()))
    assert f"{total} boxes in 8 images" in capsys.readouterr().out


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def test_a_bad_file_does_not_stop_the_others(predict, tmp_path, capsys):
    folder = tmp_path / "in"
    write_good_images(folder)
    (folder / "deep").mkdir()
    (folder / "deep" / "text.jpg").write_text("not an image")
    (folder / "cut.png").write_bytes((folder / "plain.png").read_bytes()[:900])
    # 20,000 x 20,000 pixels, 1.2 GB once decoded: refused by the header, so that no more is needed here
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    (folder / "bomb.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header) + png_chunk(b"IDAT", b"")
    )
    (tmp_path / "clip.mp4").write_text("not a video")
    assert predict(folder, tmp_path / "clip.mp4", "--format", "coco") == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("not done: ")]
    assert len(errors) == 4
    for name, reason in [
        ("text.jpg", "cannot be read: it is in none of the formats JPEG, PNG"),
        ("cut.png", "cannot be read"),
        ("bomb.png", "exceeds limit of"),
        ("clip.mp4", "OpenCV finds no frame"),
    ]:
        assert any(name in line and reason in line for line in errors)
    assert len(json.loads((tmp_path / "found" / "detections.json").read_text())["images"]) == 8


def test_a_video_and_no_detections(predict, tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (60, 40))
    for _ in range(3):
        writer.write(PIXELS)
    writer.release()
    assert predict(path, "--stride", "2", "--format", "coco", "--format", "pictures", threshold=1.0) == 0
    result = json.loads((tmp_path / "found" / "detections.json").read_text())
    assert [image["file_name"] for image in result["images"]] == [
        "clip/frame_000000.jpg",
        "clip/frame_000002.jpg",
    ]
    assert result["annotations"] == []
    assert (tmp_path / "found" / "pictures" / "clip" / "frame_000002.jpg").is_file()


def test_an_unwritable_folder_is_named_before_any_work(predict, tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "nowhere.jpg").touch()  # no image: that it is not complained of shows which comes first
    assert predict(tmp_path / "nowhere.jpg", output=tmp_path / "file" / "found") == 2
    assert str(tmp_path / "file" / "found") in capsys.readouterr().err


def test_a_mistake_leaves_no_empty_folder(command, predict, run_folder, tmp_path, capsys):
    assert predict(tmp_path / "nowhere.jpg", output=tmp_path / "new" / "found") == 2
    words = ["--weights", tmp_path / "nowhere", "--output", tmp_path / "found", "nowhere.jpg"]
    assert command("predict")(words) == 2
    assert "nowhere.jpg does not exist" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def words_for(folder: Path, run_folder: Path, *words: object) -> list[str]:
    return [str(word) for word in ("--weights", run_folder, "--output", folder, *words)]


def test_an_input_is_never_written_over(predict, run_folder, tmp_path, monkeypatch, capsys, command):
    picture = tmp_path / "pictures" / "a.jpg"
    picture.parent.mkdir()
    Image.fromarray(PIXELS).save(picture)
    before = picture.read_bytes()
    monkeypatch.chdir(tmp_path)
    assert command("predict")(words_for(".", run_folder, "pictures/a.jpg")) == 2
    assert "pictures/a.jpg is one of the input pictures" in capsys.readouterr().err
    assert picture.read_bytes() == before


def test_what_others_wrote_is_refused_before_any_work(predict, tmp_path, capsys):
    """A data set's own annotations, results of another command, and files that were corrected by hand."""
    for name in ("a.png", "b.png"):
        Image.fromarray(PIXELS).save(tmp_path / name)
    true = tmp_path / "found" / "Annotations" / "b.xml"
    true.parent.mkdir(parents=True)
    true.write_text("<annotation>drawn by hand</annotation>")
    assert predict(tmp_path / "a.png", tmp_path / "b.png", "--format", "voc") == 2
    assert f"{true} exists and is not what this command wrote there" in capsys.readouterr().err
    assert true.read_text() == "<annotation>drawn by hand</annotation>"
    assert not (tmp_path / "found" / "Annotations" / "a.xml").exists()

    true.unlink()
    assert predict(tmp_path / "a.png", "--format", "coco", "--format", "voc") == 0
    corrected = tmp_path / "found" / "Annotations" / "a.xml"
    corrected.write_text("<annotation>corrected</annotation>")
    assert predict(tmp_path / "a.png", "--format", "voc") == 2
    assert corrected.read_text() == "<annotation>corrected</annotation>"


def test_a_second_call_replaces_what_the_first_wrote(predict, command, run_folder, tmp_path, monkeypatch):
    for name in ("a.png", "b.png"):
        Image.fromarray(PIXELS).save(tmp_path / name)
    assert predict(tmp_path / "a.png", "--format", "coco", "--format", "pictures", "--format", "voc") == 0
    (tmp_path / "found" / "mine.txt").touch()
    before = (tmp_path / "found" / "detections.json").read_bytes()
    assert predict(tmp_path / "b.png", "--format", "coco", "--format", "pictures", threshold=0.9) == 0
    found = sorted(
        path.relative_to(tmp_path / "found").as_posix() for path in (tmp_path / "found").rglob("*.*")
    )
    assert found == [".detector-outputs.jsonl", "detections.json", "mine.txt", "pictures/b.jpg"]
    assert (tmp_path / "found" / "detections.json").read_bytes() != before
    monkeypatch.chdir(tmp_path)
    assert command("predict")([run_folder, "a.png"]) == 0  # RUN PICTURES, to the folder found
    assert sorted(path.name for path in (tmp_path / "found" / "pictures").iterdir()) == ["a.jpg"]


def test_pictures_are_missing(command, run_folder, capsys):
    assert command("predict")([run_folder]) == 2
    assert "PICTURES is missing: detector predict " in capsys.readouterr().err


def test_frames_that_others_wrote_are_refused_before_any_work(predict, tmp_path, capsys):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10, (60, 40))
    for _ in range(3):
        writer.write(PIXELS)
    writer.release()
    frame = tmp_path / "found" / "pictures" / "clip" / "frame_000002.jpg"
    frame.parent.mkdir(parents=True)
    frame.write_text("mine")
    assert predict(path, "--stride", "2") == 2
    assert "frame_000002.jpg exists" in capsys.readouterr().err
    assert [each.name for each in frame.parent.iterdir()] == ["frame_000002.jpg"]


def test_without_boxes_the_best_score_is_said(predict, tmp_path, capsys, run_folder):
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    assert predict(tmp_path / "a.png", threshold=1.0) == 0
    best = float(load(run_folder, score_threshold=0)(PIXELS).scores[0])
    out = capsys.readouterr().out
    assert "0 boxes in 1 image:" in out
    assert f"the best score is {best:.3g}, and a box must score more than --score-threshold 1" in out
    assert predict(tmp_path / "a.png", output=tmp_path / "others", threshold=0.0) == 0
    assert "the best score" not in capsys.readouterr().out


def test_the_default_threshold_is_that_of_load():
    defaults = [
        inspect.signature(each).parameters["score_threshold"].default for each in (load, predict_files)
    ]
    assert defaults == ["auto", "auto"]
