"""`detector propose` in two processes: they share the images, and one of them writes the file."""

import shutil

import numpy as np
from distributed_cases import run_command_in_two_processes

from detector.commands.propose import make_proposals as propose
from detector.data.proposals import load_proposals
from detector.data.proposals.search import as_record
from detector.utils.records import append_record


def run_two(*words):
    return run_command_in_two_processes(["propose", *words, "--mode", "grid", "--workers", "1"])


def test_two_processes_write_the_file_of_one_and_resume_that_of_three(toybox, tmp_path):
    images = toybox / "JPEGImages"
    propose(images=images, output=tmp_path / "alone.npz", mode="grid", workers=1)
    sound = load_proposals(tmp_path / "alone.npz")
    journal_path = tmp_path / "out.npz.partial.2"  # of the third process of an earlier start
    append_record(journal_path, {"parameters": {"mode": "grid", "apply_orientation": True}})
    size, boxes = tuple(sound.sizes[0].tolist()), sound[sound.image_ids[0]][:1].numpy()
    append_record(journal_path, as_record(sound.image_ids[0], (size, boxes)))
    statuses, printed, errors = run_two("--images", images, "--output", tmp_path / "out.npz")
    assert statuses == [0, 0], errors
    assert printed.count("12 images, ") == 1
    found = load_proposals(tmp_path / "out.npz")
    assert found.image_ids == sound.image_ids
    assert len(found[found.image_ids[0]]) == 1  # the journal's, not searched again
    assert all(np.array_equal(found[each], sound[each]) for each in found.image_ids[1:])
    assert sorted(path.name for path in tmp_path.glob("*.npz*")) == ["alone.npz", "out.npz"]
    (tmp_path / "out.npz").unlink()
    assert run_two("--images", images, "--output", tmp_path / "out.npz")[0] == [0, 0]
    assert (tmp_path / "out.npz").read_bytes() == (tmp_path / "alone.npz").read_bytes()


def test_an_unreadable_image_is_named_once(toybox, tmp_path):
    images = tmp_path / "images"
    shutil.copytree(toybox / "JPEGImages", images)
    (images / "zz.jpg").write_bytes(b"not a picture")
    statuses, _, errors = run_two("--images", images, "--output", tmp_path / "out.npz")
    assert 0 not in statuses
    assert errors.count("1 of 13 images could not be read") == 1
    assert not (tmp_path / "out.npz").exists()
    assert len(list(tmp_path.glob("out.npz.partial*"))) == 2
