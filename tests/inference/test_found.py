"""What a predictor finds can be shown, and a predictor takes what people have."""

import io
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from random_run import CLASSES, make_run, make_student

import detector
from detector.inference.found import Found
from detector.structures import Detections
from detector.utils.errors import UserError


@pytest.fixture(scope="module")
def predictor(tmp_path_factory):
    return detector.load(make_run(tmp_path_factory.mktemp("runs") / "demo"), "cpu", score_threshold=0.01)


@pytest.fixture
def pictures(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 40, 60, 3), dtype=np.uint8)
    for name, image in zip(("a/one", "two"), pixels, strict=True):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / f"{name}.png")
    return tmp_path


def test_a_picture_shows_what_was_found(predictor, pictures, monkeypatch):
    found = predictor(pictures / "two.png")
    assert len(found) > 1
    picture = found.plot()
    assert picture.size == (600, 400)
    plain = Image.open(pictures / "two.png").resize(picture.size, Image.Resampling.NEAREST)
    assert np.any(np.array(picture) != np.array(plain))
    assert Image.open(io.BytesIO(found._repr_png_())).size == picture.size
    for name, form in (("found.jpg", "JPEG"), ("found.png", "PNG")):
        assert Image.open(found.save(pictures / name)).format == form
    with pytest.raises(UserError, match=r"suffix '\.gif', expected \.jpg or \.png"):
        found.save("found.gif")
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda self: shown.append(self.size))
    found.show()
    assert shown == [picture.size]
    best = found[:1]
    assert isinstance(best, Found)
    assert np.any(np.array(best.plot()) != np.array(picture))
    (pictures / "two.png").unlink()
    assert found._repr_png_() is None  # Jupyter shows the text then


def test_each_box_is_a_name_a_score_and_a_box(predictor, pictures):
    found = predictor(pictures / "two.png")
    rows = list(found)
    assert [row.name for row in rows] == list(found.names)
    assert [row.score for row in rows] == found.scores.tolist()
    assert torch.equal(torch.tensor([box for _, _, box in rows]), found.boxes)
    unnamed = Detections("a", torch.ones(1, 4), torch.ones(1), torch.zeros(1, dtype=torch.int64))
    assert list(unnamed) == [("", 1.0, (1.0, 1.0, 1.0, 1.0))]


def test_a_folder_a_list_and_a_generator_give_the_same(predictor, pictures):
    paths = [pictures / "a/one.png", pictures / "two.png"]
    each = [predictor(path) for path in paths]
    assert predictor(pictures) == predictor(str(pictures)) == predictor(paths) == each
    frames = predictor(np.array(Image.open(path)) for path in paths)
    assert isinstance(frames, Iterator)
    first = next(frames)
    assert torch.equal(first.boxes, each[0].boxes)
    assert first.image_id == "0"
    assert first.plot().size == (600, 400)
    with pytest.raises(UserError, match="call the predictor for each image"):
        predictor(iter(paths), [None])


def test_equal_are_those_with_equal_boxes(predictor, pictures):
    image = np.array(Image.open(pictures / "two.png"))
    found = predictor(image)
    assert found == predictor(image.copy())
    fields = found.image_id, found.boxes, found.scores, found.labels, found.names
    assert found == Detections(*fields)
    assert Detections(*fields) == found
    assert found != predictor(image[::-1].copy())


def test_a_predictor_says_what_it_is(predictor, tmp_path):
    text = repr(predictor)
    assert text.startswith(f"WeakPredictor(weak detector, {len(CLASSES)} classes: {CLASSES[0]}, ")
    assert text.endswith(", on cpu, float32)")
    run = make_run(tmp_path / "run")
    make_student(run)
    assert repr(detector.load(run, "cpu")).startswith("Predictor(Faster R-CNN, ")


def test_detections_without_an_image_say_so():
    empty = torch.zeros(0)
    found = Found("a", torch.zeros(0, 4), empty, empty.long())
    with pytest.raises(UserError, match="have no image to draw on"):
        found.plot()
