"""What a teacher found, from files of every form to boxes of images."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from pycocotools import mask as coco_mask

from detector.config import load_cfg
from detector.data.build import build_teacher, build_training_set
from detector.data.datasets.annotated import AnnotatedImages, Objects
from detector.data.datasets.voc import VOCDataset
from detector.data.orientation import turn_box, turn_size
from detector.data.proposals import save_proposals
from detector.data.teacher import read_teacher
from detector.structures import TeacherBoxes
from detector.utils.errors import ConfigError, DataError

CLASSES = ("bird", "cat", "dog")
HEIGHT, WIDTH = 40, 60  # of a; the other images of the split have their own
BOX = [6.0, 4.0, 30.0, 20.0]


@pytest.fixture
def source(small_voc):
    return VOCDataset(small_voc.root, "trainval", CLASSES)


def run_lengths(box=BOX, height=HEIGHT, width=WIDTH):
    pixels = np.zeros((height, width), np.uint8, order="F")
    x1, y1, x2, y2 = map(int, box)
    pixels[y1:y2, x1:x2] = 1
    encoded = coco_mask.encode(pixels)
    return {"size": [height, width], "counts": encoded["counts"].decode()}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(map(str, row)) for row in (content, content.values())))
        return path
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, content)) if lines else json.dumps(content))
    return path


PIXELS = [[6 <= x < 30 and 4 <= y < 20 for x in range(WIDTH)] for y in range(HEIGHT)]
XYWH = [6, 4, 24, 16]
HF = {"score": 0.5, "label": "a cat.", "box": {"xmin": 6, "ymin": 4, "xmax": 30, "ymax": 20}}
ARRAYS = {"xyxy": [BOX], "confidence": [0.5], "class_id": [0], "data": {"class_name": ["cat"]}}
SUPERVISION = {"x_min": 6, "y_min": 4, "x_max": 30, "y_max": 20, "class_id": 3, "confidence": 0.5}
DINO = {"boxes": [BOX], "logits": [0.5], "phrases": ["cat"]}
ROTATED = {"x1": 6, "y1": 12, "x2": 18, "y2": 4, "x3": 30, "y3": 12, "x4": 18, "y4": 20}
SHAPE = {"label": "cat", "points": [[6, 4], [30, 20]], "shape_type": "rectangle", "score": 0.5}
LABELME = {"shapes": [SHAPE], "imagePath": "a.jpg", "imageHeight": HEIGHT, "imageWidth": WIDTH}
REGION = {
    "type": "rectanglelabels",
    "original_width": WIDTH,
    "original_height": HEIGHT,
    "score": 0.5,
    "value": {"x": 10, "y": 10, "width": 40, "height": 40, "rotation": 0, "rectanglelabels": ["cat"]},
}
SAM = {"bbox": XYWH, "predicted_iou": 0.5, "stability_score": 0.9, "area": 3, "crop_box": [0, 0, 60, 40]}
INSTANCES = {
    "images": [{"id": 7, "file_name": "a.jpg", "height": HEIGHT, "width": WIDTH}],
    "categories": [{"id": 3, "name": "Cat"}],
    "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "score": 0.5}],
}


def instances(**keys):
    return INSTANCES | {"annotations": [INSTANCES["annotations"][0] | keys]}


@pytest.mark.parametrize(
    ("name", "content", "label"),
    [
        ("coco.json", instances(bbox=XYWH), 1),
        ("coco.json", instances(segmentation=run_lengths()), 1),
        ("coco.json", instances(segmentation=[[6, 4, 30, 4, 30, 20]]), 1),
        ("results.json", [{"image_id": "a", "category_id": 3, "bbox": XYWH, "score": 0.5}], 1),
        ("results.json", [{"image_id": "a", "bbox": XYWH, "segmentation": run_lengths(), "score": 0.5}], -1),
        ("hf.json", {"a.jpg": [HF], "b.jpg": []}, 1),
        ("hf.json", [{"image": "/photos/a.jpg", "predictions": [HF]}], 1),
        ("hf.jsonl", [{"image": "a.jpg", "predictions": [HF]}, {"image": "b.jpg", "predictions": []}], 1),
        ("hf/a.json", [HF], 1),
        ("supervision.json", {"a.jpg": ARRAYS}, 1),
        ("supervision.jsonl", [{"file": "a.jpg", **ARRAYS}], 1),
        ("sink.json", [{**SUPERVISION, "file_name": "a.jpg", "class_name": "cat", "tracker_id": ""}], 1),
        ("sink.json", [{**SUPERVISION, "file_name": "a.jpg"}], 1),
        ("torchvision.jsonl", [{"file": "a", "boxes": [BOX], "scores": [0.5], "labels": ["cat"]}], 1),
        ("table.jsonl", [{"file": "a", "boxes": [{"label": "cat", "box": BOX, "score": 0.5}]}], 1),
        ("proposals.jsonl", [{"image": "a", "boxes": [BOX], "scores": [0.5]}], -1),
        ("sink.csv", {**SUPERVISION, "file_name": "a.jpg", "class_name": "cat", "tracker_id": ""}, 1),
        (
            "sahi.json",
            [{"image_id": "a", "bbox": XYWH, "score": 0.5, "category_id": 0, "category_name": "cat"}],
            1,
        ),
        ("hf.json", {"a.jpg": {"boxes": [BOX], "scores": [0.5], "labels": [0], "text_labels": ["cat"]}}, 1),
        ("dino.json", {"a.jpg": DINO}, 1),
        ("dino.json", {"a.jpg": DINO | {"logits": [3.0], "scores": [0.5]}}, 1),
        (
            "mmdetection/a.json",
            {"labels": [3], "scores": [0.5], "bboxes": [BOX], "masks": [run_lengths()]},
            1,
        ),
        ("rotated.json", {"a.jpg": [{"name": "cat", "confidence": 0.5, "box": ROTATED}]}, 1),
        ("labelme/a.json", LABELME, 1),
        ("labelme.json", LABELME, 1),
        ("tasks.json", [{"data": {"image": "/data/a.jpg"}, "predictions": [{"result": [REGION]}]}], 1),
        ("masks.json", {"a.jpg": [{"label": "cat", "score": 0.5, "mask": PIXELS}], "b.jpg": []}, 1),
        ("masks.json", {"a.jpg": [{**HF, "mask": "a_0.png"}], "b.jpg": []}, 1),
        ("sam/a.json", [{"segmentation": PIXELS, "predicted_iou": 0.5}], -1),
        ("sam/a.json", [SAM], -1),
        ("sam/a.json", [SAM | {"segmentation": run_lengths()}], -1),
        (
            "sam/sa_1.json",
            {"image": {"file_name": "a.jpg", "height": HEIGHT, "width": WIDTH}, "annotations": [SAM]},
            -1,
        ),
        ("sam.json", {"image": {"file_name": "a.jpg"}, "annotations": [SAM]}, -1),
    ],
)
def test_forms(tmp_path, source, name, content, label) -> None:
    write(path := tmp_path / "found" / name, content)
    (tmp_path / "classes.csv").write_text("teacher,class\n3,cat\n")
    with pytest.warns(UserWarning, match="have no entry, such as"):
        found = read_teacher(
            path if path.parent.name == "found" else path.parent, tmp_path / "classes.csv", source
        )
    expected = TeacherBoxes(torch.tensor([BOX]), torch.tensor([0.5]), torch.tensor([label]))
    assert found["a"] == expected
    # COCO's results and single boxes do not tell where nothing was found.
    assert ("e" in found) == (name in ("results.json", "sink.json", "sink.csv", "sahi.json"))


def test_yolo(tmp_path, source) -> None:
    labels = tmp_path / "predict" / "labels"
    labels.mkdir(parents=True)
    (labels / "a.txt").write_text("15 0.3 0.3 0.4 0.4 0.5\n\n15 0.1 0.1 0.5 0.1 0.5 0.5 0.75\n")
    (labels / "b.txt").write_text("")
    (tmp_path / "classes.csv").write_text("15,cat\n")
    with pytest.warns(UserWarning, match="counts as having found nothing"):
        found = read_teacher(tmp_path / "predict", tmp_path / "classes.csv", source)
    assert found["a"].scores.tolist() == [0.75, 0.5]
    torch.testing.assert_close(found["a"].boxes[1], torch.tensor(BOX))
    torch.testing.assert_close(found["a"].boxes[0], torch.tensor([6.0, 4, 30, 20]))
    assert sorted(found) == list(source.image_ids)


def test_folders_of_autodistill(tmp_path, source, small_voc) -> None:
    root = tmp_path / "dataset"
    for split, name in (("train", "a"), ("valid", "b")):
        for folder in ("images", "labels"):
            (root / split / folder).mkdir(parents=True)
        shutil.copy(small_voc.root / "JPEGImages" / f"{name}.jpg", root / split / "images")
        (root / split / "labels" / f"{name}.txt").write_text("0 0.3 0.3 0.4 0.4\n")
    (root / "data.yaml").write_text("names: [cat]\nnc: 1\ntrain: train/images\nval: valid/images\n")
    with pytest.warns(UserWarning, match="have no entry"):
        found = read_teacher(root, None, source)
    assert [(len(found[name]), found[name].labels.tolist()) for name in "ab"] == [(1, [1]), (1, [1])]


def test_folder_of_voc(tmp_path, source) -> None:
    (folder := tmp_path / "found" / "Annotations").mkdir(parents=True)
    (folder / "a.xml").write_text(
        f"<annotation><filename>a.jpg</filename><size><width>{WIDTH}</width><height>{HEIGHT}</height></size>"
        "<object><name>cat</name><bndbox><xmin>7</xmin><ymin>5</ymin><xmax>30</xmax><ymax>20</ymax></bndbox>"
        "</object></annotation>"
    )
    with pytest.warns(UserWarning, match="training uses their tags alone"):
        found = read_teacher(tmp_path / "found", None, source)
    assert found["a"] == TeacherBoxes(torch.tensor([BOX]), torch.tensor([1.0]), torch.tensor([1]))


def test_tables_of_segment_anything(tmp_path, source) -> None:
    (folder := tmp_path / "masks" / "a").mkdir(parents=True)
    header = "id,area,bbox_x0,bbox_y0,bbox_w,bbox_h,point_input_x,point_input_y,predicted_iou,stability_score"
    (folder / "metadata.csv").write_text(f"{header}\n0,9,6,4,24,16,5,5,1.01,0.9\n")
    with pytest.warns(UserWarning, match="training uses their tags alone"):
        found = read_teacher(tmp_path / "masks", None, source)
    assert found["a"] == TeacherBoxes(torch.tensor([BOX]), torch.tensor([1.0]), torch.tensor([-1]))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"score": 1.5}, r"image 'a.jpg': a box has the score 1.5, expected a number in \[0, 1\]"),
        ({"score": -0.1}, "score -0.1"),
        ({"score": "high"}, "'high', expected a finite number"),
        ({"score": None, "predicted_iou": 1.3}, "predicted_iou 1.3"),
        ({"box": [1, 2, 3]}, "expected four numbers"),
        ({"box": [1, 2, 3, float("nan")]}, "nan, expected a finite number"),
        ({"box": None}, "has no box: expected"),
        ({"label": ["cat"]}, "expected a name or a number"),
        (
            {"segmentation": run_lengths(height=80)},
            r"'a.jpg' has a mask of the \(height, width\) \(80, 60\), exp",
        ),
        (
            {"segmentation": {"size": [40, 60], "counts": [1]}},
            "image 'a.jpg': the runs of a mask add up to 1",
        ),
        (
            {"label": "zebra"},
            r"none of its classes is one of bird, cat, dog: 'zebra' \(1\), the first in image",
        ),
        ({"box": XYWH[2:] + XYWH[:2]}, "1 of 1 boxes have no area: if they are x, y, width, height, name th"),
        (
            {"box": None, "bbox": [30, 10, 55, 35]},
            "1 of 1 boxes extend far out of .* if `bbox` had x1, y1, x2, y2: then name it `box`.*'a.jpg' has",
        ),
        (
            {"box": None, "points": [[1, 2], [3, 4]], "shape_type": "circle"},
            "a shape is a 'circle', expected",
        ),
        ({"box": [20, 0, 120, 80]}, "1 of 1 boxes lie outside of their image: .*'a.jpg' has the box"),
        ({"box": [0.1, 0.2, 0.5, 0.9]}, "1 boxes are within one pixel, from image 'a.jpg' on: .* shares"),
        (
            {"segmentation": [[False] * 9, [True] * 9]},
            r"'a.jpg' has a mask of the \(height, width\) \(2, 9\), exp",
        ),
    ],
)
def test_what_is_wrong_names_file_and_image(tmp_path, source, entry, message) -> None:
    path = write(tmp_path / "found.json", {"a.jpg": [{"label": "cat", "box": BOX, "score": 0.5} | entry]})
    with pytest.raises(DataError, match=message) as error:
        read_teacher(path, None, source)
    assert str(path) in str(error.value)
    assert "a.jpg" in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.json", 3, "it holds 3, expected COCO's"),
        ("f.json", {"classes": ["cat"], "labels": {"a": [HF]}}, "it is of FiftyOne: export COCODet"),
        ("f.json", [SAM], "names no image: .*NAME.json"),
        ("f.json", {"x.jpg": [HF]}, "none of its 1 images is in .*'x.jpg' there, 'a' here"),
        ("f.json", {"a.jpg": 3}, "image 'a.jpg': its boxes are 3"),
        ("f.json", {"a.jpg": {"xyxy": [BOX], "confidence": []}}, "1 boxes and 0 values of 'confidence'"),
        ("f.json", instances(bbox=XYWH, image_id=8), "the image_id 8, which no image has"),
        ("f.json", instances(bbox=XYWH, category_id=8), "image 'a.jpg': a box has the category_id 8"),
        ("f.json", INSTANCES | {"images": 3}, "no list of images"),
        (
            "f.json",
            instances(bbox=XYWH) | {"images": [INSTANCES["images"][0] | {"height": 80}]},
            r"has the .* \(80, 60\)",
        ),
        ("f.jsonl", [{"image": "a"}, 3], "line 1: image 'a': .* has no box.*\n.*line 2: a int"),
        ("f.txt", "0 0 0 0", "of the kind .txt, expected .json, .jsonl, .csv or a folder"),
        ("f/labels/a.txt", None, r"a.txt, line 1: it is '0 x 0 0'; expected class x y width"),
    ],
)
def test_other_files(tmp_path, source, name, content, message) -> None:
    path = write(tmp_path / name, content)
    if content is None:
        path.write_text("0 x 0 0")
    with pytest.raises(DataError, match=message):
        read_teacher(tmp_path / "f" if content is None else path, None, source)


def test_a_folder_of_several_kinds_or_of_none(tmp_path, source) -> None:
    (folder := tmp_path / "found").mkdir()
    with pytest.raises(DataError, match="has none of these, expected files of one kind"):
        read_teacher(folder, None, source)
    write(folder / "a.json", [SAM])
    (folder / "a.txt").write_text("0 0.5 0.5 0.1 0.1")
    with pytest.raises(DataError, match=r"has a.txt, a.json, expected"):
        read_teacher(folder, None, source)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_teacher(tmp_path / "none.json", None, source)


def test_warnings(tmp_path, source) -> None:
    boxes = [{"label": "cat", "box": [10, 10, 70 if i == 0 else 50, 30]} for i in range(9)]
    boxes.append({"label": "zebra", "box": BOX})
    boxes.append({"label": "dog", "box": [BOX[2], BOX[1], BOX[0], BOX[3]]})  # corners swapped
    path = write(tmp_path / "f.json", {"a.jpg": boxes, "x.jpg": boxes})
    with pytest.warns() as record:
        found = read_teacher(path, None, source)
    texts = [str(each.message) for each in record]
    assert any("1 image is not in" in text and "x.jpg" in text for text in texts)
    assert any(
        "1 box of classes without a mapping left out" in text and "'zebra' (1)" in text for text in texts
    )
    assert any("1 of 10 boxes extend out" in text and "'a.jpg' has the box" in text for text in texts)
    assert any("1 of 10 boxes have no area" in text and "'a.jpg' has the box" in text for text in texts)
    assert any("4 images of VOC_trainval have no entry" in text for text in texts)
    assert found["a"].boxes.amax(dim=0).tolist() == [10, 10, WIDTH, 30]
    assert all(str(path) in text for text in texts)


def test_a_teacher_that_found_nothing(tmp_path, source) -> None:
    path = write(tmp_path / "f.json", {f"{each}.jpg": [] for each in source.image_ids})
    with pytest.warns(UserWarning, match="found nothing in the 5 images of .*uses tags alone"):
        found = read_teacher(path, None, source)
    assert {len(each) for each in found.values()} == {0}


def test_the_table_of_classes(tmp_path, source) -> None:
    labels = ("person", 4, "cloud", "The_Dog", "cat")
    path = write(tmp_path / "f.json", {"a.jpg": [{"label": each, "box": BOX} for each in labels]})
    (tmp_path / "classes.csv").write_text("person,bird\n4, cat\ncloud,\ncat,dog\n")
    with pytest.warns(UserWarning, match="have no entry"):
        found = read_teacher(path, tmp_path / "classes.csv", source)
    assert sorted(found["a"].labels.tolist()) == [0, 1, 2, 2]
    (tmp_path / "classes.csv").write_text("a,cow\nb\nc,cat\nc,dog\n")
    message = r"line 1: unknown class 'cow'.*\n.*line 2: 1 columns.*\n.*line 4: 'c' is there twice"
    with pytest.raises(DataError, match=message):
        read_teacher(path, tmp_path / "classes.csv", source)


def test_boxes_of_a_teacher_are_proposals(tmp_path, source, small_voc) -> None:
    boxes = [np.array([[0, 0, 5, 5]])] * len(source)
    sizes = [source.image_size(i) for i in range(len(source))]
    save_proposals(tmp_path / "p.npz", source.image_ids, boxes, sizes)
    path = write(
        tmp_path / "f.json", {f"{each}.jpg": [SAM] if each == "a" else [] for each in source.image_ids}
    )
    keys = [
        "DATASETS.ROOT",
        small_voc.root,
        "DATASETS.CLASSES",
        list(CLASSES),
        "DATASETS.TRAIN_SPLIT",
        "trainval",
    ]
    keys += ["DATASETS.PROPOSALS", tmp_path / "p.npz"]
    config = Path(__file__).parents[3] / "configs/toybox_pcl.yaml"
    alone = build_training_set(load_cfg(config, keys))
    both = build_training_set(load_cfg(config, [*keys, "DATASETS.TEACHER", path]))
    assert both.proposals["a"].tolist() == [BOX, [0, 0, 5, 5]]
    assert both.proposals["b"].tolist() == [[0, 0, 5, 5]]
    assert len(both.proposals) == len(alone.proposals)
    assert both.describe().keys() - alone.describe().keys() == {"boxes of the teacher"}
    assert build_teacher(load_cfg(config, keys).datasets, source) == {}
    with pytest.raises(ConfigError, match=r"DATASETS\.TEACHER_CLASSES is 'x.csv'"):
        load_cfg(config, [*keys, "DATASETS.TEACHER_CLASSES", "x.csv"])


@pytest.mark.filterwarnings("error:.* turned by an EXIF orientation")  # each form says which is meant
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("form", ["stored size", "upright size", "stored mask", "shares", "ours", "nothing"])
def test_boxes_of_a_picture_that_exif_turns(tmp_path, orientation, upright, form) -> None:
    stored, size = (2, 3, 7, 5), (9, 12)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    Image.new("L", size[::-1]).save(tmp_path / "a.png", exif=exif)
    shown, shown_size = turn_box(stored, orientation, size), turn_size(size, orientation)
    row: dict = {"image": {"file_name": "a.png"}, "boxes": [{"label": "cat", "box": shown}]}
    match form:
        case "stored size" | "ours":
            row = {"image": {"file_name": "a.png", "height": size[0], "width": size[1]}}
            row["boxes"] = [{"label": "cat", "box": stored}]
            if form == "ours" or orientation < 5:  # from 5 on the size tells
                row["image"]["orientation"] = "stored"
        case "upright size":
            row["image"] |= dict(zip(("height", "width"), shown_size, strict=True))
        case "stored mask":
            row["boxes"] = [{"label": "cat", "segmentation": run_lengths(stored, *size)}]
            row["image"]["orientation"] = "stored"
    if form == "shares":
        x1, y1, x2, y2 = (side / shown_size[1 - axis % 2] for axis, side in enumerate(shown))
        (tmp_path / "found").mkdir()
        (tmp_path / "found" / "a.txt").write_text(f"0 {(x1 + x2) / 2} {(y1 + y2) / 2} {x2 - x1} {y2 - y1}")
        (tmp_path / "classes.csv").write_text("0,cat\n")
        path, table = tmp_path / "found", tmp_path / "classes.csv"
    else:
        path, table = write(tmp_path / "found.jsonl", [row]), None
    none = np.zeros(0, np.int64)
    objects = Objects(none, np.zeros((0, 4)), none, none.astype(bool), none.astype(bool), np.zeros(0))
    sizes = np.array([shown_size if upright else size])
    paths, labels = [str(tmp_path / "a.png")], np.array([[False, True, False]])
    options = {"labels": labels, "apply_orientation": upright}
    source = AnnotatedImages("set", tmp_path, CLASSES, ["a"], paths, sizes, objects, **options)
    found = read_teacher(path, table, source)["a"].boxes
    torch.testing.assert_close(found, torch.tensor([shown if upright else stored]).float())


def test_instances_of_a_turned_picture_are_those_of_the_stored_pixels(tmp_path, source, small_voc) -> None:
    path = small_voc.root / "JPEGImages" / "a.jpg"
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 3
    Image.open(path).save(path, exif=exif)
    with pytest.warns(UserWarning, match="1 picture is turned by an EXIF orientation"):
        found = read_teacher(write(tmp_path / "coco.json", instances(bbox=XYWH)), None, source)
    assert found["a"].boxes.tolist() == [BOX]
