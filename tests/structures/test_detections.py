import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from detector.structures import Detections
from detector.utils.errors import MissingPackage

FOUND = Detections(
    "a.jpg",
    torch.tensor([[1.0, 2.0, 4.0, 8.0], [0.0, 0.0, 5.0, 5.0]]),
    torch.tensor([0.75, 0.5]),
    torch.tensor([1, 0]),
    ("dog", "cat"),
)
NONE = Detections("b.jpg", torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.int64))


@pytest.mark.parametrize("index", [1, -1, torch.tensor(1), FOUND.scores.argmin(), np.int64(1)])
def test_an_integer_of_any_kind_selects_one_box(index) -> None:
    one = FOUND[index]
    assert (one.boxes.tolist(), one.scores.tolist(), one.labels.tolist()) == ([[0, 0, 5, 5]], [0.5], [0])
    assert one.names == ("cat",)
    assert len(one) == len(list(one)) == 1


@pytest.mark.parametrize("index", [torch.tensor(2), np.int64(-3)])
def test_an_integer_out_of_range(index) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        FOUND[index]


def test_coco_rows() -> None:
    first, second = FOUND.to_coco(image_id=7)
    assert first == {"image_id": 7, "category_id": 2, "bbox": [1.0, 2.0, 3.0, 6.0], "score": 0.75}
    assert second["category_id"] == 1
    assert FOUND.to_coco()[0]["image_id"] == "a.jpg"
    assert NONE.to_coco() == []


def test_pandas_table() -> None:
    pytest.importorskip("pandas")
    table = FOUND.to_pandas()
    assert list(table.columns) == ["image_id", "x1", "y1", "x2", "y2", "score", "label", "name"]
    assert table.iloc[0].tolist() == ["a.jpg", 1.0, 2.0, 4.0, 8.0, 0.75, 1, "dog"]
    assert len(NONE.to_pandas()) == 0


def test_supervision_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=SimpleNamespace))
    found = FOUND.to_supervision()
    assert found.xyxy.tolist() == FOUND.boxes.tolist()
    assert (found.confidence.tolist(), found.class_id.tolist()) == ([0.75, 0.5], [1, 0])
    assert found.data["class_name"].tolist() == ["dog", "cat"]
    assert NONE.to_supervision().data == {}


def test_real_supervision() -> None:
    found = pytest.importorskip("supervision").Detections.merge([FOUND.to_supervision()])
    assert found["class_name"].tolist() == ["dog", "cat"]
    assert found.box_area.tolist() == [18.0, 25.0]


@pytest.mark.parametrize("package", ["pandas", "supervision"])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=f"pip install {package}"):
        getattr(FOUND, f"to_{package}")()
