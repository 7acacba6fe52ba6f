"""detector.data.proposals.search: what is in memory and on the disk while many images are searched."""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from PIL import Image

from detector.data.images import read_image_size
from detector.data.proposals import load_proposals
from detector.data.proposals import search as module
from detector.data.proposals.grid import grid_boxes
from detector.utils.errors import UserError
from detector.utils.records import append_record


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
