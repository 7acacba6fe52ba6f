"""YOLO as its tools write it, and what else lies in such folders."""

import pytest
from files import write

from detector.data.formats import review_import
from detector.data.sources.tagged_pictures import find_tags
from detector.utils.errors import DataError

LINE = "0 .5 .5 .5 .5\n"


def labels(folder):
    return {each.name: each.labels for each in find_tags(folder, None)[0]}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("names: [yes, no]", ["yes", "no"]),
        ("names: [1, 2.0]", ["1", "2.0"]),
        ("names:\n  0: 02146\n  1: null", ["02146", "null"]),
        ("names: {'0': cat, \"1\": 'on'}", ["cat", "on"]),
        ("nc: 2\nnames: ['cat', 'dog: big']", ["cat", "dog: big"]),
        ("\ufeffnames:\r\n- cat\r\n- 2024-01-01\r\n", ["cat", "2024-01-01"]),
    ],
)
def test_class_names_are_read_as_they_are_written(tmp_path, names, expected):
    write(tmp_path, {"images/a.jpg": "", "images/b.jpg": "", "labels/a.txt": LINE, "data.yaml": names})
    write(tmp_path, {"labels/b.txt": "1.0 .5 .5 .5 .5"})
    assert labels(tmp_path) == {"a.jpg": (expected[0],), "b.jpg": (expected[1],)}


@pytest.mark.parametrize(
    "names", ["nc: 2", "names: cat", "names: {cat: 0}", "names: [[a], b]", "names: ['', b]"]
)
def test_names_that_are_none_are_told(tmp_path, names):
    write(tmp_path, {"images/a.jpg": "", "labels/a.txt": LINE, "data.yaml": names})
    with pytest.raises(DataError, match=r"data\.yaml.* `names`"):
        find_tags(tmp_path, None)


@pytest.mark.parametrize(
    ("line", "box"),
    [
        ("0 .5 .5 .4 .2", (24, 24, 56, 36)),
        ("0.0 .5 .5 .4 .2 .9", (24, 24, 56, 36)),
        ("\ufeff\r\n0  .5\t.5 .4 .2\r\n\r\n", (24, 24, 56, 36)),
        ("0 .25 .25 .75 .25 .5 .75", (20, 15, 60, 45)),  # an outline
        ("0 .25 .25 .75 .25 .75 .75 .25 .75", (20, 15, 60, 45)),  # a rotated box
        ("0 .5 .5 1.01 1.004", (0, 0, 80, 60)),
    ],
)
def test_lines(tmp_path, line, box):
    write(tmp_path, {"images/a.jpg": "", "labels/a.txt": line, "data.yaml": "names: [cat]"})
    ((image,),) = [review_import(tmp_path, reviewed="all")]
    assert [each.box for each in image.boxes] == [pytest.approx(box)]


def test_keypoints_after_a_box(tmp_path):
    write(tmp_path, {"images/a.jpg": "", "labels/a.txt": "0 .5 .5 .4 .2 .1 .1 2 .9 .9 0"})
    write(tmp_path, {"data.yaml": "names: [cat]\nkpt_shape: [2, 3]"})
    ((image,),) = [review_import(tmp_path, reviewed="all")]
    assert image.boxes[0].box == pytest.approx((24, 24, 56, 36))


def test_all_wrong_lines_are_told_at_once(tmp_path):
    write(tmp_path, {"data.yaml": "names: [cat]"})
    for number in range(12):
        write(tmp_path, {f"images/{number}.jpg": "", f"labels/{number}.txt": "0 .5 .5\n"})
    with pytest.raises(DataError, match=r"and 2 more") as caught:
        find_tags(tmp_path, None)
    assert str(caught.value).count("line 1 is '0 .5 .5', expected a class from 0 to 0") == 10


@pytest.mark.parametrize(
    "files",
    [
        {"dataset.yaml": "names: [cat]"},
        {"data.yml": "names: [cat]"},
        {"coco8.yaml": "names: [cat]"},
        {"classes.txt": "cat\n"},
        {"labels/classes.txt": "cat\r\n\r\n"},
        {"notes.json": '{"categories": [{"id": 0, "name": "cat"}]}'},
        {"classes.txt": "cat", "notes.json": '{"categories": [{"id": 0, "name": "cat"}]}'},
        {"obj.names": "cat", "obj.data": "names = obj.names"},
    ],
)
def test_files_of_class_names(tmp_path, files):
    write(tmp_path, {"images/a.jpg": "", "labels/a.txt": LINE, **files})
    assert labels(tmp_path) == {"a.jpg": ("cat",)}


def test_labels_beside_the_pictures(tmp_path):
    """As of Darknet, and of CVAT's export YOLO 1.1."""
    write(tmp_path, {f"obj_Train_data/{name}.jpg": "" for name in "ab"} | {"obj_Test_data/c.jpg": ""})
    write(tmp_path, {f"obj_Train_data/{name}.txt": LINE for name in "ab"} | {"obj_Test_data/c.txt": LINE})
    write(tmp_path, {"obj.names": "cat\n", "obj.data": "train = data/Train.txt\nvalid = data/Test.txt\n"})
    write(tmp_path, {"Train.txt": "data/obj_Train_data/a.jpg\ndata/obj_Train_data/b.jpg\n"})
    write(tmp_path, {"Test.txt": "data/obj_Test_data/c.jpg\n"})
    found = {each.name: (each.labels, each.split) for each in find_tags(tmp_path, None)[0]}
    assert found == {
        "obj_Train_data/a.jpg": (("cat",), "train"),
        "obj_Train_data/b.jpg": (("cat",), "train"),
        "obj_Test_data/c.jpg": (("cat",), "val"),
    }


def test_captions_in_folders_of_classes_are_not_yolo(tmp_path):
    for label in ("cat", "dog"):
        write(tmp_path, {f"{label}/a{label}.jpg": "", f"{label}/a{label}.txt": "a photo of it\n"})
    write(tmp_path, {"classes.txt": "cat\ndog\n"})
    assert {*labels(tmp_path).values()} == {("cat",), ("dog",)}


def test_files_of_boxes_without_a_picture_are_counted(tmp_path):
    write(tmp_path, {"images/a.jpg": "", "labels/a.txt": LINE, "data.yaml": "names: [cat]"})
    write(tmp_path, {f"labels/gone{number}.txt": LINE for number in range(5)})
    with pytest.warns(
        UserWarning, match=r"5 files of boxes have no image in .*: labels/gone0\.txt, .* and 2 more"
    ):
        assert labels(tmp_path) == {"a.jpg": ("cat",)}
    (tmp_path / "images/a.jpg").rename(tmp_path / "images/b.jpg")
    with pytest.raises(FileNotFoundError, match=r"none of the 6 files of boxes in .* has an image in"):
        find_tags(tmp_path, None)


def test_no_class_names_at_all(tmp_path):
    write(tmp_path, {"images/a.jpg": "", "labels/a.txt": LINE})
    with pytest.raises(
        DataError, match=r"YOLO's files of boxes.*no names of their classes: write data\.yaml"
    ):
        find_tags(tmp_path, None)


def test_odd_boxes_are_told_in_one_warning(tmp_path):
    write(tmp_path, {"images/a.jpg": "", "images/b.jpg": "", "data.yaml": "names: [cat, dog]"})
    write(tmp_path, {"labels/a.txt": f"{LINE}1 .5 .5 0 0\n", "labels/b.txt": "1 .5 .5 1.2 .4\n"})
    with pytest.warns(UserWarning, match=r"outside .* clipped: 1; .* left out .*: 1") as caught:
        found = {each.name: each for each in find_tags(tmp_path, None)[0]}
    assert len(caught) == 1
    assert (found["a.jpg"].labels, found["a.jpg"].boxes) == (("cat", "dog"), None)
    assert found["b.jpg"].boxes[0].box == pytest.approx((0, 18, 80, 42))


def test_two_numbers_of_one_name_are_told(tmp_path):
    write(
        tmp_path,
        {"images/a.jpg": "", "labels/a.txt": LINE + "1 .5 .5 .2 .2\n", "data.yaml": "names: [cat, cat]"},
    )
    with pytest.warns(UserWarning, match=r"data\.yaml: several numbers are named cat: .* one class"):
        (image,) = review_import(tmp_path, reviewed="all")
    assert [box.label for box in image.boxes] == ["cat", "cat"]
