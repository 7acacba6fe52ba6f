import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from detector.utils.npz import NpzWriter, map_array

ARRAYS = arrays_of.arrays(
    st.sampled_from(["<f4", ">f8", "<i8", "?", "<U5"]), arrays_of.array_shapes(min_dims=0, min_side=0)
)


@given(ARRAYS, st.booleans(), st.sampled_from(["a", "a_longer_name"]))
def test_what_numpy_saves_is_mapped(tmp_path_factory, array, fortran, name):
    path = tmp_path_factory.mktemp("npz") / "arrays.npz"
    array = np.asfortranarray(array) if fortran else array
    np.savez(path, before=np.zeros(3, np.int8), **{name: array})
    mapped = map_array(path, name)
    np.testing.assert_array_equal(mapped, array)
    assert mapped.dtype == array.dtype
    assert not mapped.flags.writeable or array.size == 0


def test_pieces_are_written_as_one_array(tmp_path):
    whole = np.arange(12, dtype="<f4").reshape(6, 2)
    for name in ("one.npz", "other.npz"):
        with open(tmp_path / name, "wb") as file, NpzWriter(file) as writer:
            writer.add("ids", np.array(["a", "b"]))
            writer.add_pieces("whole", [whole[:1], whole[1:1], whole[1:]], whole.shape, "<f4")
    with np.load(tmp_path / "one.npz") as file:
        assert list(file) == ["ids", "whole"]
        np.testing.assert_array_equal(file["whole"], whole)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "other.npz").read_bytes()


def test_python_objects_are_refused(tmp_path):
    np.savez(tmp_path / "objects.npz", a=np.array([{}], object))
    with pytest.raises(ValueError, match="a holds Python objects"):
        map_array(tmp_path / "objects.npz", "a")
    with pytest.raises(KeyError, match="b"):
        map_array(tmp_path / "objects.npz", "b")
