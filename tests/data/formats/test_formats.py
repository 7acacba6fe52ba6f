import json
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from detector.data.formats import FORMATS, ReviewImage, encode_review, review_import
from detector.data.formats.review import check_images
from detector.data.labeled_box import LabeledBox
from detector.utils.errors import DataError

CLASSES = ("cat", "großer Hund", "a & <b>")
SIZE = (60, 80)  # (height, width)
IMAGES = [
    ReviewImage("a.png", SIZE, (LabeledBox("cat", (1.5, 2.25, 40.0, 50.0), 0.5),)),
    ReviewImage("b/c.png", SIZE, (LabeledBox("cat", (0.0, 0.0, 80.0, 60.0)),), complete=True),
    ReviewImage("d.png", SIZE, (), complete=True),
    ReviewImage(
        "e.png",
        SIZE,
        (
            LabeledBox("a & <b>", (3.0, 4.0, 5.0, 6.0), 0.25, reviewed=True),
            LabeledBox("großer Hund", (3.0, 4.0, 15.0, 26.0), 0.125, doubtful=True),
        ),
    ),
]
WRITTEN = {
    "coco": "coco.json",
    "voc": "Annotations",
    "yolo": "",
    "label-studio": "tasks.json",
    "cvat": "annotations.xml",
}


def write(folder: Path, form: str, images: list[ReviewImage]) -> Path:
    for name, content in encode_review(form, images, CLASSES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder / WRITTEN[form]


def write_pictures(folder: Path, images: list[ReviewImage]) -> Path:
    for image in images:
        path = folder / "images" / image.name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("1", image.size[::-1]).save(path)
    return folder / "images"


def assert_same(found: list[ReviewImage], expected: list[ReviewImage], form: str) -> None:
    assert sorted(image.name for image in found) == sorted(image.name for image in expected)
    by_name = {image.name: image for image in expected}
    for image in found:
        other = by_name[image.name]
        if form == "yolo":  # has no room for the flags of a box
            boxes = tuple(box._replace(reviewed=False, doubtful=False) for box in other.boxes)
            other = replace(other, boxes=boxes)
        assert (image.size, image.complete, image.reviewed) == (other.size, other.complete, other.reviewed)
        for box, true in zip(image.boxes, other.boxes, strict=True):
            assert box.box == pytest.approx(true.box, abs=1e-5)
            assert box.score == pytest.approx(true.score)
            assert box._replace(box=true.box, score=true.score) == true


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_read_back(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form, IMAGES)
    assert_same(review_import(path, images=write_pictures(tmp_path, IMAGES)), IMAGES, form)


@pytest.mark.parametrize("form", ["coco", "voc"])
def test_difficult_objects_stay_difficult(tmp_path: Path, form: str) -> None:
    """VOC's flag and COCO's iscrowd: AP would count such an object otherwise."""
    boxes = IMAGES[3].boxes[0]._replace(difficult=True), IMAGES[3].boxes[1]
    images = [replace(IMAGES[3], boxes=boxes)]
    assert_same(review_import(write(tmp_path, form, images)), images, form)


@pytest.mark.parametrize("form", FORMATS)
def test_blanks_and_line_separators_in_names_of_images_are_kept(tmp_path: Path, form: str) -> None:
    names = ("a.png", " a.png", "b/ .png", "c /d\u2028.png", "e\u3000.f .png")
    images = [replace(IMAGES[1], name=name) for name in names]
    path = write(tmp_path, form, images)
    assert_same(review_import(path, images=write_pictures(tmp_path, images)), images, form)


def test_the_name_of_an_annotation_of_voc_names_the_image(tmp_path: Path) -> None:
    """Where images were renamed, <filename> may name another one."""
    folder = write(tmp_path, "voc", IMAGES[1:2])
    text = (folder / "b/c.xml").read_text()
    for name in ("d.png", "C:\\pictures\\c.png", "\n  c.png\n"):
        (folder / "b/c.xml").write_text(text.replace("b/c.png", name))
        assert review_import(folder) == IMAGES[1:2]


@pytest.mark.parametrize("form", ["voc", "yolo"])
def test_files_that_macos_adds_are_left_out_and_linked_folders_are_not(tmp_path: Path, form: str) -> None:
    path, pictures = write(tmp_path / "in", form, IMAGES), write_pictures(tmp_path / "in", IMAGES)
    files = tmp_path / "in" / {"voc": "Annotations", "yolo": "labels"}[form]
    for folder in (files, files / "__MACOSX", pictures):
        folder.mkdir(exist_ok=True)
        for name in (".DS_Store", "._.DS_Store", "._a.xml", "._a.txt", "._a.jpg"):
            (folder / name).write_bytes(b"\0\5\x16\7")
    assert_same(review_import(path, images=pictures), IMAGES, form)
    (files / "b").rename(tmp_path / "elsewhere")
    (files / "b").symlink_to(tmp_path / "elsewhere")
    assert_same(review_import(path, images=pictures), IMAGES, form)


@st.composite
def image_lists(draw: st.DrawFn) -> list[ReviewImage]:
    stem = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=6)
    stems = draw(st.lists(stem, min_size=1, max_size=4, unique_by=str.lower))
    images = []
    for stem in stems:
        height, width = draw(st.tuples(st.integers(1, 300), st.integers(1, 300)))
        side = st.floats(0, 1)
        boxes = []
        for _ in range(draw(st.integers(0, 3))):
            x, y, w, h = (draw(side) for _ in range(4))
            x1, y1 = x * width * 0.9, y * height * 0.9
            box = x1, y1, x1 + (width - x1) * max(w, 0.01), y1 + (height - y1) * max(h, 0.01)
            score = draw(st.none() | st.floats(0, 1, width=32))
            boxes.append(
                LabeledBox(
                    draw(st.sampled_from(CLASSES)), box, score, draw(st.booleans()), draw(st.booleans())
                )
            )
        images.append(ReviewImage(f"{stem}.png", (height, width), tuple(boxes), draw(st.booleans())))
    # A file without any reviewed box is an error, and one of shares, which other tests try.
    boxes = [box.box for image in images for box in image.boxes]
    assume(not boxes or max(map(max, boxes)) > 1)
    return [*images, ReviewImage("complete image.png", (5, 5), (), complete=True)]


def round_trip(tmp_path_factory: pytest.TempPathFactory, form: str, images: list[ReviewImage]) -> None:
    folder = tmp_path_factory.mktemp("set")
    pictures = write_pictures(folder, images) if form == "yolo" else None
    assert_same(review_import(write(folder, form, images), images=pictures), images, form)


@pytest.mark.parametrize("form", FORMATS)
@given(images=image_lists())
@settings(max_examples=15, deadline=None)
def test_random_sets(tmp_path_factory: pytest.TempPathFactory, form: str, images: list[ReviewImage]) -> None:
    round_trip(tmp_path_factory, form, images)


@pytest.mark.parametrize("form", FORMATS)
def test_boxes_of_a_detector_do_not_count_as_true(tmp_path: Path, form: str) -> None:
    images = IMAGES[:1]
    path, pictures = write(tmp_path, form, images), write_pictures(tmp_path, images)
    with pytest.raises(DataError, match="none of its 1 images has a reviewed box"):
        review_import(path, images=pictures)
    (image,) = review_import(path, images=pictures, reviewed="all")
    assert image.reviewed == "all"
    assert len(image.true_boxes) == 1


def test_partly_reviewed_images_give_only_reviewed_boxes() -> None:
    assert [image.reviewed for image in IMAGES] == ["none", "all", "all", "some"]
    assert [len(image.true_boxes) for image in IMAGES] == [0, 1, 0, 1]


def test_tools_of_others(tmp_path: Path) -> None:
    tasks = [
        {
            "id": 7,
            "data": {"image": "/data/upload/3/0123abcd-a.png"},
            "annotations": [{"was_cancelled": True, "result": []}, {"result": [region(10.0)]}],
        },
        {"id": 8, "data": {"image": "/data/local-files/?d=sub/b%20c.png"}, "annotations": [{"result": []}]},
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(tasks))
    with pytest.raises(DataError, match="name the folder of images"):
        review_import(path)
    pictures = write_pictures(tmp_path, [ReviewImage("sub/b c.png", (5, 9), ())])
    first, second = review_import(path, images=pictures)
    assert (first.name, first.reviewed) == ("a.png", "all")
    assert first.boxes == (LabeledBox("cat", (8.0, 12.0, 24.0, 36.0), reviewed=True),)
    assert (second.name, second.size, second.boxes) == ("sub/b c.png", (5, 9), ())


def region(x: float, **changed: object) -> dict:
    value = {"x": x, "y": 20.0, "width": 20.0, "height": 40.0, "rotation": 0, "rectanglelabels": ["cat"]}
    return {
        "type": "rectanglelabels",
        "original_width": 80,
        "original_height": 60,
        "image_rotation": 0,
        "value": value | changed,
    }


# As CVAT's documentation of the format shows, but for the values.
CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta><dumped>2024-01-01 00:00:00+00:00</dumped></meta>
  <image id="0" name="a/b.jpg" subset="default" task_id="1" width="80" height="60">
    <box label="cat" source="manual" occluded="0" xtl="1.50" ytl="2.00" xbr="30.00" ybr="40.00" z_order="0">
      <attribute name="score">0</attribute><attribute name="reviewed">false</attribute>
    </box>
    <box label="cat" source="auto" occluded="1" xtl="2.00" ytl="2.00" xbr="30.00" ybr="40.00" z_order="0">
    </box>
  </image>
</annotations>
"""


def test_boxes_drawn_in_cvat_are_reviewed(tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text(CVAT)
    (image,) = review_import(path)
    assert (image.name, image.size, image.reviewed) == ("a/b.jpg", (60, 80), "some")
    assert [box.box for box in image.true_boxes] == [(1.5, 2.0, 30.0, 40.0)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.xml", CVAT.replace("<box ", "<polygon ").replace("</box>", "</polygon>"), "has a <polygon>"),
        ("a.xml", CVAT.replace('xbr="30.00"', 'xbr="abc"'), "xbr 'abc', expected a number"),
        ("a.xml", CVAT.replace('xbr="30.00"', 'xbr="nan"'), "is not finite"),
        ("a.xml", CVAT.replace('xbr="30.00"', 'xbr="30.00" rotation="5"'), "rotated by 5 degrees"),
        ("a.xml", CVAT.replace("a/b.jpg", "../b.jpg"), "not a name inside its folder"),
        ("a.xml", CVAT.replace("<annotations>", '<!DOCTYPE a SYSTEM "/etc/passwd"><annotations>'), "DOCTYPE"),
        ("a.xml", "<annotation/>", "has the root <annotation>, expected <annotations>"),
        ("a.json", "[{}]", "has no `data`"),
        ("a.json", "{}", "has no list of images"),
        ("a.json", "[", "damaged"),
        ("a.txt", "", "neither .json"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_used(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        review_import(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rotation": 3}, "rotated"),
        ({"rectanglelabels": ["cat", "dog"]}, "one label"),
        ({"rectanglelabels": []}, "one label"),
    ],
)
def test_regions_that_are_no_boxes(tmp_path: Path, changed: dict, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps([{"data": {"image": "a.png"}, "annotations": [{"result": [region(1.0, **changed)]}]}])
    )
    with pytest.raises(DataError, match=message):
        review_import(path)


def test_tasks_with_tags_alone(tmp_path: Path) -> None:
    choice = {"type": "choices", "value": {"choices": ["cat"]}}
    tasks = [{"data": {"image": "a.png"}, "annotations": [{"result": [choice]}]}]
    (tmp_path / "a.json").write_text(json.dumps(tasks))
    with pytest.raises(DataError, match=r"'choices', expected rectanglelabels with one label"):
        review_import(tmp_path / "a.json")


@pytest.mark.parametrize(
    "line",
    [
        *("7 .5 .5 .1 .1", "0 .5 .5 .1", "0 .5 .5 .1 .1 .5 .5 .5", "cat .5 .5 .1 .1", "0.5 .5 .5 .1 .1"),
        *("-1 .5 .5 .1 .1", "0 nan .5 .1 .1", "0 320 200 40 40"),
    ],
)
def test_lines_that_are_not_yolo(tmp_path: Path, line: str) -> None:
    write(tmp_path, "yolo", IMAGES[:1])
    write_pictures(tmp_path, IMAGES[:1])
    (tmp_path / "labels" / "a.txt").write_text(line)
    with pytest.raises(DataError, match=r"a\.txt, line 1 is .* expected a class from 0 to 2"):
        review_import(tmp_path)


def test_yolo_lists_of_reviewed_images(tmp_path: Path) -> None:
    """A line that names no image would be lost; a tool may delete the file of an image without objects."""
    write(tmp_path, "yolo", IMAGES)
    pictures = write_pictures(tmp_path, IMAGES)
    (tmp_path / "labels/d.txt").unlink()
    (tmp_path / "reviewed.txt").write_bytes(b"images/a.png\r\n./images/d.png\r\n\r\n")
    found = {image.name: image for image in review_import(tmp_path, images=pictures)}
    assert {name for name, image in found.items() if image.complete} == {"a.png", "d.png"}
    assert found["d.png"].boxes == ()
    (tmp_path / "reviewed.txt").write_text("images/a.png\nlabels/d.txt\nb/c\n")
    with pytest.raises(DataError, match=r"reviewed.txt.*: b/c, labels/d.txt; expected.*images/a.png"):
        review_import(tmp_path, images=pictures)


def test_a_folder_with_two_formats_is_ambiguous(tmp_path: Path) -> None:
    """As `detector label` with two formats writes it; only one of them has been corrected."""
    for form in ("voc", "yolo"):
        write(tmp_path, form, IMAGES)
    pictures = write_pictures(tmp_path, IMAGES)
    with pytest.raises(DataError, match=r"has files of YOLO and of VOC.*name .*Annotations, or move it away"):
        review_import(tmp_path, images=pictures, reviewed="all")
    assert review_import(tmp_path / "Annotations")


def test_yolo_with_a_folder_for_each_split(tmp_path: Path) -> None:
    (tmp_path / "data.yaml").write_text("names: [cat]\ntrain: ../train/images\n")
    for split in ("train", "valid"):
        write_pictures(tmp_path / split, [ReviewImage("a.png", (40, 60), ())])
        (tmp_path / split / "labels").mkdir()
        (tmp_path / split / "labels" / "a.txt").write_text("0 .5 .5 .1 .1")
    found = review_import(tmp_path, reviewed="all")
    assert [image.name for image in found] == ["train/images/a.png", "valid/images/a.png"]
    assert found[0].boxes[0].box == pytest.approx((27, 18, 33, 22))
    (tmp_path / "labels").mkdir()
    with pytest.raises(DataError, match=r"no file NAME\.txt in labels"):
        review_import(tmp_path)


def test_of_two_tasks_of_an_image_the_reviewed_one_counts(tmp_path: Path) -> None:
    """A project has them if tasks of `detector suggest` are added to those of `detector label`."""
    first = IMAGES[0]
    corrected = replace(
        first, boxes=(LabeledBox("cat", (10.0, 10.0, 20.0, 20.0), reviewed=True),), complete=True
    )
    for both in ([first, corrected], [corrected, first], [first, corrected, first]):
        assert check_images(both) == [corrected]
    assert check_images([first, first]) == [first]
    with pytest.raises(DataError, match=r"'a\.png' occurs twice.*keep one"):
        check_images([corrected, corrected])
    path = write(tmp_path, "coco", [first])
    content = json.loads(path.read_text())
    content["images"].append({**content["images"][0], "id": 9})
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"'a\.png' occurs twice.*keep one"):
        review_import(path, reviewed="all")


def test_unknown_format() -> None:
    with pytest.raises(DataError, match="expected one of coco, voc"):
        list(encode_review("pascal", IMAGES, CLASSES))


@pytest.mark.parametrize("size", ["", "<size><width>0</width><height>0</height></size>", "<size/>"])
@pytest.mark.parametrize("name", ["", "<filename>a</filename>", "<filename>other.jpg</filename>"])
def test_the_picture_tells_what_an_annotation_of_voc_does_not(tmp_path: Path, size: str, name: str) -> None:
    box = "<bndbox><xmin>3</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    flags = ("", "<difficult/>", "<difficult>Unspecified</difficult>", "<difficult>False</difficult>")
    objects = "".join(f"<object><name>cat</name>{flag}{box}</object>" for flag in flags)
    objects += f"<object><name>cat</name><difficult>TRUE</difficult>{box}</object>"
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "JPEGImages").mkdir()
    (tmp_path / "Annotations/a.xml").write_text(f"<annotation>{name}{size}{objects}</annotation>")
    with pytest.raises(
        DataError, match=r"a\.xml: it has no <(size|filename)> .* there is no picture of its name"
    ):
        review_import(tmp_path, reviewed="all")
    Image.new("RGB", (80, 60)).save(tmp_path / "JPEGImages/a.png")
    (image,) = review_import(tmp_path, reviewed="all")
    assert (image.name, image.size) == ("a.png", (60, 80))
    assert [box.difficult for box in image.boxes] == [False] * 4 + [True]


def test_names_that_are_not_utf8_are_told(tmp_path: Path) -> None:
    (tmp_path / "coco.json").write_bytes(b'{"images": [{"file_name": "caf\xe9.png"}]}')
    with pytest.raises(DataError, match=r"coco\.json is not UTF-8 text .*0xe9\): save it as UTF-8"):
        review_import(tmp_path / "coco.json")
    rectangle = {"type": "rectanglelabels", "original_width": 64, "original_height": 48}
    rectangle["value"] = {"x": 10, "y": 10, "width": 40, "height": 40, "rectanglelabels": ["cat"]}
    task = {"data": {"image": "/data/local-files/?d=caf%E9.png"}, "annotations": [{"result": [rectangle]}]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    with pytest.raises(DataError, match=r"tasks\.json: the name 'caf\\udce9\.png' is not UTF-8"):
        review_import(tmp_path / "tasks.json")
