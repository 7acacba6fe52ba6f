"""Tags from what people have."""

import json
from pathlib import Path

import pytest
from files import draw
from PIL import Image

from detector.data.datasets.image_table import picture_name, read_table
from detector.data.formats import ReviewImage, encode_review
from detector.data.labeled_box import LabeledBox
from detector.data.picture_index import index_folder
from detector.data.sources.tagged_pictures import find_tags
from detector.utils.errors import DataError


def tags_of(pictures, labels=None):
    found, _ = find_tags(pictures, labels)
    return {each.file.relative_to(pictures).as_posix(): each.labels for each in found}


def refused(pictures, labels=None):
    with pytest.raises(DataError) as caught:
        find_tags(pictures, labels)
    return str(caught.value).replace(f"{pictures}/", "")


def test_a_folder_is_a_class(tmp_path):
    draw(tmp_path, "cat/a.jpg", "cat/more/b.jpg", "dog/a.jpg")
    assert tags_of(tmp_path) == {"cat/a.jpg": ("cat",), "cat/more/b.jpg": ("cat",), "dog/a.jpg": ("dog",)}
    (tmp_path / "loose").mkdir()
    draw(tmp_path, "c.jpg")
    with pytest.raises(DataError, match=r"c\.jpg is in no folder that names its class"):
        find_tags(tmp_path, None)


def test_copies_in_the_folders_of_several_classes_are_one_picture(tmp_path):
    draw(tmp_path, "cat/a.jpg", "cat/b.jpg", "dog/b.jpg")
    (tmp_path / "dog/renamed.jpg").write_bytes((tmp_path / "cat/a.jpg").read_bytes())
    with pytest.warns(UserWarning, match=r"1 picture is in .* shows them all: cat/a\.jpg = dog/renamed\.jpg"):
        tags = tags_of(tmp_path)
    assert tags == {"cat/a.jpg": ("cat", "dog"), "cat/b.jpg": ("cat",), "dog/b.jpg": ("dog",)}


def test_a_copy_of_a_picture_to_test_on_is_not_trained_on(tmp_path):
    draw(
        tmp_path,
        *("train/cat/a.jpg", "train/cat/b.jpg", "train/dog/c.jpg", "train/cat/e.jpg", "val/cat/d.jpg"),
    )
    (tmp_path / "val/dog").mkdir()
    for name, copy in (("train/cat/a.jpg", "val/dog/a.jpg"), ("train/cat/e.jpg", "val/cat/f.jpg")):
        (tmp_path / copy).write_bytes((tmp_path / name).read_bytes())
    with pytest.warns(UserWarning, match="a copy|shows them") as told:
        found, _ = find_tags(tmp_path, None)
    assert "shows them all: train/cat/a.jpg = val/dog/a.jpg" in str(told[0].message)
    assert "directly or as a copy, and used for testing: train/cat/e.jpg" in str(told[1].message)
    assert {each.name: (each.split, each.labels) for each in found} == {
        "train/cat/a.jpg": ("val", ("cat", "dog")),
        "train/cat/b.jpg": ("train", ("cat",)),
        "train/dog/c.jpg": ("train", ("dog",)),
        "val/cat/d.jpg": ("val", ("cat",)),
        "val/cat/f.jpg": ("val", ("cat",)),
    }


def test_a_run_folder_beside_the_classes_is_none(tmp_path, monkeypatch):
    draw(tmp_path, "cat/a.jpg", "dog/b.jpg", "runs/mine/pictures/a.png")
    monkeypatch.chdir(tmp_path)
    found, _ = find_tags(Path(), None)
    assert [each.labels for each in found] == [("cat",), ("dog",)]
    Path("runs/mine/links").mkdir()
    Path("runs/mine/links/a.jpg").symlink_to(tmp_path / "cat/a.jpg")
    Path("tags.csv").write_text("name;labels\na.jpg;cat\nb.jpg;dog\n")
    found, _ = find_tags(Path(), Path("tags.csv"))
    assert [each.name for each in found] == ["cat/a.jpg", "dog/b.jpg"]
    assert index_folder(Path()).rename(["a.jpg"]) == ["cat/a.jpg"]


def test_one_folder_is_no_class(tmp_path):
    draw(tmp_path, "pictures/a.jpg", "pictures/b.jpg")
    text = refused(tmp_path)
    assert "one folder, 'pictures'; a class is not learned without" in text
    assert "show it: pass --labels FILE" in text
    (tmp_path / "tags.dat").write_text("pictures/a.jpg,cat\n")
    assert "is tags.dat the table? Then rename it to .csv; pass --labels" in refused(tmp_path)
    assert "tags.dat has none of the known suffixes" in refused(tmp_path, tmp_path / "tags.dat")
    (tmp_path / "tags.dat").unlink()
    (tmp_path / "readme.txt").write_text("Pictures of cats, by me.\nSee a.jpg, too.\n")
    assert "is readme.txt the table?" in refused(tmp_path)
    (tmp_path / "tags.txt").write_text("pictures/a.jpg cat\npictures/b.jpg dog\n")
    assert tags_of(tmp_path) == {"pictures/a.jpg": ("cat",), "pictures/b.jpg": ("dog",)}
    (tmp_path / "tags.txt").unlink()
    draw(tmp_path, "none/c.jpg")
    assert set(tags_of(tmp_path).values()) == {("pictures",), ()}


def test_folders_of_splits_hold_folders_of_classes(tmp_path):
    draw(tmp_path, "train/cat/a.jpg", "train/dog/b.jpg", "val/cat/c.jpg")
    found, _ = find_tags(tmp_path, None)
    assert [(each.labels, each.split) for each in found] == [
        (("cat",), "train"),
        (("dog",), "train"),
        (("cat",), "val"),
    ]


def test_folders_of_splits_are_no_classes(tmp_path):
    draw(tmp_path, "train/a.jpg", "valid/b.jpg")
    assert "the folders train, valid, which are splits and no classes: pass --labels" in refused(tmp_path)


@pytest.mark.parametrize("form", ["voc", "coco", "classes"])
def test_folders_of_splits_hold_their_labels(form, tmp_path):
    for split, label in (("train", "cat"), ("test", "cat"), ("valid", "dog")):
        draw(tmp_path / split, "a.jpg", "b.jpg")
        images = [ReviewImage(f"{name}.jpg", (20, 30), (LabeledBox(label, (1, 1, 9, 9)),)) for name in "ab"]
        if form == "classes":
            table = "filename, cat, dog\n" + "".join(f"{name}.jpg, {label == 'cat':d}, 1\n" for name in "ab")
            (tmp_path / split / "_classes.csv").write_text(table)
        else:
            for name, content in encode_review(form, images, ["cat", "dog"]):
                (tmp_path / split / Path(name).name).write_bytes(content)
    found, _ = find_tags(tmp_path, None)
    expected = {("train", "train"), ("test", "val"), ("valid", "val")}
    assert {(each.name.split("/")[0], each.split) for each in found} == expected
    assert [each.name for each in found][:2] == ["train/a.jpg", "train/b.jpg"]
    assert len(found) == 6


def test_a_table_may_name_pictures_in_folders_of_splits(tmp_path):
    draw(tmp_path, "train/a.jpg", "val/b.jpg", "c.jpg")
    table = tmp_path / "labels.csv"
    table.write_text("train/a.jpg,cat\nval/b.jpg,cat\n")
    assert [each.split for each in find_tags(tmp_path, None)[0]] == ["train", "val"]
    table.write_text("train/a.jpg,cat\nval/b.jpg,cat\nc.jpg,cat\n")
    assert [each.split for each in find_tags(tmp_path, None)[0]] == ["train", "val", None]


def test_the_splits_of_a_voc_folder(tmp_path):
    names = ("a b.jpg", "sub/c.jpg", "a.jpg", "1 1.jpg")
    draw(tmp_path / "JPEGImages", *names)
    images = [ReviewImage(name, (20, 30), (LabeledBox("cat", (1, 1, 9, 9)),)) for name in names]
    for name, content in encode_review("voc", images, ["cat"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    (tmp_path / "ImageSets/Main/train.txt").write_text("a b\r\nsub/c\r\n")
    (tmp_path / "ImageSets/Main/test.txt").write_text("1 1\n")
    splits = {each.name: each.split for each in find_tags(tmp_path, None)[0]}
    assert splits == {"a b.jpg": "train", "sub/c.jpg": "train", "1 1.jpg": "val", "a.jpg": None}


def test_annotations_beside_the_pictures(tmp_path):
    draw(tmp_path, *(f"{number}.jpg" for number in range(12)))
    for number in range(12):
        (tmp_path / f"{number}.json").write_text("{}")
    text = refused(tmp_path)
    assert "11.json, 2.json" in text
    assert "... and 2 more; --labels names one" in text
    for number in range(12):
        (tmp_path / f"{number}.json").unlink()
        image = ReviewImage(f"{number}.jpg", (20, 30), (LabeledBox("cat", (1, 1, 9, 9)),))
        ((_, content),) = encode_review("voc", [image], ["cat"])
        (tmp_path / f"{number}.xml").write_bytes(content)
    assert len(tags_of(tmp_path)) == 12


def test_annotations_without_boxes_tell_of_tables(tmp_path):
    draw(tmp_path, "a.jpg")
    head = "<annotations><image name='a.jpg' width='30' height='20'>"
    (tmp_path / "annotations.xml").write_text(f"{head}</image></annotations>")
    assert "no box in its 1 images; classes without boxes are read from a table" in refused(tmp_path)


def test_a_table_is_found_and_keeps_unknown_classes(tmp_path):
    draw(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "labels.csv").write_text("file,labels,unknown\na.jpg,cat;dog,\nb.jpg,,cat\n")
    found, source = find_tags(tmp_path, None)
    assert source == str(tmp_path / "labels.csv")
    assert [(each.labels, each.unknown) for each in found] == [(("cat", "dog"), ()), ((), ("cat",))]
    assert json.loads(found[1].row()) == {"file": f"{tmp_path}/./b.jpg", "labels": [], "unknown": ["cat"]}
    (tmp_path / "._labels.csv").write_text("of macOS")
    assert find_tags(tmp_path, None) == (found, source)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(DataError, match=r"labels\.csv, other\.json; --labels names one"):
        find_tags(tmp_path, None)


def test_pictures_keep_the_names_that_the_table_gives_them(tmp_path):
    pictures, elsewhere = tmp_path / "pictures", tmp_path / "elsewhere"
    draw(tmp_path, "pictures/below/a.jpg", "pictures/b.jpg", "elsewhere/c.jpg", "elsewhere/below/d.jpg")
    table = tmp_path / "labels.csv"
    files = ["below/a.jpg", "pictures/b.jpg", f"{elsewhere}/c.jpg", f"{elsewhere}/./below/d.jpg"]
    table.write_text("".join(f"{file},cat\n" for file in files))
    found, _ = find_tags(pictures, table)
    lines = tmp_path / "train.jsonl"
    lines.write_text("".join(f"{each.row()}\n" for each in found))
    for name in (table, lines):  # also when the table that was written is read again
        rows = read_table(name)[0]
        ids = ["below/a.jpg", "pictures/b.jpg", f"{elsewhere}/c.jpg"[1:], "below/d.jpg"]
        assert [picture_name(row.file) for row in rows] == ids
        assert [each.row() for each in find_tags(pictures, name)[0]] == [each.row() for each in found]
    assert all(Path(row.file).is_file() for row in rows)


def test_a_table_for_each_split_is_taken_as_it_is(tmp_path):
    draw(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "train.csv").write_text("file,labels\na.jpg,cat\n")
    (tmp_path / "val.csv").write_text("file,labels\nb.jpg,cat\n")
    found, source = find_tags(tmp_path, None)
    assert source == f"{tmp_path / 'train.csv'} and {tmp_path / 'val.csv'}"
    assert [(each.file.name, each.split) for each in found] == [("a.jpg", "train"), ("b.jpg", "val")]


@pytest.mark.parametrize("form", ["coco", "voc", "yolo", "label-studio", "cvat"])
def test_annotations_give_their_classes(form, tmp_path):
    pictures = tmp_path / ("images" if form == "yolo" else "")
    draw(pictures, "a.jpg", "b.jpg")
    boxes = tuple(LabeledBox(name, (1.0, 1.0, 9.0, 9.0)) for name in ("dog", "cat", "dog"))
    images = [ReviewImage("a.jpg", (20, 30), boxes), ReviewImage("b.jpg", (20, 30), boxes[:1])]
    for name, content in encode_review(form, images, ["cat", "dog"]):
        if name != "label_config.xml":
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes(content)
    found = {Path(name).name: labels for name, labels in tags_of(tmp_path).items()}
    assert found == {"a.jpg": ("cat", "dog"), "b.jpg": ("dog",)}


def test_difficult_objects_give_their_class_and_stay_difficult(tmp_path):
    draw(tmp_path, "a.jpg")
    box = LabeledBox("dog", (1.0, 1.0, 9.0, 9.0), difficult=True)
    ((_, content),) = encode_review("coco", [ReviewImage("a.jpg", (20, 30), (box,))], ["dog"])
    (tmp_path / "a.json").write_bytes(content)
    with pytest.warns(UserWarning, match=r"a\.json: all objects of dog are difficult objects or iscrowd"):
        ((tagged,), _) = find_tags(tmp_path, tmp_path / "a.json")
    assert (tagged.labels, tagged.boxes) == (("dog",), (box._replace(reviewed=True),))


@pytest.mark.parametrize("splits", [False, True])
def test_pictures_that_no_line_lists_are_counted(splits, tmp_path, monkeypatch, recwarn):
    draw(tmp_path, *(f"{name}.jpg" for name in "abcdef"), "runs/mine/pictures/a.png", "g.jpg")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ("train.csv" if splits else "labels.csv")).write_text("a.jpg,cat\n")
    if splits:
        (tmp_path / "val.csv").write_text("b.jpg,cat\n")
    (tmp_path / "IMG_1.HEIC").touch()
    find_tags(tmp_path, None)
    unread, warning = [str(each.message) for each in recwarn]
    assert unread.startswith(f"{tmp_path}: files in formats that are not read: 1 .heic; convert pictures to ")
    count, names = (5, "c.jpg, d.jpg, e.jpg, ... and 2") if splits else (6, "b.jpg, c.jpg, d.jpg, ... and 3")
    assert warning.startswith(f"{tmp_path}: {count} pictures are left out because the labels, ")
    assert f": {names}" in warning
    assert warning.endswith("list pictures without any class as well")


@pytest.mark.parametrize("layout", ["images", "images/train", "train/images"])
def test_a_picture_of_yolo_without_a_file_shows_no_class(layout, tmp_path):
    draw(tmp_path / layout, "a.jpg", "b.jpg")
    draw(tmp_path / layout.replace("train", "test"), *(["c.jpg"] if "train" in layout else []))
    labels = tmp_path / layout.replace("images", "labels")
    labels.mkdir(parents=True)
    (labels / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "data.yaml").write_text("names: [cat]\n")
    with pytest.warns(UserWarning, match="in labels, which in YOLO says that no class is shown") as caught:
        found, _ = find_tags(tmp_path, None)
    assert {each.file.name: (each.labels, each.boxes and len(each.boxes)) for each in found} == {
        "a.jpg": (("cat",), 1),
        "b.jpg": ((), ()),
    }
    left_out = [text for each in caught if "left out because" in (text := str(each.message))]
    assert len(left_out) == ("train" in layout)  # the folder test, of which nobody has labels
    # The labels of others, such as an export of a few pictures, say nothing of these.
    if layout == "images":
        pictures = (tmp_path / "images").rename(tmp_path.parent / "elsewhere")
        with pytest.warns(UserWarning, match="elsewhere: 1 picture is left out"):
            assert len(find_tags(pictures, tmp_path)[0]) == 1


def test_pictures_that_are_missing_are_one_error(tmp_path):
    draw(tmp_path, "a.JPG", "below/b.jpg", "c.png")
    names = ["a.jpg", "below\\b.jpg", "c", *(f"no{i}.jpg" for i in range(9))]
    (tmp_path / "labels.csv").write_text("file,labels\n" + "".join(f"{name},cat\n" for name in names))
    first, missing, hint, switch = refused(tmp_path).split("\n")
    assert first == "labels.csv cannot be used as it is:"
    assert missing.startswith("  9 lines: no such picture is below ")
    assert missing.endswith(": 'no0.jpg' (line 5), 'no1.jpg' (line 6), 'no2.jpg' (line 7), ... and 6 more")
    assert hint.endswith("the first of the pictures are a.JPG, below/b.jpg, c.png")
    assert switch.endswith("add --skip-missing to the command")
    with pytest.warns(
        UserWarning, match=r"9 lines are left out because there is no such picture: no0\.jpg, "
    ):
        found, _ = find_tags(tmp_path, None, skip_missing=True)
    assert [each.name for each in found] == ["a.JPG", "below/b.jpg", "c.png"]


@pytest.mark.parametrize(
    "file",
    [
        *(
            "a b.jpg",
            "other/a b.jpg",
            "/home/other/A B.jpg",
            "Photos/A B.JPG",
            "photos/a%20b.jpg",
            "a%20b.png",
        ),
        *("http://example.org/a%20b.jpg?x=1", "gs://bucket/in/a b.jpg", "C:\\pictures\\a b.jpg", "a b"),
        *("/data/upload/3/0a1b2c3d-a b.jpg", "/data/local-files/?d=in/a%20b.jpg", "file:///mnt/a%20b.jpg"),
    ],
)
def test_a_picture_that_is_in_another_folder_is_found(tmp_path, file):
    draw(tmp_path / "in", "photos/a b.jpg", "one/c.jpg", "two/c.jpg")
    labels = tmp_path / "labels.csv"
    labels.write_text(f"{file},cat\n")
    assert tags_of(tmp_path / "in", labels) == {"photos/a b.jpg": ("cat",)}
    labels.write_text(f"{file},cat\nc.jpg,cat\n")
    assert "have the name: 'c.jpg': one/c.jpg, two/c.jpg (line 2)" in refused(tmp_path / "in", labels)
    labels.write_text(f"{file},cat\nx/two/c.jpg,dog\n")
    assert tags_of(tmp_path / "in", labels)["two/c.jpg"] == ("dog",)


def test_two_paths_that_may_mean_one_picture_are_not_joined(tmp_path):
    draw(tmp_path, "val/1.jpg")
    (tmp_path / "labels.csv").write_text("file,labels\ntrain/1.jpg,cat\ntest/1.jpg,dog\n")
    text = refused(tmp_path)
    assert "another line names the same picture by another path: 'test/1.jpg' and 'train/1.jpg': val" in text


def test_a_picture_is_looked_for_beside_the_labels_too(tmp_path):
    draw(tmp_path, "pictures/a.JPG")
    (tmp_path / "labels.csv").write_text("pictures/a.jpg,cat\n")
    assert tags_of(tmp_path / "pictures", tmp_path / "labels.csv") == {"a.JPG": ("cat",)}


@pytest.mark.parametrize("second", ["a.jpg", "./a.jpg", "pictures/a.jpg", "link.jpg"])
def test_a_picture_of_several_lines_has_the_labels_of_all(tmp_path, second):
    draw(tmp_path, "pictures/a.jpg")
    (tmp_path / "pictures/link.jpg").symlink_to("a.jpg")
    (tmp_path / "labels.csv").write_text(f"file,labels\na.jpg,cat\n{second},dog\n")
    assert tags_of(tmp_path / "pictures", tmp_path / "labels.csv") == {"a.jpg": ("cat", "dog")}
    (tmp_path / "labels.jsonl").write_text(
        "".join(f'{{"file": "{name}", "labels": ["cat"]}}\n' for name in ("a.jpg", second))
    )
    text = refused(tmp_path / "pictures", tmp_path / "labels.jsonl")  # which is no spreadsheet
    assert f"labels.jsonl, line 2: {second.removeprefix('./')} is listed already on line 1, as a.jpg" in text


def test_files_that_are_no_pictures_are_named_with_their_lines(tmp_path):
    draw(tmp_path, "a.jpg")
    (tmp_path / "text.jpg").write_text("a.jpg")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "labels.csv").write_text("a.jpg,cat\ntext.jpg,cat\nempty.jpg,\n")
    first, second = refused(tmp_path).split("\n")
    assert first.startswith("labels.csv, line 2: image text.jpg cannot be read: it is in none of the formats")
    assert second.startswith("labels.csv, line 3: image empty.jpg cannot be read")
    (tmp_path / "labels.csv").unlink()
    draw(tmp_path, "cat/a.jpg", "dog/a.jpg")
    (tmp_path / "text.jpg").rename(tmp_path / "cat/text.jpg")
    for name in ("a.jpg", "empty.jpg"):
        (tmp_path / name).unlink()
    assert refused(tmp_path).startswith(f"{tmp_path}: image cat/text.jpg cannot be read")


def test_labels_that_differ_in_capitals_are_one(tmp_path):
    draw(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    (tmp_path / "labels.csv").write_text("a.jpg,cat\nb.jpg,dog;cat\nc.jpg,Cat;dogs\n")
    with pytest.warns(UserWarning, match=r"'Cat' \(1\) is taken for 'cat' \(2\)") as told:
        assert tags_of(tmp_path)["c.jpg"] == ("cat", "dogs")
    assert "'dog' (1) and 'dogs' (1)" not in str(told[0].message)  # too short to tell
    (tmp_path / "labels.csv").write_text("a.jpg,scratch\nb.jpg,scratches\nc.jpg,rust\n")
    with pytest.warns(UserWarning, match=r"'scratch' \(1\) and 'scratches' \(1\) stay two classes: are"):
        assert len(tags_of(tmp_path)) == 3
    (tmp_path / "labels.csv").unlink()
    (tmp_path / "train.csv").write_text("a.jpg,cat\nb.jpg,dog\n")
    (tmp_path / "val.csv").write_text("c.jpg,Cat\n")
    assert tags_of(tmp_path)["c.jpg"] == ("cat",)
    (tmp_path / "val.csv").write_text("c.jpg,cap\n")
    assert "val.csv, line 1: unknown class 'cap' (did you mean cat?)" in refused(tmp_path)


@pytest.mark.parametrize("header", ["filename,tags", "labels,file"])
def test_a_header_tells_the_columns(tmp_path, header):
    draw(tmp_path, "a.jpg")
    row = "cat,a.jpg" if header == "labels,file" else "a.jpg,cat"
    (tmp_path / "labels.csv").write_text(f"{header}\n{row}\n")
    assert tags_of(tmp_path) == {"a.jpg": ("cat",)}


def test_difficult_objects_of_voc_are_not_told_about_cvat(tmp_path):
    Image.new("RGB", (30, 20)).save(tmp_path / "a.png")
    corners = "<xmin>2</xmin><ymin>3</ymin><xmax>9</xmax><ymax>9</ymax>"
    (tmp_path / "a.xml").write_text(
        "<annotation><filename>a.png</filename><size><width>30</width><height>20</height></size><object>"
        f"<name>cat</name><difficult>1</difficult><bndbox>{corners}</bndbox></object></annotation>"
    )
    with pytest.warns(UserWarning, match="all objects of cat are difficult: .* set difficult to 0") as told:
        find_tags(tmp_path, tmp_path)
    assert not any("CVAT" in str(each.message) for each in told)
