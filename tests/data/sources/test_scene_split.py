"""The split by scene."""

import unicodedata
from pathlib import Path

import pytest

from detector.data.sources.scene_split import split_pictures
from detector.data.sources.tagged import Tagged


def tagged(*names_and_labels, root=Path("/data")):
    return [Tagged(root / name, tuple(labels.split()), root=root) for name, labels in names_and_labels]


def test_splits_that_are_there_stay():
    found = [
        Tagged(Path(f"/{i}.jpg"), ("cat",), split=split) for i, split in enumerate(["train", "val", "train"])
    ]
    assert split_pictures(found) == ([found[0], found[2]], [found[1]], "the splits that are there")


def test_pictures_in_none_of_the_splits_are_counted():
    splits = ["train", None, "val", None]
    found = [Tagged(Path(f"/{i}.jpg"), ("cat",), split=split) for i, split in enumerate(splits)]
    with pytest.warns(
        UserWarning, match=r"2 pictures are left out because they are in none of .*: 1\.jpg, 3\.jpg$"
    ):
        assert split_pictures(found)[:2] == ([found[0]], [found[2]])


def test_shots_of_one_scene_stay_together():
    shots = [
        (f"scene{chr(97 + s)}_{i:03}.jpg", "cat" if s % 2 else "dog") for s in range(20) for i in range(5)
    ]
    train, val, by = split_pictures(tagged(*shots))
    assert by.startswith("scene: 20 scenes in the file names, such as scenea (5), sceneb (5)")
    assert not {each.file.name[:6] for each in train} & {each.file.name[:6] for each in val}
    assert len(val) == 20
    assert {each.labels for each in val} == {each.labels for each in train} == {("cat",), ("dog",)}
    assert (train, val, by) == split_pictures(tagged(*shots))


def test_names_that_tell_nothing_divide_every_class():
    pictures = tagged(*((f"{i:04}.jpg", "cat" if i % 5 else "rare") for i in range(100)), ("x.jpg", ""))
    train, val, by = split_pictures(pictures)
    assert by == "picture, as the file names do not tell scenes"
    assert sorted(each.file for each in train + val) == sorted(each.file for each in pictures)
    assert [sum(label in each.labels for each in val) for label in ("cat", "rare")] == [16, 4]


def test_the_split_does_not_depend_on_where_the_pictures_are():
    rows = [(f"{i:04}.jpg", "cat" if i % 3 else "dog") for i in range(50)]
    here, there = (split_pictures(tagged(*rows, root=Path(root))) for root in ("/data", "/home/me/data"))
    assert [each.name for each in here[1]] == [each.name for each in there[1]]


def test_a_class_with_one_picture_is_trained_on():
    train, val, _ = split_pictures(tagged(*((f"{i}.jpg", "cat") for i in range(10)), ("z.jpg", "dog")))
    assert any("dog" in each.labels for each in train)
    assert len(val) == 2


@pytest.mark.parametrize("scenes", ["café école forêt", "кот лес мост", "東京 京都 大阪", "की का कू"])
def test_names_of_scenes_in_any_script(scenes):
    shots = [
        (f"{scene}{chr(0x430 + s)}_{i:03}.jpg", "cat")
        for scene in scenes.split()
        for s in range(3)
        for i in range(4)
    ]
    train, val, by = split_pictures(tagged(*shots))
    assert by.startswith("scene: 9 scenes in the file names, such as ")
    assert not {each.file.name[:-8] for each in train} & {each.file.name[:-8] for each in val}
    other = [(unicodedata.normalize("NFD", name), label) for name, label in shots]
    again = split_pictures(tagged(*other))[1]
    assert {unicodedata.normalize("NFC", each.name) for each in again} == {
        unicodedata.normalize("NFC", each.name) for each in val
    }


def test_a_camera_that_has_nearly_all_of_a_class_is_divided():
    shots = [
        (f"cam{c}_{i:03}.jpg", "crack" if c == "a" or i == 0 else "rust") for c in "abcdef" for i in range(20)
    ]
    train, val, by = split_pictures(tagged(*shots))
    assert by.startswith("picture, as of 6 scenes in the file names, such as cama (20), ")
    assert by.endswith("too few show 'crack'")
    for label in ("crack", "rust"):
        assert min(sum(label in each.labels for each in part) for part in (train, val)) > 3
    train, val, by = split_pictures(tagged(*shots), "scene")
    assert by.startswith("scene: 6 scenes")
    assert not {each.name[:4] for each in train} & {each.name[:4] for each in val}


def test_scenes_are_divided_where_the_user_says_so():
    shots = [(f"scene{chr(97 + s)}_{i:03}.jpg", "cat") for s in range(20) for i in range(5)]
    train, val, by = split_pictures(tagged(*shots), "picture")
    assert by == "picture"
    assert {each.name[:6] for each in train} & {each.name[:6] for each in val}


@pytest.mark.parametrize("by", ["scene", "picture", "auto"])
def test_copies_are_never_divided(by):
    found = [
        each._replace(content=str(i // 2) if i < 60 else "")
        for i, each in enumerate(tagged(*((f"{i * 7 % 90:02}{'xyz'[i % 3]}.jpg", "cat") for i in range(90))))
    ]
    train, val, _ = split_pictures(found, by)
    assert len(train) + len(val) == 90
    contents = [{each.content for each in part if each.content} for part in (train, val)]
    assert not contents[0] & contents[1]


def test_scenes_too_large_to_divide_are_divided_by_picture():
    sizes = {"fotoxx": 37, "bildyy": 24, **{f"scene{chr(97 + i)}": 3 for i in range(16)}}
    shots = [
        (f"{name}_{i:03}.jpg", "cat dog" if i % 2 else "dog") for name, n in sizes.items() for i in range(n)
    ]
    _, val, by = split_pictures(tagged(*shots))
    assert by.startswith("picture, as 18 scenes in the file names, such as fotoxx (37)")
    assert (len(shots), len(val)) == (109, 22)
    assert len(split_pictures(tagged(*shots), "scene")[1]) == 33
