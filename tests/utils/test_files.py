"""detector.utils.files: whole or not at all."""

import os
import resource
import stat

import pytest

from detector.utils.files import atomic_write


@pytest.fixture
def small_disk():
    """Files of at most 64 KiB: what is written past that fails with OSError, as on a full disk."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limit[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def test_the_file_replaces_the_old_one_when_complete(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_write(path, "w") as file:
        file.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_and_then_its_folder_are_forced_to_the_disk(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr(os, "fsync", lambda number: forced.append(stat.S_ISDIR(os.fstat(number).st_mode)))
    with atomic_write(tmp_path / "a.txt", "w") as file:
        file.write("new")
    assert forced == [False, True]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interruption_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_and_stop():
        with atomic_write(path, "w") as file:
            file.write("new")
            raise error

    with pytest.raises(error):
        write_and_stop()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_path_and_leaves_the_old_file(tmp_path, small_disk):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match=r"cannot write .*a\.bin: File too large"), atomic_write(path) as file:
        file.write(bytes(100_000))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with (
        pytest.raises(OSError, match=r"cannot write .*nowhere/a: No such file"),
        atomic_write(tmp_path / "nowhere" / "a"),
    ):
        pass
