"""detector.label: boxes for tagged images; and the import of corrected boxes."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from distributed_cases import run_processes
from PIL import Image
from random_run import CLASSES, make_run

import detector
from detector.data.formats import FORMATS, ReviewImage, encode_review, review_import
from detector.data.labeled_box import LabeledBox
from detector.labeling.label import import_reviewed, tagged_boxes
from detector.structures import Scores
from detector.utils.errors import DataError, UserError


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "demo")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three images: with two tags, with none, and with a tag and an unknown class."""
    pixels = np.random.default_rng(0).integers(0, 256, (3, 40, 60, 3), dtype=np.uint8)
    for name, image in zip("abc", pixels, strict=True):
        Image.fromarray(image).save(tmp_path / f"{name}.png")
    path = tmp_path / "train.csv"
    path.write_text(
        f"file,labels,unknown\na.png,{CLASSES[0]};{CLASSES[2]},\nb.png,,\nc.png,{CLASSES[1]},{CLASSES[0]}\n"
    )
    return path


def test_processes_share_the_images(run_folder: Path, table: Path, tmp_path: Path) -> None:
    alone = detector.label(run_folder, table, output=tmp_path / "alone", formats=FORMATS)
    label = partial(detector.label, output=tmp_path / "several", formats=FORMATS)
    assert run_processes(label, 2, run_folder, table) == [alone, alone]
    files = [path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*.*")]
    assert len(files) > len(FORMATS)
    assert all(
        (tmp_path / "several" / x).read_bytes() == (tmp_path / "alone" / x).read_bytes() for x in files
    )


def test_only_tagged_classes_get_boxes_and_each_does(run_folder: Path, table: Path) -> None:
    every = detector.label(run_folder, table, score_threshold=0.0)
    assert [image.name for image in every] == ["a.png", "b.png", "c.png"]
    assert [image.size for image in every] == [(40, 60)] * 3
    shown = [{box.label for box in image.boxes} for image in every]
    assert shown == [{CLASSES[0], CLASSES[2]}, set(), {CLASSES[1], CLASSES[0]}]
    assert not any(box.doubtful or box.reviewed for image in every for box in image.boxes)

    best = detector.label(run_folder, table, score_threshold=1.0)
    assert [sorted(box.label for box in image.boxes) for image in best] == [
        sorted((CLASSES[0], CLASSES[2])),
        [],
        [CLASSES[1]],
    ]
    assert all(box.doubtful for image in best for box in image.boxes)


def test_best_boxes_are_doubtful_below_the_threshold() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30], [40, 40, 50, 50]])[:, None].expand(3, 3, 4)
    scores = torch.tensor([[0.9, 0.2, 0.8], [0.7, 0.1, 0.1], [0.1, 0.0, 0.6]])
    labels, unknown = torch.tensor([True, True, False]), torch.tensor([False, False, True])
    found, doubtful = tagged_boxes(
        Scores("a", boxes, scores), labels, unknown, thresholds=torch.full((3,), 0.65)
    )
    assert found.labels.tolist() == [0, 2, 0, 1]
    assert found.scores.tolist() == pytest.approx([0.9, 0.8, 0.7, 0.2])
    assert doubtful == [3]
    thresholds = torch.tensor([0.95, 0.05, 0.7])  # of each class
    found, doubtful = tagged_boxes(Scores("a", boxes, scores), labels, unknown, thresholds=thresholds)
    assert found.labels.tolist() == [0, 2, 1, 1]
    assert found.scores.tolist() == pytest.approx([0.9, 0.8, 0.2, 0.1])
    assert doubtful == [0]


def test_files_are_written_and_not_overwritten(run_folder: Path, table: Path, tmp_path: Path) -> None:
    output = tmp_path / "found"
    found = detector.label(run_folder, table, output=output, formats=[*FORMATS, "coco"])
    assert detector.label(run_folder, table, output=output, formats=FORMATS) == found
    for name in ("coco.json", "Annotations", "tasks.json", "annotations.xml"):
        read = review_import(output / name, reviewed="all")
        assert [image.name for image in read] == [image.name for image in found]
        assert [len(image.boxes) for image in read] == [len(image.boxes) for image in found]
    (output / "coco.json").write_text("corrected")
    with pytest.raises(UserError, match=r"coco\.json exists and is not what this command wrote"):
        detector.label(run_folder, table, output=output, formats=["coco"])
    assert (output / "coco.json").read_text() == "corrected"


def test_links_of_label_studio_name_the_folder_of_the_images(
    run_folder: Path, table: Path, tmp_path: Path
) -> None:
    labels = tmp_path / "mine" / "train.jsonl"  # as of detector init: not beside the images
    labels.parent.mkdir()
    labels.write_text(json.dumps({"file": f"{tmp_path}/./a.png", "labels": [CLASSES[0]]}) + "\n")
    detector.label(run_folder, labels, output=tmp_path / "found", formats=["label-studio"])
    (task,) = json.loads((tmp_path / "found" / "tasks.json").read_text())
    assert task["data"]["image"].endswith(f"?d={tmp_path.name}/a.png")
    (tmp_path / "mine" / "b.png").symlink_to(tmp_path / "b.png")
    labels.write_text(labels.read_text() + json.dumps({"file": "b.png", "labels": []}) + "\n")
    with pytest.raises(
        UserError, match=f"some images are in {tmp_path}, some in {tmp_path}/mine: the format"
    ):
        detector.label(run_folder, labels, output=tmp_path / "both", formats=["label-studio"])
    assert len(detector.label(run_folder, labels, output=tmp_path / "both", formats=["coco"])) == 2


def test_every_wrong_line_of_the_table_is_named(run_folder: Path, table: Path) -> None:
    table.write_text(f"a.png,{CLASSES[0][:-1]}x\ngone.png,{CLASSES[0]}\n./b.png,\nb.png,\n")
    with pytest.raises(DataError) as caught:
        detector.label(run_folder, table)
    lines = str(caught.value).split("\n")
    assert "line 1: unknown class" in lines[0]
    assert "did you mean" in lines[0]
    assert "gone.png does not exist" in lines[1]
    assert "line 4: image 'b.png' has the same id as './b.png' on line 3" in lines[2]
    assert lines[2].endswith("rename one of two different images")


def test_an_image_that_cannot_be_decoded_does_not_stop_the_others(
    run_folder: Path, table: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = detector.label(run_folder, table)
    for path in (tmp_path / "a.png", tmp_path / "b.png"):  # b has no tags and is not decoded
        Image.open(path).save(path, format="jpeg")  # whose header is enough for its size
        path.write_bytes(path.read_bytes()[:900])
    label = partial(detector.label, run_folder, table, output=tmp_path / "found", formats=["coco", "yolo"])
    with pytest.raises(UserError, match="1 of the files could not be read, as named above"):
        label()
    (line,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert line.startswith(f"not done: image {tmp_path / 'a.png'} cannot be read: image file is truncated")
    read = review_import(tmp_path / "found" / "coco.json", reviewed="all")
    assert [(image.name, len(image.boxes)) for image in read] == [(i.name, len(i.boxes)) for i in whole[1:]]
    assert not (tmp_path / "found" / "labels" / "a.txt").exists()
    Image.new("RGB", (60, 40)).save(tmp_path / "a.png")
    assert [image.name for image in label()] == ["a.png", "b.png", "c.png"]


def test_an_unknown_format_is_named_before_any_work(table: Path) -> None:
    with pytest.raises(UserError, match="expected one of coco, voc, yolo"):
        detector.label("gone", table, output="found", formats=["csv"])


def test_output_and_formats_go_together_and_formats_are_several(
    run_folder: Path, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"formats is 'coco', expected a list, such as \['coco'\]"):
        detector.label("gone", table, output="found", formats="coco")
    with pytest.raises(UserError, match="output is given and formats is not: nothing would be written"):
        detector.label("gone", table, output="found")
    with pytest.raises(UserError, match="formats is given and output is not"):
        detector.label("gone", table, formats=["coco"])
    detector.label(run_folder, table, output=tmp_path / "found", formats=(name for name in ["coco"]))
    assert (tmp_path / "found" / "coco.json").is_file()


def test_only_true_boxes_are_imported(tmp_path: Path) -> None:
    drawn = LabeledBox("cat", (1.0, 2.0, 3.0, 4.0), reviewed=True)
    images = [
        ReviewImage("all.jpg", (9, 9), (drawn, LabeledBox("dog", (0.0, 0.0, 9.0, 9.0), 0.5)), complete=True),
        ReviewImage("some.jpg", (9, 9), (drawn, LabeledBox("dog", (0.0, 0.0, 9.0, 9.0), 0.5))),
        ReviewImage("none.jpg", (9, 9), (LabeledBox("dog", (0.0, 0.0, 9.0, 9.0), 0.5),)),
        ReviewImage("empty.jpg", (9, 9), (), complete=True),
    ]
    for name, content in encode_review("label-studio", images, ["cat", "dog"]):
        (tmp_path / name).write_bytes(content)
    output = tmp_path / "reviewed" / "boxes.json"
    found = import_reviewed(tmp_path / "tasks.json", output)
    assert [(image.name, image.reviewed, len(image.boxes)) for image in found] == [
        ("all.jpg", "all", 2),
        ("some.jpg", "some", 1),
        ("empty.jpg", "all", 0),
    ]
    assert review_import(output) == found
    with pytest.raises(UserError, match="exists: delete it, or name another file"):
        import_reviewed(tmp_path / "tasks.json", output)
    for inside in ("x.json", "deep/x.json"):
        with pytest.raises(UserError, match=r"tasks\.json is a file, expected a folder to write to"):
            import_reviewed(tmp_path / "tasks.json", tmp_path / "tasks.json" / inside)
