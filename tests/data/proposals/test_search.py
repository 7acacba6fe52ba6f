"""detector.data.proposals.search: what is in memory and on the disk while many images are searched."""

import resource
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from detector.data.proposals import search as module
from detector.data.proposals.grid import grid_boxes
from detector.data.proposals.journal import Journal
from detector.utils.errors import UserError


class Threads(ThreadPoolExecutor):
    """Stands for the pool of processes."""

    def __init__(self, workers, *_, **__):
        super().__init__(workers)


@pytest.fixture
def images(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png")
    return {str(index): tmp_path / "image.png" for index in range(40)}


def test_no_more_images_are_searched_than_the_caller_takes(images, monkeypatch):
    begun = []
    monkeypatch.setattr(module, "ProcessPoolExecutor", Threads)
    monkeypatch.setattr(module, "search", lambda image_id, *_: (begun.append(image_id), (image_id, "no"))[1])
    results = module.search_all(images, grid_boxes, False, 2)
    taken = [next(results) for _ in range(3)]
    assert len(begun) <= 3 + 2 * 2
    taken += results
    assert sorted(image_id for image_id, _ in taken) == sorted(images)


def test_a_worker_that_is_killed_is_an_error_that_says_what_to_do(images, monkeypatch):
    def killed(*_):
        raise BrokenProcessPool

    monkeypatch.setattr(module, "ProcessPoolExecutor", Threads)
    monkeypatch.setattr(module, "search", killed)
    with pytest.raises(UserError, match=r"killed.* --workers than 2"):
        list(module.search_all(images, grid_boxes, False, 2))


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
        assert set(journal.read()) == {"a"}
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
