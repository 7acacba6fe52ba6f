"""tools/make_toybox.py: what it leaves behind when it fails."""

import sys

import pytest

from detector.data import toybox


@pytest.fixture
def make_toybox(load_tool, monkeypatch):
    """Run the tool in this process with the given arguments, and return its status."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["make_toybox.py", *map(str, words)])
        return load_tool("make_toybox").main()

    return run


def test_a_failed_write_is_named_and_nothing_is_left(make_toybox, tmp_path, monkeypatch, capsys):
    def fail(path, content):
        raise OSError(f"cannot write {path}: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(toybox, "write_new", fail)
        assert make_toybox(tmp_path / "toybox", "--train", 1, "--test", 1) == 2
    assert "000001.jpg: No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert make_toybox(tmp_path / "toybox", "--train", 1, "--test", 1) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["toybox"]


def test_an_existing_folder_is_left_alone(make_toybox, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert make_toybox(tmp_path) == 2
    assert f"{tmp_path} exists" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(SystemExit):
        make_toybox(tmp_path / "new", "--train", -1)
