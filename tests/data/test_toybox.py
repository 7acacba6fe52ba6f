import hashlib

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from detector.data import toybox
from detector.data.datasets.voc import VOCDataset
from detector.data.proposals.selective_search import search_image
from detector.data.toybox import CLASSES, draw_toybox
from detector.data.toybox.objects import MAKERS
from detector.data.toybox.scene import SUPERSAMPLING, Canvas, annotate, draw_scene
from detector.structures import box_iou


def digests(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def scenes():
    return [draw_scene(np.random.default_rng((0, index))) for index in range(80)]


def test_the_same_call_writes_the_same_bytes(tmp_path):
    draw_toybox(tmp_path / "one", train=3, test=2)
    draw_toybox(tmp_path / "two", train=3, test=2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    draw_toybox(tmp_path / "other", seed=1, train=3, test=2)
    images = [{v for k, v in digests(tmp_path / name).items() if "JPEG" in k} for name in ("one", "other")]
    assert len(images[0]) == 5
    assert not images[0] & images[1]


def test_a_picture_does_not_depend_on_how_many_there_are(tmp_path):
    draw_toybox(tmp_path / "few", train=2, test=1)
    draw_toybox(tmp_path / "more", train=3, test=1)
    few, more = digests(tmp_path / "few"), digests(tmp_path / "more")
    assert few["JPEGImages/000002.jpg"] == more["JPEGImages/000002.jpg"]
    assert few["JPEGImages/000003.jpg"] == more["JPEGImages/000004.jpg"]  # the first of test


def test_the_voc_reader_reads_it(tmp_path):
    draw_toybox(tmp_path / "toybox", train=12, test=3)
    trainval = VOCDataset(tmp_path / "toybox", "trainval", CLASSES)
    test = VOCDataset(tmp_path / "toybox", "test", CLASSES)
    assert (len(trainval), len(test)) == (12, 3)
    assert not set(trainval.image_ids) & set(test.image_ids)
    for index in range(12):
        picture, objects = draw_scene(np.random.default_rng((0, 0, index)))
        annotation = trainval.annotation(index)
        assert trainval.image_size(index) == picture.shape[:2]
        assert annotation.boxes.tolist() == [list(thing.box) for thing in objects]
        assert [CLASSES[label] for label in annotation.labels] == [thing.label for thing in objects]
        assert annotation.difficult.tolist() == [thing.difficult for thing in objects]
        stored = trainval.read_image(index).permute(1, 2, 0).numpy().astype(float)
        assert np.abs(stored - picture).mean() < 6  # JPEG


def test_boxes_hold_what_is_visible_and_flags_say_how_much():
    canvas = Canvas(np.random.default_rng(0), 20, 30)
    pen = ImageDraw.Draw(canvas.owners)

    def rectangle(x1, y1, x2, y2, owner):  # in final pixels, half-open
        pen.rectangle(
            [SUPERSAMPLING * x1, SUPERSAMPLING * y1, SUPERSAMPLING * x2 - 1, SUPERSAMPLING * y2 - 1], owner
        )
        canvas.areas.append((x2 - x1) * (y2 - y1) * SUPERSAMPLING**2)

    rectangle(0, 2, 10, 12, 1)
    rectangle(4, 2, 14, 12, 2)  # hides six tenths of the first
    rectangle(20, 5, 30, 20, 3)
    first, second, third = annotate(canvas, ["car", "fish", "bird"])
    assert (first.box, first.truncated, first.difficult) == ((0, 2, 4, 12), True, True)
    assert (second.box, second.truncated, second.difficult) == ((4, 2, 14, 12), False, False)
    assert (third.label, third.box) == ("bird", (20, 5, 30, 20))


def test_what_a_scene_holds(scenes):
    objects = [thing for _, things in scenes for thing in things]
    for picture, things in scenes:
        height, width, channels = picture.shape
        assert channels == 3
        assert picture.dtype == np.uint8
        assert 184 <= max(height, width) <= 216
        assert 144 <= min(height, width) <= 176
        assert 1 <= len(things) <= 4
        assert 1 <= len({thing.label for thing in things}) <= 3
        for x1, y1, x2, y2 in (thing.box for thing in things):
            assert 0 <= x1 < x2 <= width
            assert 0 <= y1 < y2 <= height
    counts = [sum(thing.label == name for thing in objects) for name in CLASSES]
    assert len(CLASSES) >= 6
    assert min(counts) > max(counts) / 3  # 80 scenes: chance alone makes a factor of 2
    sides = np.array([max(x2 - x1, y2 - y1) for x1, y1, x2, y2 in (thing.box for thing in objects)])
    assert np.quantile(sides, 0.9) > 2.5 * np.quantile(sides, 0.1)
    assert sides.max() <= 109
    assert 0.05 < np.mean([thing.truncated for thing in objects]) < 0.5
    assert np.mean([thing.difficult for thing in objects]) < 0.05
    assert any(picture.shape[0] > picture.shape[1] for picture, _ in scenes)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_a_constant_part_and_a_varying_body(name):
    drawings = [MAKERS[name](np.random.default_rng(seed)) for seed in range(12)]
    constant = set.intersection(
        *({paint for _, paint in parts if paint.texture == "plain"} for parts in drawings)
    )
    body = [{paint for _, paint in parts} - constant for parts in drawings]
    assert constant
    assert len(set(map(frozenset, body))) == 12
    for parts in drawings:
        assert all(np.isfinite(points).all() and points.shape[1] == 2 for points, _ in parts)


def test_selective_search_finds_the_objects(scenes):
    best = []
    for picture, things in scenes[:25]:
        proposals = torch.from_numpy(search_image(picture, mode="fast", longest_side=160))
        truth = torch.tensor([thing.box for thing in things if not thing.difficult], dtype=torch.float32)
        best += box_iou(truth.reshape(-1, 4), proposals).amax(dim=1).tolist()
    assert np.mean(np.array(best) >= 0.5) >= 0.9


def test_some_of_the_classes_alone_are_drawn():
    scenes = [draw_scene(np.random.default_rng(seed), ("car", "house", "robot")) for seed in range(6)]
    assert {thing.label for _, things in scenes for thing in things} == {"car", "house", "robot"}


def test_an_interrupted_drawing_leaves_no_data_set(tmp_path, monkeypatch):
    write_image = toybox.write_image

    def interrupted(root, image_id, *others):
        if image_id == "000002":
            raise KeyboardInterrupt
        write_image(root, image_id, *others)

    monkeypatch.setattr(toybox, "write_image", interrupted)
    with pytest.raises(KeyboardInterrupt):
        draw_toybox(tmp_path / "toybox", train=2, test=1)
    assert not (tmp_path / "toybox").exists()
    monkeypatch.undo()
    draw_toybox(tmp_path / "toybox", train=2, test=1)
    assert [path.name for path in tmp_path.iterdir()] == ["toybox"]
    assert Image.open(tmp_path / "toybox" / "JPEGImages" / "000002.jpg").mode == "RGB"


def test_it_does_not_draw_over_a_folder(tmp_path):
    with pytest.raises(FileExistsError, match="delete it"):
        draw_toybox(tmp_path, train=1, test=1)
