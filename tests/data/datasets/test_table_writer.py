"""data/datasets/table_writer.py: boxes go into a table of image labels, and nothing else changes."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
from PIL import Image

from detector.data.datasets.image_labels import ImageLabels
from detector.data.datasets.image_table import read_table
from detector.data.datasets.table_writer import replace_table, rows_with_boxes
from detector.data.formats import ReviewImage
from detector.data.labeled_box import LabeledBox
from detector.utils.errors import DataError

SOURCE = Path("export.json")
SIZE = (40, 60)
CAT, DOG = (LabeledBox(name, (1.0, 2.0, 30.5, 39.0), reviewed=True) for name in ("cat", "dog"))


@pytest.fixture
def table(tmp_path):
    """Of images a to d, a shows a cat, b perhaps a dog, c has a box."""
    for name in "abcd":
        Image.new("RGB", SIZE[::-1]).save(tmp_path / f"{name}.png")
    boxes = [{"label": "dog", "box": [0, 0, 9, 9], "difficult": True}]
    rows = [
        {"file": f"{tmp_path}/./a.png", "labels": ["cat"]},
        {"file": "b.png", "labels": [], "unknown": ["dog"]},
        {"file": "c.png", "labels": ["dog"], "boxes": boxes},
        {"file": "d.png", "labels": ["cat", "dog"]},
    ]
    (tmp_path / "val.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return tmp_path / "val.jsonl"


def reviewed(name, *boxes, size=SIZE, complete=True):
    return ReviewImage(name, size, boxes, complete)


def boxes_of(table, classes=("cat", "dog")):
    dataset = ImageLabels(table.parent, table.stem, classes)
    found = [dataset.annotation(i) for i in range(len(dataset))]
    return [None if each is None else (each.boxes.tolist(), each.labels.tolist()) for each in found]


def test_images_that_were_not_reviewed_stay_as_they_are(table):
    before, lines = table.read_bytes(), table.read_text().splitlines()
    images = [reviewed("a.png", CAT, CAT), reviewed("d.png", complete=False)]
    output, kept = replace_table(table, rows_with_boxes(table, images, SOURCE))
    assert (output, kept.name, kept.read_bytes()) == (table, "val.jsonl.bak", before)
    assert [json.loads(line) for line in table.read_text().splitlines()[1:]] == list(
        map(json.loads, lines[1:])
    )
    box = [1.0, 2.0, 30.5, 39.0]
    assert boxes_of(table) == [([box, box], [0, 0]), None, ([[0, 0, 9, 9]], [1]), None]
    # A second time, and where a person has seen that nothing is there.
    first = table.read_bytes()
    with pytest.warns(UserWarning, match=r"1 image with boxes that contradict the tags, .* is 'd\.png'"):
        rows = rows_with_boxes(table, [reviewed("b.png", DOG), reviewed("d.png")], SOURCE)
    _, again = replace_table(table, rows)
    assert (again.name, again.read_bytes()) == ("val.jsonl.bak2", first)
    assert kept.read_bytes() == before
    assert boxes_of(table)[1::2] == [([box], [1]), ([], [])]
    assert read_table(table)[0][1].unknown == ()
    rows = rows_with_boxes(table, [reviewed("b.png", DOG, DOG._replace(difficult=True))], SOURCE)
    assert [box.difficult for box in rows[1].boxes] == [False, True]


def test_a_table_of_csv_becomes_one_of_json_lines(table):
    table.unlink()
    table = table.with_suffix(".csv")
    table.write_text("file,labels\na.png,cat;dog\nb.png,\n")
    images = [reviewed("a.png", CAT, DOG), reviewed("b.png")]
    output, kept = replace_table(table, rows_with_boxes(table, images, SOURCE))
    assert [path.name for path in (output, kept)] == ["val.jsonl", "val.csv.bak"]
    assert not table.exists()
    assert boxes_of(output)[0][1] == [0, 1]
    table.write_text("a.png,cat")
    with pytest.raises(DataError, match=r"val\.csv and .*val\.jsonl: keep the one that is meant"):
        replace_table(table, [])


def test_a_write_that_fails_leaves_the_table(table, monkeypatch):
    before = table.read_bytes()
    rows = rows_with_boxes(table, [reviewed("a.png", CAT)], SOURCE)
    monkeypatch.setattr(os, "replace", Mock(side_effect=[None, OSError(28, "No space left")]))
    with pytest.raises(OSError, match=r"cannot write .*val\.jsonl: No space left"):
        replace_table(table, rows)
    assert table.read_bytes() == before


def test_what_is_left_out_is_counted(table):
    images = [
        reviewed("x.png", CAT),
        reviewed("a.jpg", CAT),  # the suffix is no part of an id
        reviewed("d.png", CAT, complete=False),
        ReviewImage("y.png", SIZE, ()),  # not reviewed
    ]
    with pytest.warns(UserWarning, match=r"^export\.json: 1 image ") as caught:
        rows = rows_with_boxes(table, images, SOURCE)
    assert [row.boxes is not None for row in rows] == [True, False, True, False]
    text = [str(each.message) for each in caught]
    assert text[0] == f"export.json: 1 image not in {table}, left out; the first is 'x.png'"
    assert text[1].startswith("export.json: 1 image reviewed in part only")
    assert len(text) == 2


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (reviewed("x.png", CAT), r"none of its images is in .*val\.jsonl \(such as 'x\.png' there"),
        (reviewed("a.png", CAT, complete=False), "is reviewed as a whole; .* pass --reviewed all"),
        (reviewed("a.png", CAT, size=(60, 40)), r"'a\.png' has the \(height, width\) \(60, 40\), expected"),
        (
            reviewed("a.png", CAT._replace(label="cats")),
            r"a box of unknown class 'cats' \(did you mean cat\?\); known are cat, dog, the labels of",
        ),
    ],
)
def test_boxes_that_do_not_fit(table, image, message):
    before = table.read_bytes()
    with pytest.raises(DataError, match=message):
        rows_with_boxes(table, [image], SOURCE)
    assert table.read_bytes() == before


def test_a_class_that_only_training_images_show(table):
    (table.parent / "train.csv").write_text("e.png,bird\n")
    images = [reviewed("a.png", CAT, CAT._replace(label="bird"))]
    with pytest.warns(UserWarning, match="contradict the tags"):
        assert rows_with_boxes(table, images, SOURCE)[0].labels == ("bird", "cat")


def test_a_file_of_nothing(table):
    with pytest.raises(DataError, match="none of its images"):
        rows_with_boxes(table, [], SOURCE)
    with pytest.raises(DataError, match=r"val\.json is no table .*, expected .* \.csv or \.jsonl"):
        rows_with_boxes(table.with_suffix(".json"), [], SOURCE)


def test_a_link_with_the_name_of_the_kept_table_stays(table):
    link = table.with_name("val.jsonl.bak")
    link.symlink_to("gone")
    assert replace_table(table, read_table(table)[0])[1].name == "val.jsonl.bak2"
    assert os.readlink(link) == "gone"
