import json
import pickle
import warnings

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image

from detector.data.datasets.image_labels import ImageLabels
from detector.data.reviewed import label_counts
from detector.utils.errors import DataError

CLASSES = ("bird", "cat", "dog")


@pytest.fixture
def root(tmp_path):
    """Three pictures; c is stored 60 wide and 40 high, and stands upright in a viewer."""
    root = tmp_path / "mine"
    (root / "below").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    for name, keywords in {"a.jpg": {}, "below/b.png": {}, "c.jpg": {"exif": exif}}.items():
        Image.fromarray(pixels).save(root / name, **keywords)
    return root


def write(root, *lines, split="train"):
    if isinstance(lines[0], str):
        root.joinpath(f"{split}.csv").write_text("\n".join(lines), encoding="utf-8")
    else:
        root.joinpath(f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def boxed(file="c.jpg", box=(5, 6, 40, 60), label="dog", **more):
    return {"file": file, "boxes": [{"label": label, "box": list(box), **more}]}


def test_reads_a_table(root):
    write(root, "file,labels", "a.jpg,dog;cat;dog", "below/b.png,bird", "c.jpg,")
    dataset = ImageLabels(root, "train", CLASSES)
    assert dataset.name == "mine_train"
    assert dataset.class_names == CLASSES
    assert dataset.image_ids == ("a", "below/b", "c")
    assert len(dataset) == 3
    assert dataset.image_path(1) == root / "below" / "b.png"
    labels = torch.stack([dataset.labels(i) for i in range(3)])
    assert labels.dtype == torch.float32
    assert labels.tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert [dataset.annotation(i) for i in range(3)] == [None] * 3
    copy = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(copy.read_image(0), dataset.read_image(0))


def test_pictures_stand_upright(root):
    write(root, "a.jpg,cat", "c.jpg,cat")
    dataset = ImageLabels(root, "train", CLASSES)
    assert [dataset.image_size(i) for i in range(2)] == [(40, 60), (60, 40)]
    lying, upright = dataset.read_image(0), dataset.read_image(1)
    assert torch.equal(upright, lying.rot90(-1, dims=(1, 2)))


def test_boxes_are_those_of_the_upright_picture(root):
    write(
        root,
        boxed(difficult=True),
        boxed("a.jpg", (-0.5, 0, 60.5, 40)),
        {"file": "below/b.png", "labels": ["cat"]},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = ImageLabels(root, "train", CLASSES)
    annotation = dataset.annotation(0)
    assert annotation.image_id == "c"
    assert annotation.boxes.tolist() == [[5, 6, 40, 60]]
    assert (annotation.labels.tolist(), annotation.difficult.tolist()) == ([2], [True])
    assert dataset.annotation(1).boxes.tolist() == [[0, 0, 60, 40]]  # clipped
    assert dataset.annotation(2) is None
    assert dataset.labels(0).tolist() == [0, 0, 1]


def test_a_picture_of_which_somebody_said_that_it_has_no_box(root):
    write(root, {"file": "a.jpg", "boxes": []}, {"file": "c.jpg", "labels": ["dog"]})
    annotation = ImageLabels(root, "train", CLASSES).annotation(0)
    assert annotation.boxes.shape == (0, 4)
    assert annotation.labels.shape == annotation.difficult.shape == (0,)
    assert (annotation.labels.dtype, annotation.difficult.dtype) == (torch.int64, torch.bool)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("gone.jpg,cat", r"image .*gone\.jpg does not exist"),
        ("notes.txt,cat", r"image .*notes\.txt cannot be read"),
        ("below,cat", "image .*below is a folder"),
        ("..,cat", r"'\.\.' is not a name inside"),
        ("/,cat", "'.' is not a name inside"),
        ("a.jpg,brid", "unknown class 'brid' \\(did you mean bird\\?\\); known are bird, cat, dog"),
        ("a.jpg,Cat", "unknown class 'Cat' \\(did you mean cat\\?\\)"),
        ("c.jpg,cat", "image 'c.jpg' .* 'c.jpg' on line 1"),
        ("c.png,cat", "image 'c.png' .* 'c.jpg' on line 1"),
        ("./c.jpg,cat", "image './c.jpg' .* 'c.jpg' on line 1"),
    ],
)
def test_a_picture_that_cannot_be_had_is_named_with_its_line(root, line, message):
    (root / "notes.txt").write_text("no picture")
    write(root, "c.jpg,cat", line)
    with pytest.raises(ValueError, match=r"train\.csv, line 2: " + message):
        ImageLabels(root, "train", CLASSES)


def test_all_mistakes_of_a_table_are_told_in_its_order(root):
    write(root, "gone.jpg,cat", "a.jpg,cat;", "c.jpg,cow")
    with pytest.raises(ValueError, match=r"train\.csv") as error:
        ImageLabels(root, "train", CLASSES)
    told = [line.partition("train.csv, ")[2] for line in str(error.value).splitlines()]
    assert [line.split(" ")[:3] for line in told] == [
        ["line", "1:", "image"],
        ["line", "2:", "an"],
        ["line", "3:", "unknown"],
    ]


@pytest.mark.parametrize("box", [(9, 1, 5, 5), (5, 9, 9, 5), (float("nan"), 1, 5, 5)])
def test_boxes_turned_inside_out_are_named_with_their_image(root, box):
    write(root, boxed("a.jpg", (1, 1, 5, 5)), boxed("c.jpg", box))
    with pytest.raises(ValueError, match=r"train\.jsonl: image c has the box \[.* \(dog\)"):
        ImageLabels(root, "train", CLASSES)


@pytest.mark.parametrize(
    ("box", "left"), [((0, 0, 42, 9), [[0, 0, 40, 9]]), ((5, 5, 5, 9), []), ((40, 0, 43, 9), [])]
)
def test_boxes_outside_or_without_an_area_are_clipped_or_dropped_with_one_warning(root, box, left):
    write(root, boxed("a.jpg", (1, 1, 5, 5)), boxed("c.jpg", box))
    with pytest.warns(UserWarning, match="of 2 boxes .*image c has the box .*40 wide") as warned:
        dataset = ImageLabels(root, "train", CLASSES)
    assert len(warned) == 1
    assert dataset.annotation(1).boxes.tolist() == left
    assert dataset.labels(1).tolist() == [0, 0, 1]


def test_the_classes_may_be_those_of_the_table(root):
    write(root, "a.jpg,dog;big cat", "c.jpg,dog")
    dataset = ImageLabels(root, "train")
    assert dataset.class_names == ("big cat", "dog")
    assert dataset.labels(1).tolist() == [0, 1]
    write(root, "a.jpg,dog", "c.jpg,Dog")
    with pytest.raises(ValueError, match="line 2: label 'Dog' differs from 'dog' of line 1"):
        ImageLabels(root, "train")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("photo,kind", "line 1 looks like a header, as there is no image 'photo': expected the columns file"),
        ("A.jpeg,cat", r"line 1: image .*A\.jpeg does not exist; there is .*a\.jpg$"),
        ("c,cat", r"line 1: image .*c does not exist; there is .*c\.jpg$"),
        ("none.jpg,cat", r"line 1: image .*none\.jpg does not exist$"),
    ],
)
def test_a_missing_picture_that_may_be_another_or_a_header(root, line, message):
    write(root, line, "a.jpg,cat")
    with pytest.raises(DataError, match=message):
        ImageLabels(root, "train", CLASSES)


def test_absolute_paths_get_ids_inside_any_folder(root, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "d.jpg"
    elsewhere.parent.mkdir()
    (root / "a.jpg").rename(elsewhere)
    write(root, f"{elsewhere},cat", "c.jpg,cat")
    dataset = ImageLabels(root, "train", CLASSES)
    assert dataset.image_ids == (str(elsewhere.with_suffix("")).lstrip("/"), "c")
    write(root, f"{tmp_path}/./elsewhere/d.jpg,cat", "c.jpg,cat")
    dataset = ImageLabels(root, "train", CLASSES)
    assert dataset.image_ids == ("elsewhere/d", "c")
    assert dataset.image_path(0) == elsewhere
    assert dataset.read_image(0).shape == (3, 40, 60)


def test_unknown_classes(root):
    write(root, "file,labels,unknown", "a.jpg,dog,bird", "below/b.png,bird", "c.jpg,,cat;dog")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # c has no label, but unknown ones
        dataset = ImageLabels(root, "train", CLASSES)
    assert [dataset.unknown(i).tolist() for i in range(3)] == [
        [True, False, False],
        [False] * 3,
        [False, True, True],
    ]
    assert label_counts(dataset) == {"bird": (1, 1), "cat": (0, 2), "dog": (1, 1)}
    write(root, "file,labels,unknown", "a.jpg,dog,brid")
    with pytest.raises(DataError, match="'brid'"):
        ImageLabels(root, "train", CLASSES)
