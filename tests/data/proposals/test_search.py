"""detector.data.proposals.search: what is in memory and on the disk while many images are searched."""

import os
import re
import resource
import signal
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from detector.data.proposals import search as module
from detector.data.proposals.grid import grid_boxes
from detector.data.proposals.journal import Journal
from detector.utils.errors import UserError, worker_failure


@pytest.fixture
def images(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    return {str(index): tmp_path / "image.png" for index in range(40)}


def last_words(image):
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_results_of_two_workers_are_those_of_one(images):
    results = [dict(module.search_all(images, grid_boxes, False, workers)) for workers in (1, 2)]
    assert set(results[0]) == set(results[1]) == set(images)
    for image_id in images:
        (size, boxes), (other_size, other_boxes) = (found[image_id] for found in results)
        assert size == other_size == (8, 8)
        np.testing.assert_array_equal(boxes, other_boxes)


def test_a_worker_that_is_killed_is_an_error_that_says_what_to_do(images):
    with pytest.raises((UserError, RuntimeError)) as caught:  # torch's signal handler may be the first
        list(module.search_all(images, last_words, False, 2))
    failure = caught.value if isinstance(caught.value, UserError) else worker_failure(caught.value)
    assert re.search(r"has died .*--workers\) lower", str(failure))


def test_an_existing_output_is_left_alone(images, tmp_path):
    (tmp_path / "out.npz").write_bytes(b"another run's")
    with pytest.raises(FileExistsError, match=r"out\.npz exists"):
        module.propose(images, tmp_path / "out.npz", grid_boxes, {}, workers=1)
    assert (tmp_path / "out.npz").read_bytes() == b"another run's"


def test_a_full_disk_is_an_error_that_names_the_journal_which_stays_usable(tmp_path):
    boxes = np.arange(4000, dtype=np.float32).reshape(-1, 4)
    path = tmp_path / "out.npz.partial"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(Journal(path, {})) as journal:
        journal.add("a", ((9, 8), boxes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, limits[1]))
        try:
            with pytest.raises(OSError, match=r"cannot write .*out\.npz\.partial: "):
                journal.add("b", ((9, 8), boxes))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with closing(Journal(path, {})) as journal:
        assert journal.ids() == {"a"}
        journal.add("b", ((9, 8), boxes))
    with closing(Journal(path, {})) as journal:
        size, found = journal.read()["b"]
        assert size == (9, 8)
        np.testing.assert_array_equal(found, boxes)
    path.write_bytes(path.read_bytes().replace(boxes[5:7].tobytes(), boxes[6:8].tobytes()))
    with (
        closing(Journal(path, {})) as journal,
        pytest.raises(
            UserError, match=r"out\.npz\.partial is damaged .*checksum of image 'a' is wrong.*delete"
        ),
    ):
        journal.read()
