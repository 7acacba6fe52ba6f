"""detector.utils.logging: console and file."""

import logging
import os
import re
import warnings
from pathlib import Path

import pytest

import detector
from detector.utils.errors import UserError
from detector.utils.logging import PROGRESS, STEP, setup_logging


@pytest.fixture(autouse=True)
def _no_handlers_of_others():
    """Handlers, and what they keep for a file, are of this test alone."""
    remove_handlers()
    yield
    remove_handlers()


def remove_handlers():
    logger = logging.getLogger("detector")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def test_info_goes_to_both_and_debug_to_the_file_only(tmp_path, capsys):
    setup_logging(tmp_path / "log.txt")
    logging.getLogger("detector.engine").info("hello %d", 3)
    logging.getLogger("detector.engine").debug("quiet")
    console = capsys.readouterr()
    assert console.err == "hello 3\n"
    assert console.out == ""
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["INFO hello 3", "DEBUG quiet"]


def test_the_console_shows_what_the_first_call_says_and_the_file_everything(tmp_path, capsys):
    for console in (PROGRESS, STEP):
        setup_logging(console=console)
        logger = setup_logging(tmp_path / "log.txt")  # of a stage, which does not know what the command said
        for level in (logging.DEBUG, STEP, logging.INFO, PROGRESS, logging.WARNING):
            logger.log(level, "level %d", level)
    shown = [int(line.split()[-1]) for line in capsys.readouterr().err.splitlines()]
    assert shown == [25, 30, 15, 20, 25, 30]
    lines = [line.split(" ", 2)[2] for line in (tmp_path / "log.txt").read_text().splitlines()]
    assert lines == 2 * [
        "DEBUG level 10",
        "STEP level 15",
        "INFO level 20",
        "PROGRESS level 25",
        "WARNING level 30",
    ]


def test_warnings_are_logged_without_their_place_in_the_code(tmp_path, capsys):
    setup_logging(tmp_path / "log.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "filters", [("always", None, Warning, None, 0)])
        warnings.warn("look out", stacklevel=1)
    assert capsys.readouterr().err == "warning: look out\n"
    assert "WARNING look out" in (tmp_path / "log.txt").read_text()


def test_no_message_says_twice_that_it_is_a_warning():
    package = Path(detector.__file__).parent
    repeats = re.compile(r"\.warning\(\s*f?.warning: ")
    assert [path for path in package.rglob("*.py") if repeats.search(path.read_text("utf-8"))] == []


def test_a_second_set_up_replaces_the_first_and_appends_to_the_file(tmp_path, capsys):
    for _ in range(2):
        setup_logging(tmp_path / "log.txt").info("once")
    assert capsys.readouterr().err == "once\nonce\n"
    assert len((tmp_path / "log.txt").read_text().splitlines()) == 2


def test_what_is_logged_before_the_file_is_open_reaches_it(tmp_path, capsys):
    setup_logging().warning("early")
    setup_logging(tmp_path / "log.txt").info("late")
    assert capsys.readouterr().err == "warning: early\nlate\n"
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["WARNING early", "INFO late"]


def test_a_log_that_is_a_link_or_a_fifo_is_refused(tmp_path):
    other = tmp_path / "precious.txt"
    other.write_text("precious")
    log = tmp_path / "log.txt"
    for target in (other, tmp_path / "nowhere"):
        log.symlink_to(target)
        with pytest.raises(UserError, match=r"log\.txt is a symbolic link"):
            setup_logging(log)
        log.unlink()
    os.mkfifo(log)
    with pytest.raises(UserError, match=r"log\.txt is not a regular file"):
        setup_logging(log)
    assert other.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_full_disk_gives_no_traceback_for_each_message(tmp_path, capsys, monkeypatch):
    logger = setup_logging(tmp_path / "log.txt")
    (file,) = (each for each in logger.handlers if isinstance(each, logging.FileHandler))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file.stream, "write", full, raising=False)
    logger.info("hello")
    assert capsys.readouterr().err == "hello\n"
