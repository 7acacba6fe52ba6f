"""Damaged proposals of every format: what was written, or an error that names the file; nothing else."""

import io
import pickle
import random
import struct

import numpy as np
import pytest

from detector.data.proposals import load_proposals, save_proposals
from detector.data.proposals.foreign import READERS
from detector.data.proposals.matlab import load_mat
from detector.utils.errors import DataError

VARIANTS = 220


def image_boxes(seed):
    corners = np.random.default_rng(seed).uniform(0, 100, (20, 2, 2))
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).astype(np.float32)


IDS = [f"{index:06d}" for index in range(5)]
BOXES = [image_boxes(index) for index in range(5)]


def cells(arrays):
    column = np.empty(len(arrays), object)
    column[:] = arrays
    return column


def write_ours(path):
    save_proposals(path, IDS, BOXES, [(100, 100)] * 5)


def write_npz(path):
    np.savez(path, **dict(zip(IDS, BOXES, strict=True)))


def write_compressed_npz(path):
    np.savez_compressed(path, **dict(zip(IDS, BOXES, strict=True)))


def write_mat(path, compressed=False):
    content = {"boxes": cells([each.astype(np.float64) for each in BOXES]), "images": cells(IDS)}
    pytest.importorskip("scipy.io").savemat(path, content, do_compression=compressed)


def write_compressed_mat(path):
    write_mat(path, compressed=True)


def write_pickle(path, protocol=2):
    scores = [np.linspace(1, 0, 20) for _ in IDS]
    path.write_bytes(pickle.dumps({"boxes": BOXES, "ids": IDS, "scores": scores}, protocol))


def write_pickle_of_lists(path):
    path.write_bytes(pickle.dumps({"boxes": [each.tolist() for each in BOXES], "ids": IDS}, 4))


# How to write a file, to read it, and whether the format has checksums, so that no change goes unnoticed.
FORMATS = {
    "ours": (write_ours, "npz", True),
    "npz": (write_npz, "npz", True),
    "npz compressed": (write_compressed_npz, "npz", True),
    "mat": (write_mat, "selective_search", False),
    "mat compressed": (write_compressed_mat, "selective_search", False),  # its header has none
    "pickle": (write_pickle, "detectron", False),
    "pickle of lists": (write_pickle_of_lists, "detectron2", False),
}


def damaged(content, generator):
    """The content with some bits flipped, a part missing, a part twice, or a length or a name changed."""
    content, kind = bytearray(content), generator.randrange(6)
    place = generator.randrange(len(content))
    if kind == 0:
        del content[place:]
    elif kind == 1:
        for _ in range(generator.randint(1, 8)):
            content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    elif kind == 2:
        place = generator.randrange(min(600, len(content)))  # of the header
        content[place] = generator.randrange(256)
    elif kind == 3:
        place = generator.randrange(max(1, len(content) - 400), len(content))  # of the zip's directory
        content[place] = generator.randrange(256)
    elif kind == 4:
        content[place : place + 4] = struct.pack("<I", generator.choice([0, 2**16, 2**31 - 1, 2**32 - 1]))
    else:
        del content[place : place + generator.randint(1, 64)]
    return bytes(content)


def read(reader, path):
    """What the reader finds and None, or None and the message of its error."""
    try:
        return reader(path), None
    except DataError as error:
        return None, str(error)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_file_loads_as_it_was_or_is_one_named_error(tmp_path, form):
    write, reader, has_checksums = FORMATS[form]
    path = tmp_path / "file"
    write(path if "npz" not in form else path.with_suffix(".npz"))
    path = next(tmp_path.iterdir())
    content, generator = path.read_bytes(), random.Random(0)
    whole = READERS[reader](path)
    refused = 0
    for variant in range(VARIANTS):
        path.write_bytes(damaged(content, generator))
        found, message = read(READERS[reader], path)
        if found is None:
            assert str(path) in message, variant
            assert "\n" not in message
            refused += 1
        else:
            assert all(each.dtype == np.float32 and each.shape[1:] == (4,) for each in found.boxes)
            if has_checksums:
                # zipfile skips entries of a damaged directory; fit_proposals reports missing images.
                for image_id, boxes in zip(found.image_ids, found.boxes, strict=True):
                    np.testing.assert_array_equal(boxes, whole.boxes[whole.image_ids.index(image_id)])
    assert refused > VARIANTS / 4


def test_our_file_is_verified_by_the_loader_of_training_too(tmp_path):
    path, generator, refused = tmp_path / "proposals.npz", random.Random(1), 0
    write_ours(path)
    content = path.read_bytes()
    for variant in range(VARIANTS):
        path.write_bytes(damaged(content, generator))
        found, message = read(lambda path: dict(load_proposals(path)), path)
        if found is None:
            assert str(path) in message, variant
            refused += 1
        else:
            assert list(found) == IDS
            for one, other in zip(found.values(), BOXES, strict=True):
                np.testing.assert_array_equal(one, other)
    assert refused > VARIANTS / 4


def mat(*variables):
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(variables)


def element(kind, content):
    return struct.pack("<2I", kind, len(content)) + content + bytes(-len(content) % 8)


def variable(kind, shape, *content):
    header = element(6, struct.pack("<2I", kind, 0)) + element(5, struct.pack("<2i", *shape))
    return element(14, header + element(1, b"boxes") + b"".join(content))


@pytest.mark.parametrize(
    "content",
    [
        mat(variable(1, (2**30, 1))),  # a billion cells
        mat(variable(6, (2**30, 4), element(9, bytes(32)))),
        mat(variable(6, (2**31 - 1, 2**31 - 1), element(9, bytes(32)))),
        mat(variable(6, (-1, -4), element(9, bytes(32)))),
        mat(variable(2, (1, 1))),  # a struct
        mat(variable(4, (1, 4), element(16, b"four"))),
        mat(struct.pack("<2I", 15, 2**31 - 1)),
        mat(struct.pack("<2I", 14, 2**32 - 1)),
    ],
)
def test_a_mat_file_that_declares_what_it_does_not_hold(tmp_path, content):
    path = tmp_path / "a.mat"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.mat"):
        READERS["selective_search"](path)


@pytest.mark.parametrize("compressed", [False, True])
def test_mat_files_are_read_as_scipy_reads_them(tmp_path, compressed):
    scipy_io = pytest.importorskip("scipy.io")
    content = {
        "a": np.arange(12, dtype=np.uint16).reshape(3, 4),
        "b": np.array([[1.5, -2]]),
        "c": cells(["name", np.zeros((0, 0)), np.arange(3.0)[None], "\u00e7"]),
        "skipped": {"a": 1},
    }
    file = io.BytesIO()
    scipy_io.savemat(file, content, do_compression=compressed)
    (tmp_path / "a.mat").write_bytes(file.getvalue())
    found, expected = load_mat(tmp_path / "a.mat", ("a", "b", "c")), scipy_io.loadmat(file)
    for name in "ab":
        np.testing.assert_array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype
    assert found["c"].shape == expected["c"].shape
    assert [found["c"].ravel()[i] for i in (0, 3)] == ["name", "\u00e7"]
    np.testing.assert_array_equal(found["c"].ravel()[2], expected["c"].ravel()[2])
