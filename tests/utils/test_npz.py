"""detector.utils.npz: what is read is what numpy saved, and nothing is allocated for what a header claims."""

import io
import os
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from detector.utils.errors import DataError
from detector.utils.files import reading
from detector.utils.npz import NpzReader, NpzWriter, StoredRows, read_npz

ARRAYS = arrays_of.arrays(
    st.sampled_from(["<f4", ">f8", "<i8", "?", "<U5"]), arrays_of.array_shapes(min_dims=0, min_side=0)
)


@given(ARRAYS, st.booleans(), st.booleans(), st.sampled_from(["a", "a_longer/name"]))
def test_what_numpy_saves_is_read(tmp_path_factory, array, fortran, compressed, name):
    path = tmp_path_factory.mktemp("npz") / "arrays.npz"
    array = np.asfortranarray(array) if fortran else array
    save = np.savez_compressed if compressed else np.savez
    save(path, before=np.zeros(3, np.int8), **{name: array})
    read = read_npz(path, "test")
    assert list(read) == ["before", name]
    np.testing.assert_array_equal(read[name], array)
    assert read[name].dtype == array.dtype
    if array.ndim:
        with reading(path), NpzReader(path) as file:
            rows = file.rows(name, array.dtype.kind, array.ndim)
        assert rows.shape == array.shape
        for part in (slice(0, len(array)), slice(1, 2), slice(2, 1)):
            np.testing.assert_array_equal(rows[part], array[part])


def test_rows_are_read_when_asked_for_and_a_pickle_holds_none(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(100_000).reshape(-1, 2))
    with NpzReader(path) as file:
        rows = file.rows("a", "i", 2)
    assert isinstance(rows, StoredRows)
    sent = pickle.dumps(rows)
    assert len(sent) < 1000
    assert pickle.loads(sent)[7:9].tolist() == [[14, 15], [16, 17]]
    os.truncate(path, path.stat().st_size // 2)  # a mapped file would end the process here
    with pytest.raises(DataError, match=r"a\.npz was truncated while it was in use"):
        rows[40_000:40_001]
    assert rows[7:8].tolist() == [[14, 15]]
    with pytest.raises(DataError, match=r"a\.npz was changed while it was in use"):
        pickle.loads(sent)


def test_each_flipped_bit_of_the_content_is_noticed(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(6, dtype=np.uint8))
    content = path.read_bytes()
    place = content.index(bytes(range(6)))
    for bit in range(48):
        damaged = bytearray(content)
        damaged[place + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz is damaged"):
            read_npz(path, "test")
        with pytest.raises(zipfile.BadZipFile), NpzReader(path) as file:
            file.verify("a")


def member(shape="(1,)", dtype="<f4", content=bytes(4)):
    """An .npy file that says what it is told to."""
    file = io.BytesIO()
    header = {"descr": np.lib.format.descr_to_dtype(dtype).str, "fortran_order": False, "shape": (1,)}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue().replace(b"(1,)", shape.encode()) + content


@pytest.mark.parametrize(
    "lying",
    [
        member("(2147483648,)"),
        member("(-1,)"),
        member("(-1, -1)"),
        member("(2,)"),
        member("()", content=b""),
        member("(4611686018427387905, 4)", content=bytes(16)),  # 2**64 + 4 values
        member("(1000000000000,)", "|S0", b""),
        member("1"),
        member("('a',)"),
    ],
)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_that_does_not_fit_the_content(tmp_path, lying, method):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a.npy", lying)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.npz"):
            read_npz(path, "test")
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as file:
        for _ in range(300):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(DataError, match=r"a\.npz: .*declare 314572800 bytes"):
        read_npz(path, "test")


def test_other_compression_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", member())
    with pytest.raises(DataError, match="compressed by method 14"):
        read_npz(tmp_path / "a.npz", "test")


def test_fields_say_what_the_arrays_must_be(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros((2, 3)), b=np.zeros(1))
    assert list(read_npz(path, "test", {"a": ("f", 2)})) == ["a"]
    for name, field in {"a": ("f", 1), "b": ("i", 1), "c": ("f", 1)}.items():
        with pytest.raises(DataError, match=rf"a\.npz.* {name}"):
            read_npz(path, "test", {name: field})


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
    with pytest.raises(DataError, match=r"objects\.npz: a holds Python objects"):
        read_npz(tmp_path / "objects.npz", "test")
