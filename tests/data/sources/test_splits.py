"""Names of splits, and the splits that data sets state in lists, files and folders."""

import json
import unicodedata

import pytest
from files import draw, write

from detector.data.formats import ReviewImage, encode_review
from detector.data.labeled_box import LabeledBox
from detector.data.sources.scene_split import split_pictures
from detector.data.sources.splits import by_stem, match_lines, split_and_rest, split_of
from detector.data.sources.tagged_pictures import find_tags
from detector.utils.errors import DataError


@pytest.mark.parametrize(
    ("names", "split"),
    [
        ("train Training TRAIN train2017 trainval trainval35k train_val seg_train TrainSet", "train"),
        ("Train_Data training_set train1 train-images ILSVRC2012_img_train tr", "train"),
        ("val Valid validation Test Testing test2017 test-dev2017 minival2014 seg_test PrivateTest", "val"),
        ("test1 dev eval Test_set val_256 tst vld hold-out holdout val_list walidacja Testowe", "val"),
        ("trn trn_images train_list treningowy träning", "train"),
        ("Trainingsdaten Trainingsbilder Trainingsdatensatz entrenamiento données_d'apprentissage", "train"),
        ("entrainement treino dados_de_treinamento addestramento 训练集 訓練データ 学習用", "train"),
        ("Testdaten Validierungsdaten prueba datos_de_prueba validación teste convalida", "val"),
        ("テストデータ 测试集 验证集 тестовая_выборка Testdatensatz", "val"),
        ("cat glioma contest latest restraint Testbild trained 1 default protest_march", None),
    ],
)  # fmt: skip
def test_names_of_splits(names, split):
    assert {name: split_of(name) for name in names.split()} == dict.fromkeys(names.split(), split)


def test_what_else_a_name_says():
    assert split_and_rest("person_keypoints_val2017") == ("val", "person keypoints")
    assert split_of("instances_train2017") is None


def splits(pictures, labels=None):
    """Names of the pictures to train and to test on."""
    train, val, _ = split_pictures(find_tags(pictures, labels)[0])
    return {each.name for each in train}, {each.name for each in val}


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("Training/{}", "Testing/{}"),
        ("training/{}", "validation/{}"),
        ("seg_train/seg_train/{}", "seg_test/seg_test/{}"),
        ("archive/Train/{}", "archive/Test/{}"),
        ("{}/train", "{}/test"),
    ],
)
def test_folders_of_splits_and_classes(tmp_path, train, test):
    expected = []
    for layout in (train, test):
        names = [f"{layout.format(label)}/{layout[0]}{i}.png" for label in ("cat", "dog") for i in range(3)]
        draw(tmp_path, *names)
        expected.append({*names})
    assert splits(tmp_path) == tuple(expected)
    assert {label for each in find_tags(tmp_path, None)[0] for label in each.labels} == {"cat", "dog"}


def test_pictures_of_a_split_without_classes_are_no_class(tmp_path):
    draw(tmp_path, "train/cat/a.png", "train/dog/b.png", "test/c.png", "test/d.png")
    with pytest.warns(UserWarning, match="left out") as caught:
        found, _ = find_tags(tmp_path, None)
    assert {each.labels for each in found} == {("cat",), ("dog",)}
    texts = [str(each.message) for each in caught]
    assert any(
        "2 pictures are left out because they are in no class folder of a split: test/c.png" in text
        for text in texts
    )
    assert any("test may be a test split, which is ignored" in text for text in texts)


def test_a_folder_that_may_be_a_split_or_a_class(tmp_path):
    draw(tmp_path, "bus/a.png", "car/b.png", "train/c.png")
    with pytest.warns(UserWarning, match="the folder train is taken for a class"):
        assert len(find_tags(tmp_path, None)[0]) == 3
    draw(tmp_path, "test/d.png")
    with pytest.raises(DataError, match="the folder test beside others may be a split or a class"):
        find_tags(tmp_path, None)


def voc(folder, names, lists):
    """A folder of VOC with lists of splits."""
    images = [ReviewImage(name, (20, 30), (LabeledBox("cat", (1, 1, 9, 9)),)) for name in names]
    draw(folder / "JPEGImages", *names)
    write(folder, dict(encode_review("voc", images, ["cat"])))
    write(folder, {f"ImageSets/{name}": "\n".join(lines) for name, lines in lists.items()})


@pytest.mark.parametrize(
    "lists",
    [
        {"Main/train.txt": ["a", "b"], "Main/test.txt": ["c", "d"]},
        {"Main/trainval.txt": ["a", "b", "c"], "Main/val.txt": ["c"], "Main/test.txt": ["d"]},
        {"Main/train.txt": ["a.jpg", "b.jpg"], "Main/val.txt": ["JPEGImages/c.jpg", "./JPEGImages/d.jpg"]},
        {"Main/train.txt": ["/VOC/JPEGImages/a.jpg", "x\\JPEGImages\\b.jpg"], "Main/val.txt": ["c.xml", "d"]},
        {"Train.txt": ['"a"', "b\r"], "Validation.txt": ["c", "d"]},
        {"train_list.txt": ["a.jpg a.xml", "x/b.jpg\tb.xml"], "val_list.txt": ["c.jpg c.xml", "d.jpg d.xml"]},
        {"Main/cat_train.txt": ["a  1", "b -1"], "Main/cat_val.txt": ["c  0", "d 1"]},
        {
            "Main/train.txt": ["a", "b"],
            "Main/val.txt": ["c", "d"],
            "Main/train_train.txt": ["a  1", "b -1"],
            "Main/train_val.txt": ["c  1", "d -1"],
        },
    ],
)  # fmt: skip
def test_lists_of_voc(tmp_path, lists):
    voc(tmp_path, ["a.jpg", "b.jpg", "c.jpg", "d.jpg"], lists)
    assert splits(tmp_path) == ({"a.jpg", "b.jpg"}, {"c.jpg", "d.jpg"})


def test_what_lists_do_not_say_is_told(tmp_path):
    voc(tmp_path, ["a.jpg", "b.jpg", "c.jpg"], {"Main/train.txt": ["a", "b"], "Main/test.txt": ["b", "gone"]})
    with pytest.warns(UserWarning, match="left out") as caught:
        assert splits(tmp_path) == ({"a.jpg"}, {"b.jpg"})
    texts = "\n".join(str(each.message) for each in caught)
    assert "1 picture is both to train and to test on, used for testing: b.jpg" in texts
    assert "1 line names no picture with labels: gone" in texts
    assert "1 picture is left out because they are in none of the existing splits: c.jpg" in texts


def test_pictures_to_train_on_alone_are_divided_with_a_warning(tmp_path):
    names = [f"{i}.jpg" for i in range(10)]
    voc(tmp_path, [*names, "other.jpg"], {"Main/train.txt": names})
    with pytest.warns(UserWarning, match="none to test on: the 10 existing ones are divided"):
        train, val = splits(tmp_path)
    assert train | val == {*names}


@pytest.mark.parametrize(
    ("content", "lists"),
    [
        ("path: .\ntrain: images/one\nval: images/two\n", {}),
        ("train: ../images/one\nvalid: ../images/two\n", {}),
        ("path: /content/set\ntrain: [images/one]\nvalidation: images/two/\n", {}),
        ("train: /home/other/set/images/one\ntest: /home/other/images/two\n", {}),
        (
            "train: train.txt\nval: sub/val.txt\n",
            {"train.txt": "./images/one/a.jpg\n", "sub/val.txt": "images/two/b.jpg\r\n"},
        ),
        ("train: ./train.txt\nval: val.txt\n", {"train.txt": "/x/images/one/a.jpg", "val.txt": "b.jpg"}),
    ],
)  # fmt: skip
def test_the_split_of_data_yaml(tmp_path, content, lists):
    draw(tmp_path / "images", "one/a.jpg", "two/b.jpg")
    write(tmp_path, {f"labels/{name}.txt": "0 .5 .5 .5 .5" for name in ("one/a", "two/b")})
    write(tmp_path, {"data.yaml": f"{content}names: [cat]\n", **lists})
    assert splits(tmp_path) == ({"one/a.jpg"}, {"two/b.jpg"})


def test_a_split_of_data_yaml_that_is_not_followed(tmp_path):
    names = [f"{i}.jpg" for i in range(10)]
    draw(tmp_path / "images", *names)
    write(tmp_path, {f"labels/{i}.txt": "0 .5 .5 .5 .5" for i in range(10)})
    write(tmp_path, {"data.yaml": "train: /x/train/images\nval: /x/val/images\nnames: [cat]\n"})
    with pytest.warns(UserWarning, match="ignored because none of its paths exist: train: /x/train/im"):
        find_tags(tmp_path, None)
    write(tmp_path, {"data.yaml": "train: images\nval: images\nnames: [cat]\n"})  # says nothing
    assert {each.split for each in find_tags(tmp_path, None)[0]} == {None}


def coco(names, label="cat"):
    images = [ReviewImage(name, (20, 30), (LabeledBox(label, (1, 1, 9, 9)),)) for name in names]
    return dict(encode_review("coco", images, ["cat"]))["coco.json"]


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("annotations/instances_train2017.json train2017/", "annotations/instances_val2017.json val2017/"),
        ("annotations/instances_Train.json images/Train/", "annotations/instances_Test.json images/Test/"),
        ("lvis_v1_train.json train/", "lvis_v1_val.json val/"),
        ("Train/_annotations.coco.json Train/", "Test/_annotations.coco.json Test/"),
        ("train/labels.json train/data/", "validation/labels.json validation/data/"),
    ],
)  # fmt: skip
def test_files_of_coco_for_each_split(tmp_path, train, val):
    for layout, name in ((train, "a.png"), (val, "b.png")):
        labels, folder = layout.split()
        draw(tmp_path, folder + name)
        write(tmp_path, {labels: coco([name])})
    write(
        tmp_path,
        {f"annotations/person_keypoints_{split}2017.json": "{}" for split in ("train", "val")}
        if "2017" in train
        else {},
    )
    assert splits(tmp_path) == ({train.split()[1] + "a.png"}, {val.split()[1] + "b.png"})


def test_the_column_of_splits_of_a_table(tmp_path):
    draw(tmp_path, "a.png", "b.png", "c.png")
    for content in (
        "file,labels,split\na.png,cat,train\nb.png,cat,Test\nc.png,,valid\n",
        "split,file,labels,unknown\nTraining,a.png,cat,\nPublicTest,b.png,cat,\nPrivateTest,c.png,,cat\n",
        "image;cat;dog;Usage\na.png;1;0;training\nb.png;1;0;validation\nc.png;0;0;TEST\n",
    ):
        write(tmp_path, {"labels.csv": content})
        assert splits(tmp_path) == ({"a.png"}, {"b.png", "c.png"}), content
    (tmp_path / "labels.csv").unlink()
    rows = [
        {"file": f"{name}.png", "labels": ["cat"], "split": split}
        for name, split in (("a", "train"), ("b", "test"))
    ]
    write(tmp_path, {"labels.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    assert splits(tmp_path) == ({"a.png"}, {"b.png"})
    write(tmp_path, {"labels.jsonl": json.dumps(rows[0] | {"split": "fold 3"})})
    with pytest.raises(DataError, match="line 1: the split is 'fold 3', expected train, val or test"):
        find_tags(tmp_path, None)


def test_the_subsets_of_cvat(tmp_path):
    draw(tmp_path, "a.png", "b.png")
    box = '<box label="cat" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    images = (
        f'<image name="{name}.png" subset="{subset}" width="30" height="20">{box}</image>'
        for name, subset in (("a", "Train"), ("b", "Test"))
    )
    write(tmp_path, {"annotations.xml": f"<annotations>{''.join(images)}</annotations>"})
    assert splits(tmp_path) == ({"a.png"}, {"b.png"})


def test_a_picture_in_both_tables_is_tested_on(tmp_path):
    draw(tmp_path, "a.png", "b.png")
    write(tmp_path, {"train.csv": "a.png,cat\nb.png,cat\n", "test.csv": "b.png,cat\n"})
    with pytest.warns(UserWarning, match=r"1 picture is both to train .* copy, and used for testing: b\.png"):
        assert splits(tmp_path) == ({"a.png"}, {"b.png"})


@pytest.mark.parametrize("form", ["table", "voc", "coco", "yolo", "list"])
@pytest.mark.parametrize("on_disk", ["NFC", "NFD"])
def test_names_in_another_unicode_form(tmp_path, form, on_disk):
    stems = ["bébé 1", "한글 2", "がぎ 3"]
    there = [unicodedata.normalize(on_disk, f"été/{stem}.png") for stem in stems]
    said = [unicodedata.normalize("NFD" if on_disk == "NFC" else "NFC", name) for name in there]
    images = [ReviewImage(name, (20, 30), (LabeledBox("cat", (1, 1, 9, 9)),)) for name in said]
    if form == "table":
        write(tmp_path, {"labels.csv": "".join(f"{name},cat\n" for name in said)})
    else:
        write(tmp_path, dict(encode_review("voc" if form == "list" else form, images, ["cat"])))
    if form == "list":
        write(
            tmp_path,
            {"ImageSets/Main/train.txt": there[0][:-4], "ImageSets/Main/val.txt": "\n".join(there[1:])},
        )
    draw(tmp_path / ("images" if form == "yolo" else ""), *there)
    found, _ = find_tags(tmp_path, None)
    assert {each.name for each in found} == {*there}
    if form == "list":
        assert [each.split for each in found].count("train") == 1


def test_a_split_in_another_unicode_form():
    assert split_of(unicodedata.normalize("NFD", "entraînement")) == "train"


def test_folders_that_look_like_splits_of_another_language_are_told(tmp_path):
    draw(
        tmp_path,
        *[f"{split}/{label}/{i}.png" for split in ("opleiding", "toets") for label in "ab" for i in "12"],
    )
    with pytest.warns(
        UserWarning, match=r"opleiding, toets are taken for classes, .* folders a, b: .* train, val"
    ):
        find_tags(tmp_path, None)


CUB = ["001.Albatross/a_1.jpg", "001.Albatross/b_2.jpg", "002.Auklet/c_3.jpg", "002.Auklet/d_4.jpg"]


@pytest.mark.parametrize("folder", ["", "images"])
@pytest.mark.parametrize(
    "files",
    [
        {
            "images.txt": "".join(f"{number} {name}\n" for number, name in enumerate(CUB, 1)),
            "train_test_split.txt": "1 1\n2 0\n3 1\n4 0\n",
        },
        {"meta/train.txt": f"{CUB[0]}\n{CUB[2][:-4]}", "meta/test.txt": f"{CUB[1]}\n{CUB[3]}"},
        {"splits.json": json.dumps({"train": [CUB[0], CUB[2]], "val": [CUB[1]], "test": [CUB[3]]})},
        {
            "split_zhou.json": json.dumps(
                {"train": [[CUB[0], 0, "a"], [CUB[2], 1, "b"]], "test": [[CUB[1], 0, "a"], [CUB[3], 1, "b"]]}
            )
        },
    ],
    ids=["CUB", "lists", "JSON", "JSON of triples"],
)
def test_lists_beside_folders_of_classes(tmp_path, folder, files):
    draw(tmp_path / folder, *CUB)
    write(tmp_path, files)
    assert splits(tmp_path / folder) == ({CUB[0], CUB[2]}, {CUB[1], CUB[3]})


def test_json_of_splits_beside_a_table(tmp_path):
    draw(tmp_path, "a.png", "b.png")
    write(tmp_path, {"labels.csv": "a.png,cat\nb.png,cat\n", "split.json": '{"test": ["b"], "train": ["a"]}'})
    assert splits(tmp_path) == ({"a.png"}, {"b.png"})


@pytest.mark.parametrize("header", ["is_train", "is_test", "is_valid", "Is Training", "is_training_img"])
@pytest.mark.parametrize(("yes", "no"), [("1", "0"), ("True", "False"), ("yes", "no")])
def test_a_column_that_says_yes_or_no(tmp_path, header, yes, no):
    draw(tmp_path, "a.png", "b.png")
    first, second = (yes, no) if "rain" in header else (no, yes)
    write(tmp_path, {"labels.csv": f"file,labels,{header}\na.png,cat,{first}\nb.png,cat,{second}\n"})
    assert splits(tmp_path) == ({"a.png"}, {"b.png"})
    write(tmp_path, {"labels.csv": f"file,labels,{header}\na.png,cat,perhaps\n"})
    with pytest.raises(DataError, match=r"'perhaps', expected 0 or 1"):
        find_tags(tmp_path, None)


@pytest.mark.parametrize("form", ["voc", "yolo", "coco"])
def test_the_folder_of_images_of_a_data_set(tmp_path, form):
    names = ["a.jpg", "b.jpg"]
    draw(tmp_path / ("JPEGImages" if form == "voc" else "images"), *names)
    images = [ReviewImage(name, (20, 30), (LabeledBox("cat", (1, 1, 9, 9)),)) for name in names]
    place = tmp_path / "annotations" if form == "coco" else tmp_path
    write(place, dict(encode_review(form, images, ["cat"])))
    found, _ = find_tags(tmp_path / ("JPEGImages" if form == "voc" else "images"), None)
    assert {each.labels for each in found} == {("cat",)}
    assert {each.file.name for each in found} == {*names}


def test_names_that_begin_or_end_with_blanks_in_lists():
    known = by_stem([" a.png", "b .png", "c.png", "d.png"])
    found = match_lines([" a\r", "b ", "c  ", " d", "  "], known)
    assert found == ({" a.png", "b .png", "c.png", "d.png"}, [])


@pytest.mark.parametrize(
    "folders",
    [
        "X_train/cat X_train/dog X_test/cat X_test/dog",
        "train_cat train_dog test_cat test_dog",
        "t.train t.val",
    ],
)
def test_folders_whose_names_say_more_than_the_split(tmp_path, folders):
    for number, folder in enumerate(folders.split()):
        draw(tmp_path, f"{folder}/{number}.png")
    with pytest.raises(DataError, match=r"look like splits, not like classes: .* train/cat and test/cat"):
        find_tags(tmp_path, None)


def test_splits_below_classes_are_not_told_as_alike(tmp_path, recwarn):
    for number, folder in enumerate(("cat/train", "cat/test", "dog/train", "dog/test")):
        draw(tmp_path, f"{folder}/{number}.png")
    assert sorted(each.split for each in find_tags(tmp_path, None)[0]) == ["train", "train", "val", "val"]
    assert not recwarn.list
