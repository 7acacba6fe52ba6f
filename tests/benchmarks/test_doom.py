"""Rendered game scenes: where things are put, and the folder that comes of it."""

import hashlib
from collections import Counter
from multiprocessing import get_context

import numpy as np
import pytest
from doom import CLASSES, TEST_MAPS, TRAIN_MAPS, folder, render_doom
from doom.game import HEIGHT, WIDTH, Thing
from doom.scene import APART, KINDS, MARGIN, NEAREST, choose_names, choose_places, distance, is_visible

from detector.data.datasets.voc import VOCDataset


def digests(root):
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module", autouse=True)
def forked():
    """Workers that need not import torch anew, which takes seconds; docs/doom.md has others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "get_context", lambda _: get_context("fork"))
        yield


@pytest.fixture(scope="module")
def doom(tmp_path_factory):
    pytest.importorskip("vizdoom")
    root = tmp_path_factory.mktemp("doom") / "doom"
    render_doom(root, train=2, test=1, workers=2)
    return root


def test_the_same_call_writes_the_same_bytes_whatever_the_number_of_processes(doom, tmp_path):
    render_doom(tmp_path / "again", train=2, test=1, workers=1)
    assert digests(tmp_path / "again") == digests(doom)


def test_another_seed_renders_other_pictures_and_more_begin_with_the_same(doom, tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "TRAIN_MAPS", (1,))
    render_doom(tmp_path / "other", seed=1, train=1, test=0)
    render_doom(tmp_path / "more", train=2, test=0)
    first = "JPEGImages/map01_0000.jpg"
    assert digests(tmp_path / "other")[first] != digests(doom)[first]
    assert digests(tmp_path / "more")[first] == digests(doom)[first]


def test_the_voc_reader_reads_it(doom):
    trainval, test = (VOCDataset(doom, split, CLASSES) for split in ("trainval", "test"))
    assert (len(trainval), len(test)) == (2, 1)
    for dataset, maps in ((trainval, TRAIN_MAPS), (test, TEST_MAPS)):
        for index, image_id in enumerate(dataset.image_ids):
            assert int(image_id[3:5]) in maps
            assert dataset.image_size(index) == (HEIGHT, WIDTH)
            assert dataset.read_image(index).float().std() > 5
            x1, y1, x2, y2 = dataset.annotation(index).boxes.unbind(dim=1)
            assert len(x1)
            assert ((x2 - x1) * (y2 - y1) >= 400).all()


def test_the_maps_of_test_are_no_maps_of_training():
    assert sorted(TRAIN_MAPS + TEST_MAPS) == list(range(1, 33))


def test_an_existing_folder_is_left_alone(tmp_path):
    with pytest.raises(FileExistsError, match="delete it"):
        render_doom(tmp_path, train=1, test=0)


def test_pictures_are_shared_among_the_maps():
    assert folder.share((3, 5, 7), 8) == {3: 3, 5: 3, 7: 2}


def test_the_least_seen_classes_come_first():
    seen = Counter(dict.fromkeys(CLASSES, 4)) - Counter({"imp": 3})
    for seed in range(10):
        names = choose_names(np.random.default_rng(seed), seen)
        assert names[0] == "imp"
        assert all(1 <= count <= 3 for count in Counter(names).values())


@pytest.mark.parametrize("seed", range(10))
def test_places_are_free_and_apart(seed):
    random = np.random.default_rng(seed)
    depths = np.repeat(random.uniform(50, 600, size=20), WIDTH // 20)  # (W,)
    places = choose_places(random, depths, list(CLASSES))
    assert places
    for i, (name, depth, column) in enumerate(places):
        assert NEAREST <= depth <= min(depths[int(column)] - MARGIN, KINDS[name].reach)
        assert all(distance(depth, column, *other) >= APART for _, *other in places[:i])


def test_no_place_where_the_wall_is_near():
    assert choose_places(np.random.default_rng(0), np.full(WIDTH, NEAREST), ["imp"]) == []


@pytest.mark.parametrize(
    ("box", "pixels", "brightness", "visible"),
    [
        ((0, 0, 20, 20), 300, 60.0, True),
        ((0, 0, 20, 19), 300, 60.0, False),  # small
        ((0, 0, 20, 20), 99, 60.0, False),  # hidden
        ((0, 0, 20, 20), 300, 10.0, False),  # dark
        ((0, 0, WIDTH, HEIGHT), WIDTH * HEIGHT, 60.0, False),  # in the player's face
    ],
)
def test_what_counts_as_visible(box, pixels, brightness, visible):
    assert is_visible(Thing("DoomImp", box, pixels, brightness)) is visible
