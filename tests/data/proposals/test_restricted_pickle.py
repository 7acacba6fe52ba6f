import collections
import contextlib
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from detector.data.proposals.restricted_pickle import load_pickle

ARRAYS = arrays_of.arrays(
    st.sampled_from(["<f4", "<f8", ">i2", "u1", "?", "<U3", "S3"]),
    arrays_of.array_shapes(min_dims=0, min_side=0),
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "content.pkl"


def written(path, content, protocol=pickle.DEFAULT_PROTOCOL):
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def assert_equal(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_equal(found[key], value)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        np.testing.assert_array_equal(found, expected)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


@given(ARRAYS, st.booleans(), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_arrays_in_containers(tmp_path_factory, array, fortran, protocol):
    array = np.asfortranarray(array) if fortran else array
    content = {
        "boxes": [array, array[..., :1] if array.ndim else array],
        "ids": (1, "b", 2.5, None),
        "cfg": b"x",
    }
    path = written(tmp_path_factory.mktemp("pickle") / "content.pkl", content, protocol)
    assert_equal(load_pickle(path), content)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numbers_of_numpy_sets_and_arrays_of_arrays(path, protocol):
    ragged = np.empty(2, object)
    ragged[:] = [np.zeros((3, 4), np.uint16), np.ones((1, 4), np.uint16)]
    content = [ragged, np.float32(0.5), np.int64(7), {1, 2}, collections.OrderedDict(a=1)]
    found = load_pickle(written(path, content, protocol))
    assert [each.tolist() for each in found[0]] == [each.tolist() for each in ragged]
    assert found[1:] == [0.5, 7, {1, 2}, {"a": 1}]


def test_a_pickle_of_python_2(path):
    """As Python 2 writes {"a": numpy.array([1, 2], "<i2")}: strings of bytes, and the old module."""
    path.write_bytes(
        b"\x80\x02}q\x01U\x01acnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85U\x01b"
        b"\x87R(K\x01K\x02\x85cnumpy\ndtype\nq\x04U\x02i2K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff"
        b"\xff\xffK\x00tb\x89U\x04\x01\x00\x02\x00tbs."
    )
    assert_equal(load_pickle(path), {"a": np.array([1, 2], "<i2")})


class Runs:
    """A pickle of it calls `function`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_hostile_pickle_is_refused_and_nothing_runs(path, tmp_path):
    mark = tmp_path / "ran"
    for content in (
        Runs(os.mkdir, str(mark)),
        [np.zeros(3), {"boxes": Runs(os.mkdir, str(mark))}],
        Runs(eval, f"__import__('os').mkdir({str(mark)!r})"),
        Runs(np.savetxt, str(mark), [1]),
        Runs(getattr, "", "join"),
        Runs(bytes, b"1"),
        Runs(np.load, str(mark)),
    ):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            written(path, content, protocol)
            with pytest.raises(ValueError, match=r"content\.pkl is damaged or of another format"):
                load_pickle(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        np.zeros(2, [("a", "i4")]),
        np.array(["2020-01-01"], "datetime64[D]"),
        np.float64,
        collections.Counter("a"),
        np.ma.array([1]),
        np.random.default_rng(0),
    ],
)
def test_what_is_neither_array_nor_container_is_refused(path, content):
    with pytest.raises(ValueError, match=r"content\.pkl is damaged or of another"):
        load_pickle(written(path, content))


def test_a_forged_array_is_refused(path):
    """A type of numbers that says it holds pointers, and a shape that reaches beyond the content."""
    whole = pickle.dumps(np.zeros((2, 4), np.float32), 2)
    for forged in (whole.replace(b"f4", b"O8"), whole.replace(b"K\x02K\x04\x86", b"K\x09K\x04\x86")):
        assert forged != whole
        path.write_bytes(forged)
        with pytest.raises(ValueError, match=r"content\.pkl is damaged or of another"):
            load_pickle(path)


def test_parts_within_parts_do_not_multiply(path):
    content = [np.zeros(1)]
    for _ in range(100):
        content = [content, content]
    found = load_pickle(written(path, content))
    assert found[0] is found[1]
    content = []
    content.append(content)
    with pytest.raises(ValueError, match="recursion"):
        load_pickle(written(path, content))


@given(st.binary(max_size=60), st.integers(0, 200))
def test_noise_and_broken_files_are_refused_or_read(tmp_path_factory, noise, end):
    path = tmp_path_factory.mktemp("noise") / "content.pkl"
    for content in (noise, pickle.dumps([np.arange(3)])[:end]):
        path.write_bytes(content)
        with contextlib.suppress(ValueError):  # and no other error
            load_pickle(path)
