"""detector.utils.files: whole or not at all, and errors that name the file."""

import os
import resource
import stat
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from PIL import Image

from detector.utils.errors import DataError
from detector.utils.files import (
    archive_digest,
    atomic_write,
    encode_image,
    file_digest,
    inside,
    read_json,
    read_text,
    reading,
    relative_name,
    temporary_beside,
    write_new,
)


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


def test_no_file_of_the_user_is_the_temporary_one(tmp_path):
    path = tmp_path / "a.txt"
    others = [tmp_path / name for name in (".a.txt.tmp", "a.txt.tmp", ".detector-mine.tmp", ".a.txt.lock")]
    for other in others:
        other.write_text("precious")
    with atomic_write(path, "w") as file:
        file.write("new")
    assert [other.read_text() for other in others] == ["precious"] * len(others)
    assert (path.read_text(), len(list(tmp_path.iterdir()))) == ("new", 1 + len(others))


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    path, other = tmp_path / "a.txt", temporary_beside(tmp_path / "b.txt")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    temporary_beside(path).touch()
    temporary_beside(path).symlink_to(victim)
    (temporary_beside(path) / "folder").mkdir(parents=True)
    other.touch()  # another process may be writing it
    with atomic_write(path, "w") as file:
        file.write("new")
    assert sorted(tmp_path.iterdir()) == sorted([path, other, victim])
    assert victim.read_text() == "precious"


def test_a_name_of_255_bytes_is_written(tmp_path):
    path = tmp_path / ("a" * 251 + ".txt")
    with atomic_write(path, "w") as file:
        file.write("new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_written_again_keeps_its_permissions(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o600)
    with atomic_write(path, "w") as file:
        file.write("new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x"), RecursionError("x"), EOFError()])
def test_any_error_of_a_reader_names_the_file(tmp_path, error):
    path = tmp_path / "a.bin"
    path.write_bytes(b"")
    with pytest.raises(DataError, match=rf"^weights {path} is damaged"), reading(path, "weights"):
        raise error


def test_another_file_that_a_reader_misses_is_named(tmp_path):
    (tmp_path / "list").touch()
    with pytest.raises(FileNotFoundError, match=r"list: .*picture"), reading(tmp_path / "list"):
        (tmp_path / "picture").read_text()


def test_what_is_no_file_is_refused_before_it_is_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # opening it would block forever
    with pytest.raises(DataError, match="not a regular file"), reading(tmp_path / "pipe"):
        pass
    with pytest.raises(DataError, match="is a folder"), reading(tmp_path):
        pass
    with pytest.raises(FileNotFoundError, match=r"config file .*none does not exist"):
        read_text(tmp_path / "none", "config file")


def test_text_that_is_not_utf8_or_not_json_or_too_long_names_the_file(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=rf"{path} is not UTF-8 text \(line 1, byte 3 is 0xe9\)"):
        read_text(path)
    path.write_text("{")
    with pytest.raises(DataError, match=rf"{path} is damaged"):
        read_json(path)
    path.write_text("[1]")
    with pytest.raises(DataError, match=rf"{path}.* list, expected an object"):
        read_json(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match=rf"{path} is damaged"):
        read_json(path)
    with pytest.raises(DataError, match="expected at most 10"):
        read_text(path, limit=10)


OUTSIDE = [
    "/etc/passwd",
    "../a",
    "a/../../b",
    "..",
    "..\\a",
    "\\a",
    "C:\\a",
    "c:a",
    "",
    ".",
    "a\0b",
    "a\nb",
    "\ud800",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_nothing_is_written_outside_of_a_folder(tmp_path, name):
    with pytest.raises(DataError, match=f"outside of {tmp_path}: "):
        inside(tmp_path, name)
    with pytest.raises(DataError):
        relative_name(name)


def test_names_inside_of_a_folder(tmp_path):
    assert relative_name("./a//b c..d/é.jpg") == "a/b c..d/é.jpg"
    assert inside(tmp_path, "a/b.xml") == tmp_path / "a" / "b.xml"


def test_archives_are_told_apart_by_what_they_hold(tmp_path):
    for name, value in (("a.npz", 1), ("b.npz", 1), ("c.npz", 2)):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(zipfile.ZipInfo("x"), str(value))
    a, b, c = (archive_digest(tmp_path / f"{name}.npz") for name in "abc")
    assert a == b != c
    (tmp_path / "text").write_bytes(b"text")
    assert archive_digest(tmp_path / "text") == file_digest(tmp_path / "text") == sha256(b"text").hexdigest()


def test_a_short_write_of_a_picture_is_noticed(tmp_path):
    """Pillow writes to a file of its own in pieces, and ignores that a full disk takes only a part."""
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with pytest.raises(OSError, match=r"cannot write /dev/full: No space left"):
        write_new("/dev/full", encode_image(Image.new("RGB", (9, 9)), "jpeg"))


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        OSError("out of memory error when reading image file"),
    ],
)
def test_too_little_memory_is_no_damage_of_a_file(tmp_path, error):
    (tmp_path / "a").touch()
    with pytest.raises(MemoryError), reading(tmp_path / "a", "image"):
        raise error
