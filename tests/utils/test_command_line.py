"""detector.utils.command_line: arguments, and how commands fail."""

import logging

import pytest

from detector.utils.command_line import config_parser, run_command


@pytest.fixture(autouse=True)
def _leave_no_handlers():
    yield
    logging.getLogger("detector").handlers.clear()


@pytest.mark.parametrize(
    "words",
    [
        ["--config-file", "a.yaml", "--resume", "A", "1", "B", "-2"],
        ["A", "1", "--config-file", "a.yaml", "B", "-2", "--resume"],
    ],
)
def test_keys_and_options_may_stand_in_any_order(words):
    parser = config_parser("what it does")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_intermixed_args(words)
    assert (options.config_file, options.overrides, options.resume) == ("a.yaml", ["A", "1", "B", "-2"], True)


def fail_with(error):
    def command():
        raise error

    return command


WORKER = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 1, in fetch
ValueError: image a.jpg cannot be read: cut off
"""


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("SEED is 'x'"), 2, "error: SEED is 'x'"),
        (FileNotFoundError("a.yaml does not exist"), 2, "error: a.yaml does not exist"),
        (ValueError(WORKER), 2, "error: image a.jpg cannot be read: cut off"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_the_user_can_mend_is_one_line(capsys, error, status, line):
    assert run_command(fail_with(error)) == status
    assert capsys.readouterr().err == f"{line}\n"


def test_success_is_zero_and_a_mistake_of_ours_keeps_its_traceback():
    assert run_command(lambda: None) == 0
    with pytest.raises(TypeError):
        run_command(fail_with(TypeError("a bug")))
