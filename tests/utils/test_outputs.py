"""detector.utils.outputs: what a command did not make is neither replaced nor deleted."""

import json
import os

import pytest

from detector.utils.errors import UserError
from detector.utils.files import file_digest
from detector.utils.outputs import RECORD, OutputFolder


def test_its_own_files_are_replaced_and_removed(tmp_path):
    first = OutputFolder(tmp_path, "key")
    first.write("pictures/a.png", b"one")
    first.write("pictures/b.png", b"two")
    first.write("other.txt", b"three")
    again = OutputFolder(tmp_path, "key")
    again.write("pictures/a.png", b"another version")
    again.remove_earlier("pictures")
    assert sorted(path.name for path in tmp_path.rglob("*.*") if path.name != RECORD) == [
        "a.png",
        "other.txt",
    ]
    assert (tmp_path / "pictures" / "a.png").read_bytes() == b"another version"
    OutputFolder(tmp_path, "key").check(["pictures/a.png", "other.txt"])


@pytest.mark.parametrize(
    "way", ["never listed", "another key", "changed since", "link", "folder", "dead link"]
)
def test_the_files_of_others_are_refused_and_kept(tmp_path, way):
    outputs, path = OutputFolder(tmp_path, "key"), tmp_path / "a.txt"
    outputs.write("b.txt", b"ours")
    if way == "another key":
        OutputFolder(tmp_path, "another").write("a.txt", b"theirs")
    elif way == "folder":
        path.mkdir()
    elif way == "dead link":
        path.symlink_to(tmp_path / "nowhere")
    elif way == "link":
        outputs.write("a.txt", b"ours")
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
    else:
        if way == "changed since":
            outputs.write("a.txt", b"ours")
        path.write_bytes(b"theirs")
    before = os.lstat(path)
    again = OutputFolder(tmp_path, "key")
    for action in (again.check, lambda names: again.write(names[0], b"new")):
        with pytest.raises(UserError, match=r"a\.txt exists and is not what this command wrote"):
            action(["a.txt"])
    again.remove_earlier(".")
    assert os.lstat(path).st_ino == before.st_ino
    assert way in ("folder", "dead link") or path.read_bytes() in (b"theirs", b"ours")


def test_a_file_that_was_edited_is_not_removed(tmp_path):
    OutputFolder(tmp_path, "key").write("pictures/a.xml", b"found")
    (tmp_path / "pictures" / "a.xml").write_bytes(b"corrected by hand")
    OutputFolder(tmp_path, "key").remove_earlier("pictures")
    assert (tmp_path / "pictures" / "a.xml").read_bytes() == b"corrected by hand"


def test_one_command_does_not_write_a_file_twice(tmp_path):
    outputs = OutputFolder(tmp_path, "key")
    outputs.write("a.txt", b"one")
    with pytest.raises(UserError, match=r"two results .*a\.txt"):
        outputs.write("a.txt", b"two")


def test_a_file_is_listed_before_it_is_written(tmp_path, monkeypatch):
    outputs = OutputFolder(tmp_path, "key")
    outputs.write("a.txt", b"one")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            OutputFolder(tmp_path, "key").write("a.txt", b"two")
    OutputFolder(tmp_path, "key").check(["a.txt"])  # still the first version
    (tmp_path / "a.txt").write_bytes(b"two")
    OutputFolder(tmp_path, "key").check(["a.txt"])  # as if the kill had come a moment later


def test_a_torn_or_damaged_list_protects_more(tmp_path):
    OutputFolder(tmp_path, "key").write("a.txt", b"one")
    record = tmp_path / RECORD
    record.write_bytes(record.read_bytes()[:-9])
    outputs = OutputFolder(tmp_path, "key")
    assert not outputs.made("a.txt")
    outputs.write("b.txt", b"two")
    assert OutputFolder(tmp_path, "key").made("b.txt")
    record.write_text('[]\n{"file": 3}\nnull\n')
    assert not OutputFolder(tmp_path, "key").made("b.txt")


def test_the_list_is_no_way_out_of_the_folder(tmp_path):
    outside, folder = tmp_path / "precious.txt", tmp_path / "run"
    outside.write_bytes(b"precious")
    folder.mkdir()
    entry = {"file": "pictures/../../precious.txt", "key": "key", "sha256": file_digest(outside)}
    (folder / RECORD).write_text(json.dumps(entry) + "\n")
    with pytest.raises(UserError, match=r"precious\.txt"):
        OutputFolder(folder, "key").remove_earlier("pictures")
    assert outside.read_bytes() == b"precious"


def test_a_list_that_is_a_link_is_not_written_through(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / RECORD).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=f"{RECORD} is a symbolic link"):
        OutputFolder(tmp_path / "run", "key").write("a.txt", b"one")
    assert (tmp_path / "elsewhere").read_bytes() == b""
    assert not (tmp_path / "run" / "a.txt").exists()


def test_a_file_in_place_of_the_folder_is_named_before_any_work(tmp_path):
    (tmp_path / "found").touch()
    with pytest.raises(UserError, match="found is a file, expected a folder to write to"):
        OutputFolder(tmp_path / "found", "key")


def test_a_linked_folder_inside_is_not_written_through(tmp_path):
    mine, folder = tmp_path / "mine", tmp_path / "found"
    OutputFolder(folder, "key").write("pictures/a.png", b"ours")
    (folder / "pictures").rename(mine)
    (folder / "pictures").symlink_to(mine)
    again = OutputFolder(folder, "key")
    for action in (again.check, lambda names: again.write(names[0], b"new")):
        with pytest.raises(UserError, match=r"found/pictures is a symbolic link"):
            action(["pictures/a.png"])
    again.remove_earlier("pictures")
    assert (mine / "a.png").read_bytes() == b"ours"
    (tmp_path / "link").symlink_to(folder)  # which the user names
    OutputFolder(tmp_path / "link", "key").write("b.txt", b"one")


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("seen", ["before", "by the check", "by the first write"])
def test_a_folder_that_is_moved_is_not_made_again(tmp_path, replaced, seen):
    folder = tmp_path / "run"
    if seen == "before":
        folder.mkdir()
    outputs = OutputFolder(folder, "key")
    if seen == "by the check":
        folder.mkdir()
        outputs.check(["a.txt"])
    elif seen == "by the first write":
        outputs.write("b.txt", b"ours")
    folder.rename(tmp_path / "moved")
    if replaced:
        folder.mkdir()
    for action in (lambda: outputs.write("a.txt", b"new"), lambda: outputs.remove_earlier("pictures")):
        with pytest.raises(UserError, match=r"run was moved or deleted.*the same command again"):
            action()
    assert [*folder.iterdir()] == [] if replaced else not folder.exists()
