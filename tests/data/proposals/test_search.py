"""detector.data.proposals.search: what is in memory and on the disk while many images are searched."""

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from detector.data.images import read_image_size
from detector.data.proposals import load_proposals
from detector.data.proposals import search as module
from detector.data.proposals.grid import grid_boxes
from detector.utils.errors import UserError
from detector.utils.records import append_record
from detector.utils.workers import WorkerLost


@pytest.fixture
def images(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    return {str(index): tmp_path / "image.png" for index in range(40)}


WITHOUT_THREADS = """
import sys, threading
from detector.__main__ import main
import detector.data.proposals.search
if __name__ == "__main__":
    threading.stack_size(1 << 46)  # no thread gets so much
    sys.exit(main(sys.argv[1:]))
"""


def test_several_workers_end_where_no_thread_can_start(images, tmp_path):
    (tmp_path / "main.py").write_text(WITHOUT_THREADS)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    propose = ("propose", "--images", tmp_path, "--mode", "grid", "--output", tmp_path / "out.npz")
    words = [sys.executable, tmp_path / "main.py", *propose, "--workers", "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert len(load_proposals(tmp_path / "out.npz").image_ids) == 1


def lost(*_):
    raise WorkerLost
    yield


def without_memory(*_):
    raise RuntimeError("can't start new thread")
    yield


@pytest.mark.parametrize(("pool", "said"), [(lost, "killed"), (without_memory, "too little memory .*thread")])
def test_a_worker_that_ends_is_an_error_that_says_what_to_do(images, monkeypatch, pool, said):
    monkeypatch.setattr(module, "map_in_processes", pool)
    with pytest.raises(UserError, match=rf"{said}.* --workers than 2"):
        list(module.search_all(images, grid_boxes, False, 2))


def test_an_existing_output_is_left_alone(images, tmp_path):
    (tmp_path / "out.npz").write_bytes(b"another run's")
    with pytest.raises(FileExistsError, match=r"out\.npz exists"):
        module.propose(images, tmp_path / "out.npz", grid_boxes, {}, workers=1)
    assert (tmp_path / "out.npz").read_bytes() == b"another run's"


def test_damaged_records_of_a_journal_are_searched_again(images, tmp_path, caplog):
    parameters = {"mode": "grid", "apply_orientation": False}
    journal, (name, path) = tmp_path / "out.npz.partial", next(iter(images.items()))
    height, width = read_image_size(path)
    append_record(journal, {"parameters": parameters})
    only = np.array([[0, 0, 5, 7.5]], np.float32)
    append_record(journal, module.as_record(name, ((height, width), only)))
    sound = journal.read_bytes()
    module.propose(images, tmp_path / "out.npz", grid_boxes, {"mode": "grid"}, workers=1)
    np.testing.assert_array_equal(load_proposals(tmp_path / "out.npz")[name], only)  # not searched again
    assert not journal.exists()
    (tmp_path / "out.npz").unlink()
    journal.write_bytes(sound.replace(b'"boxes": "AAAA', b'"boxes": "BAAA'))
    module.propose(images, tmp_path / "out.npz", grid_boxes, {"mode": "grid"}, workers=1)
    assert len(load_proposals(tmp_path / "out.npz")[name]) > 1
    assert f"{journal}: line 4 is damaged" in caplog.text


def test_an_output_with_a_name_as_long_as_may_be(images, tmp_path, monkeypatch):
    output = tmp_path / f"{'x' * 251}.npz"
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_proposals", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            module.propose(images, output, grid_boxes, {"mode": "grid"}, workers=1)
    assert len(module._list_journals(output)) == 1
    module.propose(images, output, grid_boxes, {"mode": "grid"}, workers=1)
    assert set(load_proposals(output).image_ids) == set(images)
    assert module._list_journals(output) == []
