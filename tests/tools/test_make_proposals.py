import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from detector.data.datasets.voc import VOCDataset
from detector.data.images import read_image
from detector.data.proposals import load_proposals
from detector.data.proposals import search as module
from detector.data.proposals.grid import grid_boxes
from detector.data.proposals.selective_search import search_image
from detector.data.toybox import CLASSES
from detector.utils.records import append_record

CONFIG = Path(__file__).parents[2] / "configs" / "toybox_pcl.yaml"
SEARCH = ("--mode", "fast", "--longest-side", 100)


@pytest.fixture
def make_proposals(command):
    """Run the command in this process with the given arguments; it must end with the given status."""

    def run(*arguments, status=0):
        assert command("propose")([*arguments, *SEARCH, "--workers", 1]) == status

    return run


@pytest.fixture
def refused(make_proposals, capsys):
    """Run the command with arguments that it must refuse with status 2, and return what it prints."""

    def run(*arguments):
        capsys.readouterr()
        make_proposals(*arguments, status=2)
        return capsys.readouterr().err

    return run


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder of six small images, some in a folder below it."""
    root = tmp_path_factory.mktemp("pictures")
    (root / "below").mkdir()
    for index, name in enumerate(("b.png", "a.one.jpg", "below/a.png", "c.JPG", "d.png", "e.jpeg")):
        pixels = np.random.default_rng(index).integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((60 + index, 40), Image.Resampling.BICUBIC).save(root / name)
    (root / "notes.txt").write_text("no image")
    return root


IDS = ("a.one", "b", "below/a", "c", "d", "e")


def test_a_folder_of_images(make_proposals, pictures, tmp_path, capsys):
    make_proposals("--images", pictures, "--output", tmp_path / "new" / "out.npz")
    proposals = load_proposals(tmp_path / "new" / "out.npz")
    assert proposals.image_ids == IDS
    assert proposals.sizes.tolist() == [[40, width] for width in (61, 60, 62, 63, 64, 65)]
    image = read_image(pictures / "below" / "a.png").permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(proposals["below/a"], search_image(image, mode="fast", longest_side=100))
    counts = sorted(len(boxes) for boxes in proposals.values())
    median = (counts[2] + counts[3]) / 2
    assert (
        f"6 images, {counts[0]}/{median:.0f}/{counts[-1]} boxes (min/median/max)" in capsys.readouterr().out
    )
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["out.npz"]


def test_a_voc_folder_and_its_splits(make_proposals, toybox, tmp_path):
    splits = {split: VOCDataset(toybox, split, CLASSES) for split in ("trainval", "test")}
    make_proposals("--voc", toybox, "--split", "test", "--output", tmp_path / "test.npz")
    test = load_proposals(tmp_path / "test.npz")
    test.check(splits["test"])
    assert test.image_ids == splits["test"].image_ids
    make_proposals("--voc", toybox, "--output", tmp_path / "all.npz")
    both = load_proposals(tmp_path / "all.npz")
    for dataset in splits.values():
        both.check(dataset)
    assert len(both) == 12


def test_a_config_says_which_images_how_and_where(make_proposals, command, toybox, tmp_path, monkeypatch):
    words = ["PROPOSALS.MODE", "grid", "DATASETS.ROOT", toybox, "DATASETS.PROPOSALS", tmp_path / "grid.npz"]
    monkeypatch.setitem(sys.modules, "cv2", None)  # importing it fails: a grid needs none
    assert command("propose")(["--config-file", CONFIG, "--workers", 1, *words]) == 0
    proposals = load_proposals(tmp_path / "grid.npz")
    for split in ("trainval", "test"):
        proposals.check(VOCDataset(toybox, split, CLASSES))
    boxes = grid_boxes(np.empty((*proposals.sizes[0], 3)))
    np.testing.assert_array_equal(proposals[proposals.image_ids[0]], boxes)


def test_own_pictures_are_turned_and_those_of_voc_are_not(make_proposals, tmp_path):
    pictures = tmp_path / "voc" / "JPEGImages"
    pictures.mkdir(parents=True)
    turned = Image.Exif()
    turned[ExifTags.Base.Orientation] = 6
    Image.new("RGB", (30, 20)).save(pictures / "a.jpg", exif=turned)
    make_proposals("--images", pictures, "--output", tmp_path / "own.npz")
    make_proposals("--voc", tmp_path / "voc", "--output", tmp_path / "voc.npz")
    assert load_proposals(tmp_path / "own.npz").sizes.tolist() == [[30, 20]]
    assert load_proposals(tmp_path / "voc.npz").sizes.tolist() == [[20, 30]]


def test_an_interrupted_run_resumes_to_the_same_bytes(make_proposals, pictures, tmp_path, monkeypatch):
    make_proposals("--images", pictures, "--output", tmp_path / "unbroken.npz")
    search, searched = module.search, []

    def counted(image_id, *arguments):
        if len(searched) == 3:
            raise KeyboardInterrupt
        searched.append(image_id)
        return search(image_id, *arguments)

    monkeypatch.setattr(module, "search", counted)
    make_proposals("--images", pictures, "--output", tmp_path / "out.npz", status=130)
    assert not (tmp_path / "out.npz").exists()
    searched.clear()
    monkeypatch.setattr(module, "search", lambda name, *rest: (searched.append(name), search(name, *rest))[1])
    make_proposals("--images", pictures, "--output", tmp_path / "out.npz")
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "unbroken.npz").read_bytes()
    assert len(searched) == 3
    assert sorted(os.listdir(tmp_path)) == ["out.npz", "unbroken.npz"]


@pytest.fixture
def started(toybox, tmp_path, monkeypatch):
    """The command with two workers on 240 images, in a process group of its own, when some are done.

    Each image is there twenty times, and is searched once by commands in this process.
    """
    search, known = module.search, {}

    def search_once(image, *arguments):
        content = image[1].read_bytes()
        known[content] = known.get(content) or search(image, *arguments)[1]
        return image[0], known[content]

    monkeypatch.setattr(module, "search", search_once)
    images = tmp_path / "images"
    images.mkdir()
    for copy in range(20):
        for path in (toybox / "JPEGImages").iterdir():
            shutil.copy(path, images / f"{copy}{path.name}")
    arguments = ["--images", images, "--output", tmp_path / "out.npz", *SEARCH, "--workers", 2]
    process = subprocess.Popen(
        [str(word) for word in (sys.executable, "-m", "detector", "propose", *arguments)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        # Started from a background job of a shell it would ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    journal = tmp_path / "out.npz.partial"
    try:
        wait_until(lambda: journal.exists() and journal.stat().st_size > 20_000, seconds=300)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_stops_the_workers_and_the_bytes_do_not_hang_on_their_number(
    started, make_proposals, tmp_path
):
    os.killpg(started.pid, signal.SIGINT)  # to parent and workers, as a terminal does
    _, errors = started.communicate(timeout=60)
    assert started.returncode == 130
    assert "Traceback" not in errors
    assert "rerun the same command to resume" in errors
    assert not (tmp_path / "out.npz").exists()
    wait_until(lambda: not is_alive(started.pid))

    assert (tmp_path / "out.npz.partial").exists()
    make_proposals("--images", tmp_path / "images", "--output", tmp_path / "out.npz")
    make_proposals("--images", tmp_path / "images", "--output", tmp_path / "unbroken.npz")
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "unbroken.npz").read_bytes()


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_workers_end_with_a_parent_that_is_killed_and_its_lock_is_free(
    started, make_proposals, refused, tmp_path
):
    arguments = ("--images", tmp_path / "images", "--output", tmp_path / "out.npz")
    assert re.search(rf"out\.npz .* process {started.pid} on .* propose --images", refused(*arguments))
    os.kill(started.pid, signal.SIGKILL)  # the parent alone
    started.wait(timeout=60)
    wait_until(lambda: not is_alive(started.pid), seconds=20)
    make_proposals(*arguments)
    assert len(load_proposals(tmp_path / "out.npz")) == 240
    assert sorted(os.listdir(tmp_path)) == ["images", "out.npz"]


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(process_group):
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_unreadable_image_is_named_after_the_others_are_done(
    make_proposals, refused, pictures, tmp_path, monkeypatch
):
    broken = pictures / "below" / "broken.jpg"
    broken.write_bytes(b"not a picture")
    try:
        errors = refused("--images", pictures, "--output", tmp_path / "out.npz")
        assert "1 of 7 images could not be read" in errors
        assert "or remove them and their labels" in errors
        assert str(broken) in errors
        assert not (tmp_path / "out.npz").exists()
    finally:
        broken.unlink()
    monkeypatch.setattr(module, "search", None)  # nothing is left to search
    make_proposals("--images", pictures, "--output", tmp_path / "out.npz")
    assert load_proposals(tmp_path / "out.npz").image_ids == IDS


def test_a_journal_of_other_parameters_is_not_continued(refused, pictures, tmp_path):
    journal = tmp_path / "out.npz.partial"
    append_record(journal, {"parameters": {"mode": "fast", "longest_side": 200}})
    errors = refused("--images", pictures, "--output", tmp_path / "out.npz")
    assert re.search(r"out\.npz\.partial .*begun with other parameters.*Delete it", errors)
    assert journal.exists()
    journal.write_text("somebody's notes")
    errors = refused("--images", pictures, "--output", tmp_path / "out.npz")
    assert re.search(r"out\.npz\.partial is .*not a journal of this version", errors)
    assert journal.read_text() == "somebody's notes"


def test_bad_arguments(refused, pictures, toybox, tmp_path):
    output = ("--output", tmp_path / "out.npz")
    assert re.search(r"nowhere does not exist", refused("--images", tmp_path / "nowhere", *output))
    (tmp_path / "empty").mkdir()
    errors = refused("--images", tmp_path / "empty", *output)
    assert re.search(r"no images in .*empty: looked for \.jpg", errors)
    assert re.search(
        r"split file .*val\.txt does not exist", refused("--voc", toybox, "--split", "val", *output)
    )
    assert "--split goes with --voc" in refused("--images", pictures, "--split", "val", *output)
    assert "KEY VALUE goes with CONFIG" in refused("--images", pictures, "SEED", "1", *output)
    assert "--output is missing" in refused("--images", pictures)
    (tmp_path / "out.npz").touch()
    assert "out.npz exists: delete it" in refused("--images", pictures, *output)


def test_a_listed_image_that_is_missing_and_one_of_two_files(refused, tmp_path):
    root = tmp_path / "voc"
    (root / "JPEGImages").mkdir(parents=True)
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "ImageSets" / "Main" / "val.txt").write_text("x\n\ny\n")
    Image.new("RGB", (8, 8)).save(root / "JPEGImages" / "x.jpg")
    output = ("--output", tmp_path / "out.npz")
    errors = refused("--voc", root, "--split", "val", *output)
    assert re.search(r"split file .*val\.txt: image .*JPEGImages/y does not exist", errors)
    (root / "ImageSets" / "Main" / "val.txt").write_bytes("x\nbär\n".encode("latin-1"))
    assert re.search(r"val\.txt is not UTF-8", refused("--voc", root, "--split", "val", *output))
    Image.new("RGB", (8, 8)).save(root / "JPEGImages" / "x.png")
    assert "x.png have the same name x" in refused("--voc", root, *output)
