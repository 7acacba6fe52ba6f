import os
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from PIL import ExifTags, Image

from detector.data.datasets.annotated import unknown_class
from detector.data.datasets.voc import VOCDataset
from detector.data.datasets.voc_writer import write_annotation, write_split
from detector.utils.errors import DataError

CLASSES = ("bird", "cat", "dog")


def one_image(folder, objects, **image):
    folder.image("a", **image)
    path = folder.xml("a", objects)
    folder.split("train", ["a"])
    return path


@pytest.fixture
def dataset(small_voc):
    return VOCDataset(small_voc.root, "trainval", CLASSES)


def test_reads_a_split(dataset, small_voc):
    assert dataset.name == "VOC_trainval"
    assert dataset.class_names == CLASSES
    assert dataset.image_ids == ("a", "b", "c", "d", "e")
    assert len(dataset) == 5
    assert dataset.image_path(1) == small_voc.root / "JPEGImages" / "b.jpg"
    assert dataset.image_size(1) == (43, 56)
    image = dataset.read_image(1)
    assert image.shape == (3, 43, 56)
    assert image.dtype == torch.uint8
    assert image.is_contiguous()
    labels = torch.stack([dataset.labels(i) for i in range(5)])
    assert labels.dtype == torch.float32
    assert labels.tolist() == [[0, 1, 1], [1, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_boxes_become_half_open(dataset):
    annotation = dataset.annotation(2)
    assert annotation.image_id == "c"
    assert annotation.boxes.tolist() == [[1, 1, 30, 20], [4, 4, 40, 30]]
    assert annotation.boxes.dtype == torch.float32
    assert annotation.labels.tolist() == [1, 1]
    assert annotation.difficult.tolist() == [False, True]


def test_an_image_without_objects_has_an_empty_annotation(dataset):
    annotation = dataset.annotation(3)
    assert annotation.boxes.shape == (0, 4)
    assert annotation.labels.shape == annotation.difficult.shape == (0,)
    assert (annotation.labels.dtype, annotation.difficult.dtype) == (torch.int64, torch.bool)


def test_difficult_objects_need_not_give_labels(small_voc):
    dataset = VOCDataset(small_voc.root, "trainval", CLASSES, difficult_labels=False)
    assert dataset.labels(2).tolist() == [0, 1, 0]  # its other cat is not difficult
    assert dataset.labels(4).tolist() == [0, 0, 0]


def test_a_warning_where_most_images_show_no_class(folder):
    one_image(folder, [("cat", (1, 1, 5, 5))])
    for name in "bc":
        folder.image(name)
        folder.xml(name, [])
    folder.split("half", ["a", "b"])
    folder.split("most", ["a", "b", "c"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        VOCDataset(folder.root, "half", CLASSES)
    with pytest.warns(UserWarning, match="2 of 3 images show no class"):
        VOCDataset(folder.root, "most", CLASSES)


def test_survives_pickling(dataset):
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.image_ids == dataset.image_ids
    assert torch.equal(copy.read_image(0), dataset.read_image(0))
    assert torch.equal(copy.annotation(0).boxes, dataset.annotation(0).boxes)


def test_fractional_boxes_are_read(folder):
    one_image(folder, [("cat", (45.7, 3, 50.2, 9.5))])
    box = VOCDataset(folder.root, "train", CLASSES).annotation(0).boxes[0]
    assert box.tolist() == pytest.approx([44.7, 2, 50.2, 9.5])


def test_parts_of_an_object_are_not_objects(folder):
    path = one_image(folder, [("cat", (1, 1, 9, 9))])
    part = "<part><name>head</name><bndbox><xmin>2</xmin></bndbox></part>"
    path.write_text(path.read_text().replace("</object>", f"{part}</object>"))
    assert VOCDataset(folder.root, "train", CLASSES).annotation(0).boxes.tolist() == [[0, 0, 9, 9]]


def test_png_images_are_found(folder):
    one_image(folder, [("cat", (1, 1, 5, 5))], suffix=".png")
    assert VOCDataset(folder.root, "train", CLASSES).image_path(0).suffix == ".png"


def test_the_classes_may_be_those_of_the_annotations(folder):
    one_image(folder, [("WBC", (1, 1, 5, 5)), ("RBC", (1, 1, 9, 9)), ("WBC", (2, 2, 5, 5))])
    for classes in ((), []):
        dataset = VOCDataset(folder.root, "train", classes)
        assert dataset.class_names == ("RBC", "WBC")
        assert dataset.annotation(0).labels.tolist() == [1, 0, 1]


# ---- Bad input: each error names the file and what is wrong with it


def refused(folder, error=ValueError, split="train"):
    with pytest.raises(error) as caught:
        VOCDataset(folder.root, split, CLASSES)
    return str(caught.value)


def test_a_missing_root(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere .*ImageSets/Main"):
        VOCDataset(tmp_path / "nowhere", "train", CLASSES)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, ["train.txt does not exist", "half, test"]),
        ("", ["train.txt is empty"]),
        ("\n \n", ["train.txt is empty"]),
        ("a\na", ["train.txt lists image a 2 times"]),
        *((f"a\n{name}", ["train.txt: ", f"{name!r} is not a name inside its folder"])
          for name in ("../JPEGImages/a", "/b", "b/../../a", "..\\a")),
        ("a\nü\n", ["train.txt is not UTF-8 text (line 2"]),
        ("a\nb", [str(Path("JPEGImages", "b")), "train.txt", ".png"]),  # the list may be what is wrong
    ],
)  # fmt: skip
def test_a_split_that_cannot_be_read(folder, content, told):
    one_image(folder, [])
    for other in ("test", "half"):
        folder.split(other, ["a"])
    path = folder.split("train", [])
    path.unlink() if content is None else path.write_bytes(content.encode("latin-1"))
    message = refused(folder, (DataError, FileNotFoundError))
    assert all(text in message for text in told)


def test_annotations_to_take_the_classes_from(folder):
    path = one_image(folder, [])
    with pytest.raises(DataError, match=r"split train of .*VOC has an object"):
        VOCDataset(folder.root, "train")
    for name, told in ((" ", "has no class name"), ("cat\ndog", "not allowed in a name")):
        folder.xml("a", [(name, (1, 1, 5, 5))])
        with pytest.raises(DataError, match=rf"{path}.* {told}"):
            VOCDataset(folder.root, "train")


def test_an_annotation_that_is_a_pipe(folder):
    path = one_image(folder, [])
    path.unlink()
    os.mkfifo(path)  # opening it would block forever
    assert "a.xml is not a regular file" in refused(folder, DataError)


def test_a_file_that_is_no_image(folder):
    one_image(folder, [])
    (folder.root / "JPEGImages" / "a.jpg").write_bytes(b"not an image")
    assert f"image {folder.root / 'JPEGImages' / 'a.jpg'} cannot be read" in refused(folder)


@pytest.mark.filterwarnings("ignore:VOC_train")
def test_a_truncated_image(folder):
    one_image(folder, [], height=200, width=200)
    path = folder.root / "JPEGImages" / "a.jpg"
    path.write_bytes(path.read_bytes()[:3000])
    dataset = VOCDataset(folder.root, "train", CLASSES)  # its header is whole
    with pytest.raises(ValueError, match=r"a\.jpg cannot be read: .*truncated"):
        dataset.read_image(0)


OBJECT = "<annotation><object><name>{}</name>{}<bndbox>{}</bndbox></object></annotation>"


def an_object(box="1 1 5 5", name="cat", more=""):
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box.split(), strict=False)
    return OBJECT.format(name, more, "".join(f"<{side}>{value}</{side}>" for side, value in sides))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "a.xml does not exist"),
        ("<annotation><object>", "a.xml is damaged or of another format: no element found"),
        ("<?xml version='1.0' encoding='no-such'?><annotation/>", "a.xml"),
        ("ÿþ", "a.xml"),
        ("<html></html>", "a.xml: it has the root <html>, expected <annotation>"),
        (an_object().replace("bndbox", "box"), "a.xml: an object (cat) has no bndbox"),
        (an_object("1 1 5"), "a.xml: <ymax> of <bndbox> is None, expected a number"),
        (an_object("one 1 5 5"), "a.xml: <xmin> of <bndbox> is 'one', expected a number"),
        (
            an_object(more="<difficult>maybe</difficult>"),
            "a.xml: <difficult> of <object> is 'maybe', expected 0, 1 or one of",
        ),
        (
            an_object("9 1 5 5"),
            "Annotations: image a has the box [8.0, 0.0, 5.0, 5.0] (cat), which is inverted",
        ),
        (
            an_object("1 9 5 5"),
            "Annotations: image a has the box [0.0, 8.0, 5.0, 5.0] (cat), which is inverted",
        ),
        (an_object("nan 1 5 5"), "image a has the box [nan, 0.0, 5.0, 5.0] (cat), which is inverted"),
        (
            an_object(name="brid"),
            "a.xml has an object of unknown class 'brid' (did you mean bird?); known are",
        ),
        (an_object(name="CAT"), "unknown class 'CAT' (did you mean cat?)"),
        (an_object(name="dog s"), "unknown class 'dog s' (did you mean dog?)"),
        (an_object(name="xyzzy"), "unknown class 'xyzzy'; known are bird, cat, dog"),
    ],
)
def test_an_annotation_that_cannot_be_read(folder, content, told):
    path = one_image(folder, [])
    path.unlink() if content is None else path.write_bytes(content.encode("latin-1"))
    assert told in refused(folder, (DataError, FileNotFoundError))


def test_a_box_of_one_pixel(folder):
    one_image(folder, [("cat", (5, 5, 5, 5))])
    assert VOCDataset(folder.root, "train", CLASSES).annotation(0).boxes.tolist() == [[4, 4, 5, 5]]


def test_a_box_one_pixel_outside_is_clipped(folder):
    one_image(folder, [("cat", (0, 0, 61, 41))], height=40, width=60)
    assert VOCDataset(folder.root, "train", CLASSES).annotation(0).boxes.tolist() == [[0, 0, 60, 40]]


def test_boxes_further_outside_are_clipped_with_one_warning(folder):
    one_image(folder, [("cat", (5, 5, 9, 9)), ("cat", (-1, 1, 9, 9)), ("dog", (1, 1, 62, 42))])
    message = r"of 3 boxes 2 .* clipped, 0 .* .*image a has the box \[-2\.0, 0\.0, 9\.0, 9\.0\] \(cat\)"
    with pytest.warns(UserWarning, match=message + ", and is 60 wide and 40 high") as caught:
        dataset = VOCDataset(folder.root, "train", CLASSES)
    assert len(caught) == 1
    assert dataset.annotation(0).boxes.tolist() == [[4, 4, 9, 9], [0, 0, 9, 9], [0, 0, 60, 40]]


@pytest.mark.parametrize("box", [(5, 5, 4, 9), (61, 1, 80, 9), (-9, -9, 0, 0), (0, 0, 0, 0)])
def test_a_box_without_area_is_dropped_but_labels_its_image(folder, box):
    one_image(folder, [("cat", box), ("bird", (1, 1, 9, 9))])
    with pytest.warns(UserWarning, match="of 2 boxes 0 .* 1 have no area in it and were dropped"):
        dataset = VOCDataset(folder.root, "train", CLASSES)
    assert dataset.annotation(0).labels.tolist() == [0]
    assert dataset.labels(0).tolist() == [1, 1, 0]


def test_what_the_file_says_of_its_image_does_not_matter(folder):
    path = one_image(folder, [("cat", (1, 1, 60, 40))], suffix=".png")
    size = "<size><width>0</width><height>0</height><depth>0</depth></size>"
    path.write_text(path.read_text().replace("<object>", f"<filename>b.jpg</filename>{size}<object>"))
    dataset = VOCDataset(folder.root, "train", CLASSES)
    assert dataset.image_size(0) == (40, 60)
    assert dataset.annotation(0).boxes.tolist() == [[0, 0, 60, 40]]


@pytest.mark.parametrize("flag", ["<difficult/>", "<difficult> </difficult>", ""])
def test_an_empty_difficult_flag_is_none(folder, flag):
    path = one_image(folder, [("cat", (1, 1, 5, 5), True)])
    path.write_text(path.read_text().replace("<difficult>1</difficult>", flag))
    assert VOCDataset(folder.root, "train", CLASSES).annotation(0).difficult.tolist() == [False]


def test_an_image_changed_after_the_annotations_were_read(folder):
    one_image(folder, [("cat", (1, 1, 5, 5))])
    dataset = VOCDataset(folder.root, "train", CLASSES)
    folder.image("a", height=60, width=40)
    with pytest.raises(ValueError, match=r"a\.jpg has the .* \(60, 40\) as stored.*\(40, 60\)"):
        dataset.read_image(0)


def test_orientation_tags_are_ignored(folder):
    path = one_image(folder, [("cat", (1, 1, 60, 40))])
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (60, 40)).save(path.parents[1] / "JPEGImages" / "a.jpg", exif=exif)
    dataset = VOCDataset(folder.root, "train", CLASSES)
    assert dataset.image_size(0) == (40, 60)
    assert dataset.read_image(0).shape == (3, 40, 60)


def test_class_names_may_have_spaces_and_capitals(folder):
    one_image(folder, [("Potted plant", (1, 1, 5, 5))])
    dataset = VOCDataset(folder.root, "train", ("potted plant", "Potted plant"))
    assert dataset.labels(0).tolist() == [0, 1]


def test_of_many_classes_the_nearest_are_named():
    message = unknown_class("class 7x", [f"class {number}" for number in range(1000)])
    assert message.startswith("unknown class 'class 7x' (did you mean class 7")
    assert "known are 1000 classes, such as class 7" in message
    assert len(message) < 150


# ---- Writing


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "b/../../../a.jpg"])
def test_nothing_is_written_outside_of_the_folder(folder, name):
    with pytest.raises(DataError, match="nothing is written outside of"):
        write_annotation(folder.root, name, (40, 60), [], folder="VOC")
    with pytest.raises(DataError, match="nothing is written outside of"):
        write_split(folder.root, name, ["a"])
    assert not list(folder.root.parent.rglob("a.*"))


def test_an_annotation_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "Annotations" / "a.xml").mkdir(parents=True)
    with pytest.raises(OSError, match=r"cannot write .*a\.xml"):
        write_annotation(tmp_path, "a.jpg", (20, 30), [], folder="voc")


@pytest.mark.parametrize(
    "line", ["a.jpg", "JPEGImages/a.jpg", "./a", "/VOC/JPEGImages/a.jpg", "x\\a.jpg", '"a"', "a  -1"]
)
def test_a_list_may_name_images_as_init_reads_them(small_voc, line):
    (small_voc.root / "ImageSets/Main/other.txt").write_text(f"{line}\n")
    assert VOCDataset(small_voc.root, "other", CLASSES).image_ids == ("a",)


def test_an_id_that_begins_with_a_blank(folder):
    folder.image(" a")
    folder.xml(" a", [("cat", (1, 1, 5, 5))])
    folder.split("train", [" a\r"])
    assert VOCDataset(folder.root, "train", CLASSES).image_ids == (" a",)
