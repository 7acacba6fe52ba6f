"""Points and counts: from a file to a batch."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from detector.config import load_cfg
from detector.data.build import build_hints
from detector.data.datasets.voc import VOCDataset
from detector.data.hints import read_hints
from detector.data.loader import WeakDataset, collate
from detector.data.transforms import TrainTransform
from detector.structures import Hints
from detector.utils.errors import ConfigError, DataError

CLASSES = ("bird", "cat", "dog")
POINTS = [{"label": "dog", "point": [7, 8.5]}, {"label": "dog", "point": [2, 3]}]


@pytest.fixture
def source(small_voc):
    return VOCDataset(small_voc.root, "trainval", CLASSES)


def write(path, *rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


def cfg_of(*overrides):
    return load_cfg(Path(__file__).parents[2] / "configs/toybox_pcl.yaml", overrides)


def test_read_hints(tmp_path, source) -> None:
    path = write(
        tmp_path / "points.jsonl",
        {"file": "a.jpg", "points": POINTS, "counts": {"bird": 2, "dog": 2}},
        "",
        {"file": "c", "counts": {"cat": 1}},
    )
    found = build_hints(cfg_of("DATASETS.HINTS", str(path)).datasets, source)
    assert found["a"] == Hints(
        torch.tensor([[7, 8.5], [2, 3]]), torch.tensor([2, 2]), torch.tensor([2, 0, 2])
    )
    none = torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)
    assert found["c"] == Hints(*none, torch.tensor([0, 1, 0]))
    assert len(found) == 2
    assert build_hints(cfg_of().datasets, source) == {}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "line 2: not JSON: Expecting"),
        ([], "line 2: a list, expected an object"),
        ({"file": "a", "point": []}, "line 2: expected"),
        ({"file": "aa.jpg"}, r"'aa.jpg' is not in .*did you mean a\?"),
        ({"file": "c.png"}, "'c.png' is listed twice"),
        ({"file": "a", "points": {}}, "line 2: expected"),
        ({"file": "a", "points": [[1, 2]]}, "a point is"),
        ({"file": "a", "points": [{"label": "dog", "point": [1, "2"]}]}, "expected two numbers"),
        ({"file": "a", "points": [{"label": "dog", "point": [1, 2, 3]}]}, "expected two numbers"),
        ({"file": "a", "points": [{"label": "dog", "point": [1, 999]}]}, "outside of its image"),
        ('{"file": "a", "points": [{"label": "dog", "point": [1, NaN]}]}', "outside of its image"),
        ({"file": "a", "points": [{"label": "dig", "point": [1, 2]}]}, r"'dig' \(did you mean dog\?\)"),
        ({"file": "a", "points": POINTS, "counts": {"dog": 1}}, "count of 'dog' is 1, expected .* from 2"),
        ({"file": "a", "counts": {"dog": 0}}, "count of 'dog' is 0"),
        ({"file": "a", "counts": {"dog": True}}, "count of 'dog' is True"),
    ],
)
def test_wrong_lines(tmp_path, source, row, message) -> None:
    path = write(tmp_path / "points.jsonl", {"file": "c"}, row)
    with pytest.raises(DataError, match=message):
        read_hints(path, source)


def keypoint(label, x, y):
    return {
        "type": "keypointlabels",
        "original_width": 200,
        "original_height": 100,
        "value": {"x": x, "y": y, "width": 0.5, "keypointlabels": [label]},
    }


def export(*tasks):
    return json.dumps(tasks)


def task(name, *regions, cancelled=False):
    return {"data": {"image": name}, "annotations": [{"was_cancelled": cancelled, "result": list(regions)}]}


def cvat(image, *shapes):
    return f'<annotations><image id="0" name="{image}">{"".join(shapes)}</image></annotations>'


LABEL_STUDIO = export(
    task("/data/upload/1/0123abcd-a.jpg", keypoint("dog", 3.5, 8.5), keypoint("dog", 1, 3)),
    task("/data/local-files/?d=b.jpg"),
    task("/data/local-files/?d=c.png", keypoint("cat", 1, 2), cancelled=True),
)
DOGS = '<points label="dog" source="manual" points="7.00,8.50;2,3"></points><tag label="seen"></tag>'


@pytest.mark.parametrize(
    ("name", "text"), [("export.json", LABEL_STUDIO), ("annotations.xml", cvat("a.jpg", DOGS))]
)
def test_points_that_were_set_in_a_labeling_tool(tmp_path, source, name, text) -> None:
    found = read_hints(write(tmp_path / name, text), source)
    points = torch.tensor([[7, 8.5], [2, 3]])
    assert found == {"a": Hints(points, torch.tensor([2, 2]), torch.zeros(3, dtype=torch.int64))}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", json.dumps({"images": []}), "not a list of tasks"),
        ("a.json", export(task("a.jpg", keypoint("dog", 99, 99))), "image 'a.jpg': the point .* outside"),
        ("a.json", export(task("a.jpg", keypoint("dig", 1, 1))), r"image 'a.jpg': .*did you mean dog\?"),
        ("a.json", export(task("no.jpg", keypoint("dog", 1, 1))), "image 'no.jpg' is not in"),
        ("a.json", export(task("a.jpg", {"value": {"rectanglelabels": ["dog"]}})), "expected keypointlabels"),
        ("a.json", export(task("a.jpg")), "lists no image"),
        ("a.xml", cvat("a.jpg", '<box label="dog"></box>'), "has a <box>, expected <points> only"),
        ("a.xml", cvat("a.jpg", '<points label="dog" points="1"></points>'), "expected two numbers"),
        ("a.xml", cvat("a.jpg", '<points label="dog" points="1,b"></points>'), "'1,b', expected x,y;x,y"),
    ],
)
def test_wrong_exports(tmp_path, source, name, text, message) -> None:
    with pytest.raises(DataError, match=message):
        read_hints(write(tmp_path / name, text), source)


def test_an_empty_file(tmp_path, source) -> None:
    with pytest.raises(DataError, match="lists no image"):
        read_hints(write(tmp_path / "points.jsonl", ""), source)


def test_hints_are_needed_by_streams() -> None:
    with pytest.raises(ConfigError, match="METHOD"):
        cfg_of("DATASETS.HINTS", "points.jsonl", "MODEL.METHOD", "wsddn")


def test_points_move_with_the_image_and_label_it(source) -> None:
    hints = {"b": Hints(torch.tensor([[2.0, 3]]), torch.tensor([1]), torch.tensor([3, 0, 0]))}
    proposals = dict.fromkeys(source.image_ids, torch.tensor([[1.0, 1, 9, 9]]))
    transform = TrainTransform(sizes=(80,), side="shortest", max_size=500, flip=True)
    dataset = WeakDataset(source, proposals, transform, min_size=2, stride=1, max_count=9, hints=hints)
    index, flipped = source.image_ids.index("b"), set()
    for draw in range(4):
        sample = dataset[index, draw]
        height, width = source.image_size(index)
        x, y = 2 * sample.image.shape[2] / width, 3 * sample.image.shape[1] / height
        expected = [sample.image.shape[2] - x if sample.flipped else x, y]
        torch.testing.assert_close(sample.hints.points, torch.tensor([expected]))
        assert sample.labels[:2].tolist() == [1, 1]
        flipped.add(sample.flipped)
    assert flipped == {False, True}
    samples = [dataset[i, 0] for i in range(len(dataset))]
    batch = collate(samples)
    assert [each is not None for each in batch.hints] == [name == "b" for name in batch.image_ids]
    assert batch.to("cpu") == batch
    assert batch != replace(batch, hints=())
    assert collate([sample for sample in samples if sample.image_id != "b"]).hints == ()
