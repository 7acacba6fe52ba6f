"""detector.utils.folder_lock: one process at a time."""

import os
import signal
import subprocess
import sys

import pytest

from detector.utils.errors import UserError
from detector.utils.folder_lock import file_lock, folder_lock

HOLD = """
import sys
from detector.utils.folder_lock import folder_lock
with folder_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_who_holds_the_folder_and_a_kill_releases_it(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    try:
        with (
            pytest.raises(UserError, match=rf"{tmp_path} is in use by process {holder.pid} on "),
            folder_lock(tmp_path),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with folder_lock(tmp_path):
        pass


def test_a_disk_that_is_full_is_for_the_first_result_to_tell(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with folder_lock(tmp_path):
        pass


FORK = """
import os, sys, time
from detector.utils.folder_lock import folder_lock
with folder_lock(sys.argv[1]):
    child = os.fork()
    if child == 0:
        time.sleep(60)
    print(child, flush=True)
    time.sleep(60)
"""


def test_a_worker_that_survives_a_kill_does_not_hold_the_folder(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", FORK, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    child = int(holder.stdout.readline())
    try:
        holder.kill()
        holder.wait()
        with folder_lock(tmp_path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


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
    command = [
        sys.executable,
        "-c",
        HOLD.replace("with folder_lock", "with file_lock").replace("import folder", "import file"),
        str(path),
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        for _ in range(2):  # a process that was refused does not remove the lock
            with (
                pytest.raises(UserError, match=rf"out\.npz is being made by process {holder.pid} "),
                file_lock(path),
            ):
                pass
        with file_lock(tmp_path / "other.npz"):
            pass
        holder.stdin.close()
    assert list(tmp_path.iterdir()) == []
    with file_lock(path):
        pass


@pytest.mark.parametrize("content", [b"packages of my project\n", b"process of mine\n", b"\xff" * 2000])
def test_a_lock_file_of_another_program_is_refused_and_kept(tmp_path, content):
    (tmp_path / ".lock").write_bytes(content)
    with pytest.raises(UserError, match=rf"{tmp_path}/\.lock is no lock"), folder_lock(tmp_path):
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
