"""People-Art in the layout of VOC, of made-up files: the repository holds no picture of it."""

import re

import numpy as np
import pytest
from make_peopleart import arrange
from PIL import Image

from detector.data.datasets.voc import VOCDataset
from detector.data.datasets.voc_writer import encode_annotation
from detector.data.labeled_box import LabeledBox
from detector.utils.errors import DataError

LISTS = {
    "train": "Cubism/a b.jpg 1\nphoto/004194.jpg  -1\n",
    "val": "Cubism/st.-john.jpg 1\n",
    "test": "photo/9.jpg 1\n",
}
LISTS["trainval"] = LISTS["train"] + LISTS["val"]


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "PeopleArt"
    for line in (LISTS["trainval"] + LISTS["test"]).splitlines():
        name, flag = line.rsplit(maxsplit=1)
        for path in (folder / "JPEGImages" / name, folder / "Annotations" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((20, 30, 3), len(name), np.uint8)).save(folder / "JPEGImages" / name)
        if flag == "1":
            objects = [
                LabeledBox("person", (0, 2, 10, 12)),
                LabeledBox("person", (3, 3, 9, 9), difficult=True),
            ]
            text = encode_annotation(name, (20, 30), objects, folder="Cubism")
            (folder / "Annotations" / f"{name}.xml").write_bytes(text)
    for split, text in LISTS.items():
        (folder / f"Annotations/person_{split}.txt").write_text(text)
    return folder


def test_the_official_lists_become_splits(source, tmp_path):
    sizes = arrange(source, tmp_path / "made")
    assert sizes == {"train": 2, "val": 1, "trainval": 3, "test": 1}
    train = VOCDataset(tmp_path / "made", "train", ["person"])
    assert list(train.image_ids) == ["a b", "004194"]
    assert [train.annotation(i).labels.tolist() for i in range(2)] == [[0, 0], []]
    assert train.annotation(0).boxes.tolist() == [[0, 2, 10, 12], [3, 3, 9, 9]]
    assert train.annotation(0).difficult.tolist() == [False, True]
    copy = tmp_path / "made/JPEGImages/st.-john.jpg"
    assert copy.read_bytes() == (source / "JPEGImages/Cubism/st.-john.jpg").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("photo/9.jpg\n", "line 1: found 'photo/9.jpg'"),
        ("photo/9.jpg 2\n", "expected STYLE/NAME.jpg and 1 or -1"),
        ("photo/9.jpg 1\nphoto/9.jpg 1\n", "line 2: photo/9.jpg is listed twice"),
        ("Cubism/9.jpg 1\nphoto/9.jpg 1\n", "photo/9.jpg and Cubism/9.jpg have the same name"),
        ("../../9.jpg 1\n", "9.jpg"),
    ],
)
def test_an_invalid_list_is_an_error_and_makes_no_folder(source, tmp_path, text, message):
    (source / "Annotations/person_test.txt").write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        arrange(source, tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "missing", ["JPEGImages/photo/004194.jpg", "Annotations/Cubism/a b.jpg.xml", "Annotations/person_val.txt"]
)
def test_what_is_missing_is_named(source, tmp_path, missing):
    (source / missing).unlink()
    with pytest.raises(FileNotFoundError, match=re.escape(missing.rpartition("/")[2])):
        arrange(source, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_an_unlisted_training_picture_is_an_error(source, tmp_path):
    (source / "Annotations/person_trainval.txt").write_text(LISTS["train"])
    with pytest.raises(DataError, match=r"st\.-john\.jpg is in train or val"):
        arrange(source, tmp_path / "made")
