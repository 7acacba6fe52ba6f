"""detector.utils.npz: damage and wrong arrays are errors that name the file and the array."""

import numpy as np
import pytest

from detector.utils.errors import DataError
from detector.utils.npz import Pieces, open_npz, pick, write_npz


def read(path, fields):
    with open_npz(path, "test") as file:
        return pick(file, fields)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_each_flipped_bit_of_an_array_is_an_error(tmp_path, save):
    path, array = tmp_path / "a.npz", np.arange(6, dtype=np.uint8)
    save(path, **{"sub/a": array})
    np.testing.assert_array_equal(read(path, {"sub/a": ("u", 1)})["sub/a"], array)
    content = path.read_bytes()
    start = content.index(bytes(range(6))) if save is np.savez else 60
    for bit in range(48):
        damaged = bytearray(content)
        damaged[start + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz is damaged"):
            read(path, {"sub/a": ("u", 1)})


@pytest.mark.parametrize(
    ("name", "field", "message"),
    [
        ("a", ("f", 1), r"a must have 1 dimensions of kind 'f', not float64 \(2, 3\)"),
        ("b", ("i", 1), "b must have 1 dimensions of kind 'i', not float64"),
        ("c", ("f", 1), "no array c; it has a, b, objects"),
        ("objects", ("O", 1), "Object arrays cannot be loaded"),
    ],
)
def test_an_array_of_another_kind_is_named(tmp_path, name, field, message):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros((2, 3)), b=np.zeros(1), objects=np.array([{}], object))
    with pytest.raises(DataError, match=rf"a\.npz.*{message}"):
        read(path, {name: field})


def test_an_array_that_is_larger_than_the_file_is_an_error(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(1, np.float32))
    # The header has spaces at its end, so that a longer shape takes their place.
    path.write_bytes(path.read_bytes().replace(b"(1,), }" + b" " * 13, b"(70368744177664,), }"))
    with pytest.raises(DataError, match=r"a\.npz is damaged"):
        read(path, {"a": ("f", 1)})


@pytest.mark.parametrize("shape", [(7, 4), (0, 4), (7,)])
def test_pieces_give_the_bytes_of_numpy_itself(tmp_path, shape):
    array, names = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), np.array(["a", "bc"])
    np.savez(tmp_path / "whole.npz", names=names, values=array)
    with open(tmp_path / "pieces.npz", "wb") as file:
        pieces = Pieces(shape, array.dtype, (array[i : i + 3] for i in range(0, len(array), 3)))
        write_npz(file, {"names": names, "values": pieces})
    assert (tmp_path / "pieces.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_too_few_pieces_are_an_error(tmp_path):
    with open(tmp_path / "a.npz", "wb") as file, pytest.raises(ValueError, match=r"values .*\(3, 2\)"):
        write_npz(file, {"values": Pieces((3, 2), np.dtype(float), [np.zeros((2, 2))])})
