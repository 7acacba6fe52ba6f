import os
import pickle
import warnings

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


def test_a_missing_split_lists_those_there_are(small_voc):
    small_voc.split("test", ["a"])
    message = refused(small_voc, FileNotFoundError, "val")
    assert "val.txt does not exist" in message
    assert "test, trainval" in message


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_split(folder, content):
    folder.split("train", []).write_text(content)
    assert "train.txt is empty" in refused(folder)


def test_a_split_that_repeats_an_image(small_voc):
    small_voc.split("train", ["a", "b", "a"])
    assert "train.txt lists image a 2 times" in refused(small_voc)


@pytest.mark.parametrize("image_id", ["../JPEGImages/a", "/b", "b/../../a", "..\\a"])
def test_ids_stay_inside_the_folder(folder, image_id):
    one_image(folder, [])
    folder.split("train", ["a", image_id])
    message = refused(folder, DataError)
    assert "train.txt: " in message
    assert f"{image_id!r} is not a name inside its folder" in message


def test_a_split_of_another_encoding(folder):
    folder.split("train", []).write_bytes("a\nü\n".encode("latin-1"))
    assert "train.txt is not UTF-8 text (line 2" in refused(folder, DataError)


def test_annotations_to_take_the_classes_from(folder):
    path = one_image(folder, [])
    with pytest.raises(DataError, match=r"split train of .*VOC has an object"):
        VOCDataset(folder.root, "train")
    for name, told in ((" ", "has no class name"), ("cat\ndog", "not allowed in a name")):
        folder.xml("a", [(name, (1, 1, 5, 5))])
        with pytest.raises(DataError, match=rf"{path}.* {told}"):
            VOCDataset(folder.root, "train")


@pytest.mark.parametrize("content", [b"<?xml version='1.0' encoding='no-such'?><annotation/>", b"\xff\xfe"])
def test_annotations_of_unknown_encodings_are_named(folder, content):
    one_image(folder, []).write_bytes(content)
    assert "a.xml" in refused(folder, DataError)


def test_an_annotation_that_is_a_pipe(folder):
    path = one_image(folder, [])
    path.unlink()
    os.mkfifo(path)  # opening it would block forever
    assert "a.xml is not a regular file" in refused(folder, DataError)


def test_a_missing_image(folder):
    one_image(folder, [])
    (folder.root / "JPEGImages" / "a.jpg").unlink()
    message = refused(folder, FileNotFoundError)
    assert str(folder.root / "JPEGImages" / "a") in message
    assert "train.txt" in message  # which may be what is wrong
    assert ".png" in message


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


def test_a_missing_annotation(folder):
    one_image(folder, []).unlink()
    assert "a.xml does not exist" in refused(folder, FileNotFoundError)


def test_broken_xml(folder):
    one_image(folder, []).write_text("<annotation><object>")
    assert "a.xml is damaged or of another format: no element found" in refused(folder)


def test_xml_of_something_else(folder):
    one_image(folder, []).write_text("<html></html>")
    assert "a.xml: it has the root <html>, expected <annotation>" in refused(folder)


def test_an_object_without_a_box(folder):
    one_image(folder, []).write_text("<annotation><object><name>cat</name></object></annotation>")
    assert "a.xml: an object (cat) has no bndbox" in refused(folder)


def test_a_box_without_a_side(folder):
    path = one_image(folder, [("cat", (1, 1, 5, 5))])
    path.write_text(path.read_text().replace("<ymax>5</ymax>", ""))
    assert "a.xml: <ymax> of <bndbox> is None, expected a number" in refused(folder)


def test_a_side_that_is_no_number(folder):
    one_image(folder, [("cat", ("one", 1, 5, 5))])
    assert "a.xml: <xmin> of <bndbox> is 'one', expected a number" in refused(folder)


def test_a_difficult_flag_that_is_no_number(folder):
    path = one_image(folder, [("cat", (1, 1, 5, 5), True)])
    path.write_text(path.read_text().replace("<difficult>1<", "<difficult>maybe<"))
    assert "a.xml: <difficult> of <object> is 'maybe', expected 0, 1 or one of" in refused(folder)


@pytest.mark.parametrize("box", [(9, 1, 5, 5), (1, 9, 5, 5), ("nan", 1, 5, 5)])
def test_a_box_turned_inside_out(folder, box):
    one_image(folder, [("cat", box)])
    message = refused(folder)
    assert (
        f"Annotations: image a has the box [{float(box[0]) - 1}, {box[1] - 1}.0, 5.0, 5.0] (cat)" in message
    )
    assert "not finite" in message


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


@pytest.mark.parametrize(("given", "nearest"), [("CAT", "cat"), ("Bird", "bird"), ("dog s", "dog")])
def test_class_names_match_exactly_and_the_nearest_is_named(folder, given, nearest):
    one_image(folder, [(given, (1, 1, 5, 5))])
    assert f"unknown class {given!r} (did you mean {nearest}?)" in refused(folder)


def test_an_unknown_class_names_the_known_and_the_nearest(folder):
    one_image(folder, [("brid", (1, 1, 5, 5))])
    message = refused(folder)
    assert (
        "a.xml has an object of unknown class 'brid' (did you mean bird?); known are bird, cat, dog"
        in message
    )


def test_an_unknown_class_like_no_other(folder):
    one_image(folder, [("xyzzy", (1, 1, 5, 5))])
    assert "unknown class 'xyzzy'; known are" in refused(folder)


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
