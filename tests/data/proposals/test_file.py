import io
import os
import pickle

import numpy as np
import pytest
import torch
from sized_images import SizedImages as Images

from detector.data.proposals import Proposals, load_proposals, save_proposals
from detector.utils.errors import DataError

BOXES = [np.array([[0, 0, 6, 4], [1.5, 1, 3, 2]], np.float32), np.zeros((0, 4), np.float32), [[2, 3, 2, 9]]]
SIZES = [(4, 6), (5, 5), (9, 8)]  # height, width
IDS = ["a", "sub/b", "ç"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "proposals.npz"
    save_proposals(path, IDS, BOXES, SIZES)
    return path


def respoil(path, **changes):
    """Rewrites the file with some arrays replaced, or left out where None, as the checksums are."""
    with np.load(path) as file:
        arrays = {**file, "checksums": None, **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def test_what_is_saved_is_loaded(path):
    proposals = load_proposals(path)
    assert list(proposals) == IDS
    assert len(proposals) == 3
    assert "a" in proposals
    assert "b" not in proposals
    for image_id, boxes in zip(IDS, BOXES, strict=True):
        assert proposals[image_id].dtype == torch.float32
        assert torch.equal(proposals[image_id], torch.as_tensor(boxes).reshape(-1, 4))
    assert proposals.sizes.tolist() == [list(size) for size in SIZES]


def test_the_file_holds_plain_arrays_of_the_documented_types(path):
    with np.load(path, allow_pickle=False) as file:
        kinds = {name: (file[name].dtype.kind, file[name].dtype.itemsize, file[name].shape) for name in file}
    kinds["image_ids"] = kinds["image_ids"][::2]
    assert kinds == {
        "image_ids": ("U", (3,)),
        "counts": ("i", 8, (3,)),
        "boxes": ("f", 4, (3, 4)),
        "sizes": ("i", 8, (3, 2)),
        "checksums": ("u", 4, (3,)),
    }


def test_the_same_proposals_make_the_same_bytes(path, tmp_path):
    save_proposals(tmp_path / "again.npz", IDS, [torch.as_tensor(boxes) for boxes in BOXES], SIZES)
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()


def test_no_images_at_all(tmp_path):
    save_proposals(tmp_path / "none.npz", [], [], [])
    assert len(load_proposals(tmp_path / "none.npz")) == 0


def test_the_proposals_survive_a_worker_process(path):
    proposals = pickle.loads(pickle.dumps(load_proposals(path)))
    assert torch.equal(proposals["a"], torch.as_tensor(BOXES[0]))


MANY = np.tile(np.array([[0, 0, 6, 4]], np.float32), (10_000, 1))


@pytest.fixture
def many(tmp_path):
    save_proposals(tmp_path / "many.npz", ["a", "b"], [MANY, MANY], [(4, 6), (4, 6)])
    return tmp_path / "many.npz"


def test_boxes_stay_in_the_file_and_a_worker_opens_it_itself(many):
    path = many
    pickled = pickle.dumps(load_proposals(path))
    assert len(pickled) < 2000  # of 160 kB of boxes
    copy = pickle.loads(pickled)["a"]
    assert len(copy) == 10_000
    copy.zero_()  # its own memory: the file is as it was
    assert pickle.loads(pickled)["a"].sum() == 100_000
    save_proposals(path, ["a", "b"], [MANY / 2, MANY], [(4, 6), (4, 6)])
    with pytest.raises(DataError, match=r"many\.npz: .*was changed while it was in use"):
        pickle.loads(pickled)["a"]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_of_numpy_itself_are_read(path, save):
    with np.load(path) as file:
        arrays = dict(file)
    save(path, **arrays)
    assert torch.equal(load_proposals(path)["a"], torch.as_tensor(BOXES[0]))


def find(path, array):
    """Where the bytes of an array begin in a file."""
    return path.read_bytes().index(np.asarray(array).tobytes())


def flip(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_damaged_boxes_are_an_error_of_their_image_alone(many):
    flip(many, find(many, MANY) + 16 * 10_000 + 8)  # the lowest bit of a coordinate of the second image
    proposals = load_proposals(many)
    assert len(proposals["a"]) == 10_000
    with pytest.raises(DataError, match=r"many\.npz: the boxes of image 'b' .*checksum.*detector propose"):
        proposals["b"]


@pytest.mark.parametrize("array", [np.array([2, 0, 1]), np.array(SIZES), np.array(IDS)])
def test_damage_to_the_small_arrays_is_an_error_on_load(path, array):
    flip(path, find(path, array), 2)
    with pytest.raises(DataError, match=r"proposals\.npz is damaged.*detector propose"):
        load_proposals(path)


def test_a_file_of_an_earlier_version_is_verified_whole_on_load(path):
    respoil(path)  # without checksums
    assert torch.equal(load_proposals(path)["a"], torch.as_tensor(BOXES[0]))
    flip(path, find(path, np.asarray(BOXES[0], np.float32)) + 8)
    with pytest.raises(DataError, match=r"proposals\.npz is damaged.*boxes"):
        load_proposals(path)


def test_a_file_that_is_truncated_while_it_is_read_is_an_error(many):
    proposals = load_proposals(many)
    os.truncate(many, 200_000)
    assert len(proposals["a"]) == 10_000
    with pytest.raises(DataError, match=r"many\.npz was truncated while it was in use"):
        proposals["b"]


def test_counts_that_overflow_are_an_error(path):
    respoil(path, counts=np.array([2**63 - 1, 2**63 - 1, 5]))  # adds up to 3
    with pytest.raises(DataError, match=r"proposals\.npz: counts"):
        load_proposals(path)


def test_a_bad_save_leaves_the_earlier_file(path):
    before = path.read_bytes()
    with pytest.raises(ValueError, match="'a' has the box"):
        save_proposals(path, ["a"], [[[0, 0, 7, 4]]], [(4, 6)])
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_check_passes_a_data_set_that_is_a_part(path):
    load_proposals(path).check(Images({"ç": (9, 8), "a": (4, 6)}))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"a": (4, 6), "z": (4, 6)}, r"no proposals for 1 of 2 images, the first is 'z'; .*detector propose"),
        (
            {"ç": (9, 8), "a": (6, 4)},
            r"'a' of \(height, width\) \(4, 6\), but it is \(6, 4\); .*detector propose",
        ),
        ({"a": (4, 7)}, r"'a' of \(height, width\) \(4, 6\), but it is \(4, 7\); .*detector propose"),
    ],
)
def test_check_names_the_image_that_does_not_fit_and_the_tool(path, sizes, message):
    with pytest.raises(ValueError, match=message):
        load_proposals(path).check(Images(sizes))


def test_check_warns_once_of_images_without_proposals(path):
    proposals = load_proposals(path)
    with pytest.warns(UserWarning, match="1 image has no proposals, the first is 'sub/b'") as warned:
        proposals.check(Images(dict(zip(IDS, SIZES, strict=True))))
    assert len(warned) == 1
    assert proposals["sub/b"].shape == (0, 4)


@pytest.mark.parametrize(
    ("box", "why"),
    [
        ([0, 0, np.nan, 2], "nan"),
        ([0, 0, np.inf, 2], "inf"),
        ([3, 0, 2, 2], "x1 <= x2"),
        ([0, 3, 2, 2], "y1 <= y2"),
        ([-1, 0, 2, 2], "0 <= x1"),
        ([0, 0, 8.5, 2], "x2 <= 8"),
        ([0, 0, 2, 9.5], "y2 <= 9"),
    ],
)
def test_a_bad_box_is_named_with_its_image(path, box, why):
    with np.load(path) as file:
        boxes = file["boxes"].copy()
    boxes[2] = box
    respoil(path, boxes=boxes)
    proposals = load_proposals(path)
    message = rf"proposals\.npz: image 'ç' has the box .*{why}.*"
    with pytest.raises(ValueError, match=message):
        proposals["ç"]
    with pytest.raises(ValueError, match=message):  # a run is stopped before it starts
        proposals.check(Images({"a": (4, 6), "ç": (9, 8)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"counts": np.array([2, 1, 1])}, "add up to the number of boxes, 3; they add up to 4"),
        ({"counts": np.array([3, -1, 1])}, "must not be negative"),
        ({"counts": np.array([2, 1])}, "3 image ids need as many counts and sizes; found 2 counts"),
        ({"sizes": np.array([[4, 6]])}, r"sizes \(1, 2\)"),
        ({"boxes": np.zeros((3, 5), np.float32)}, r"boxes \(3, 5\)"),
        ({"boxes": np.zeros(12, np.float32)}, r"boxes must have 2 dimensions.*float32 \(12,\)"),
        ({"counts": np.array([2.0, 0.0, 1.0])}, "counts must have 1 dimensions of kind 'i', not float64"),
        ({"image_ids": np.array(["a", "b", "a"])}, "the image 'a' is there more than once"),
        ({"sizes": None}, "no array sizes; it has image_ids.*detector propose"),
        (
            {"image_ids": np.array(["a", "b", "c"], object)},
            "Object arrays cannot be loaded when allow_pickle=False",
        ),
    ],
)
def test_arrays_that_contradict_each_other(path, changes, message):
    respoil(path, **changes)
    with pytest.raises(ValueError, match=message):
        load_proposals(path)


def array_bytes():
    np.save(file := io.BytesIO(), np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken off", array_bytes(), None])
def test_a_file_of_another_kind_or_cut_off(path, content):
    path.write_bytes(path.read_bytes()[:-200] if content is None else content)
    with pytest.raises(ValueError, match=r"proposals\.npz is damaged or of another format.*detector propose"):
        load_proposals(path)


def test_no_file_says_how_to_make_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no proposals at .*none\.npz.*detector propose"):
        load_proposals(tmp_path / "none.npz")


def test_proposals_can_be_made_from_arrays():
    proposals = Proposals(["x"], np.array([1]), np.array([[0, 0, 1, 1]]), np.array([[2, 2]]), source="here")
    assert proposals["x"].tolist() == [[0, 0, 1, 1]]
