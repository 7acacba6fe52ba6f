"""detector.utils.folder_lock: one process at a time."""

import os
import signal
import sys
import time
from contextlib import contextmanager

import pytest

from detector.utils.errors import UserError
from detector.utils.folder_lock import file_lock, folder_lock


@contextmanager
def holder(lock, path, work=lambda: None):
    """Another process that holds a lock until the block ends; its number. `work` runs in it with the lock."""
    ready, said = os.pipe()
    until, end = os.pipe()
    process = os.fork()  # starting Python anew would import torch
    if process == 0:
        try:
            os.close(end)
            with lock(path):
                work()
                os.write(said, b"held")
                os.read(until, 1)
        finally:
            os._exit(1)
    os.close(said)
    os.close(until)
    try:
        assert os.read(ready, 4) == b"held"
        yield process
    finally:
        os.close(end)
        os.waitpid(process, 0)
        os.close(ready)


def test_a_second_process_is_told_who_holds_the_folder_and_a_kill_releases_it(tmp_path):
    with holder(folder_lock, tmp_path) as process:
        with (
            pytest.raises(UserError, match=rf"{tmp_path} is in use by process {process} on "),
            folder_lock(tmp_path),
        ):
            pass
        os.kill(process, signal.SIGKILL)
    with folder_lock(tmp_path):
        pass


def test_a_disk_that_is_full_is_for_the_first_result_to_tell(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with folder_lock(tmp_path):
        pass


def test_a_worker_that_survives_a_kill_does_not_hold_the_folder(tmp_path):
    ready, said = os.pipe()

    def start_worker():
        worker = os.fork()
        if worker == 0:
            time.sleep(60)
            os._exit(0)
        os.write(said, str(worker).encode())

    with holder(folder_lock, tmp_path, start_worker) as process:
        worker = int(os.read(ready, 20))
        os.kill(process, signal.SIGKILL)
    try:
        with folder_lock(tmp_path):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)
        os.close(ready)
        os.close(said)


def test_a_file_in_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "found").touch()
    for folder in ("found", "found/inside", "found/deep/inside"):
        with (
            pytest.raises(UserError, match=r"found is a file, expected a folder"),
            folder_lock(tmp_path / folder),
        ):
            pass


def test_the_lock_is_free_and_its_file_removed_after_the_block(tmp_path):
    (tmp_path / "there").mkdir()
    for _ in range(2):
        with folder_lock(tmp_path / "there"):
            assert (tmp_path / "there" / ".lock").read_text().startswith("process ")
        assert not list((tmp_path / "there").iterdir())
    with pytest.raises(KeyError), folder_lock(tmp_path / "there"):
        raise KeyError
    assert not list((tmp_path / "there").iterdir())


def test_a_folder_that_was_made_for_nothing_is_removed(tmp_path):
    with pytest.raises(KeyError), folder_lock(tmp_path / "runs" / "new"):
        raise KeyError
    assert not list(tmp_path.iterdir())
    with folder_lock(tmp_path / "runs" / "new"):
        (tmp_path / "runs" / "result").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "result"]


def test_a_file_is_locked_apart_from_its_folder_and_nothing_is_left_behind(tmp_path):
    path = tmp_path / "out.npz"
    with holder(file_lock, path) as process:
        for _ in range(2):  # a process that was refused does not remove the lock
            with (
                pytest.raises(UserError, match=rf"out\.npz is being made by process {process} "),
                file_lock(path),
            ):
                pass
        with file_lock(tmp_path / "other.npz"):
            pass
    assert list(tmp_path.iterdir()) == []
    with file_lock(path):
        pass


@pytest.mark.parametrize("content", [b"packages of my project\n", b"process of mine\n", b"\xff" * 2000])
def test_a_lock_file_of_another_program_is_refused_and_kept(tmp_path, content):
    (tmp_path / ".lock").write_bytes(content)
    with pytest.raises(UserError, match=rf"{tmp_path}/\.lock was not written"), folder_lock(tmp_path):
        pass
    assert (tmp_path / ".lock").read_bytes() == content


def test_the_lock_of_a_folder_that_replaced_this_one_is_kept(tmp_path):
    folder = tmp_path / "run"
    with folder_lock(folder):
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        (folder / ".lock").write_text("process 1 on another\n")
    assert (folder / ".lock").exists()


def test_a_command_whose_names_are_not_utf8_holds_a_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["detector", os.fsdecode(b"caf\xe9")])
    with folder_lock(tmp_path):
        assert b"caf\xe9" in (tmp_path / ".lock").read_bytes()


@pytest.mark.parametrize("length", [240, 250, 255])
def test_a_file_with_a_name_as_long_as_may_be_is_locked(tmp_path, length):
    path = tmp_path / ("ä" * (length // 2 - 2) + "x" * (length % 2) + ".npz")
    with file_lock(path):
        assert len(list(tmp_path.iterdir())) == 1
        path.write_bytes(b"")
    assert list(tmp_path.iterdir()) == [path]
