"""`detector env`: what a report of a bug needs, and nothing that may be private."""

import sys
from pathlib import Path

import pytest
import torch

from detector.commands.env import describe_build, describe_traceback
from detector.commands.main import main
from detector.utils.logging import setup_logging

LOG = """2026-01-01 10:00:00,000 DEBUG traceback of the error:
Traceback (most recent call last):
  File "/home/ann/detector/secret/detector/utils/command_line.py", line 129, in run_command
    command()
  File "/home/ann/detector/secret/mine.py", line 3, in hidden
    train()
  File "/opt/python/site-packages/detector/engine/loop.py", line 77, in make_steps
    step(
    ~~~~^
  File "/opt/python/site-packages/other/private.py", line 5, in call
    raise DataError(path)
detector.utils.errors.DataError: /home/ann/patients/bob.png
has the classes
secret_class: 3
2026-01-01 10:00:01,000 ERROR error: /home/ann/patients/bob.png
"""


def test_the_last_error_names_places_in_this_package_alone() -> None:
    expected = "utils/command_line.py:129 in run_command"
    assert describe_traceback("first\n" + LOG) == (
        f"detector.utils.errors.DataError at engine/loop.py:77 in make_steps, from {expected}"
    )
    after = 'Traceback (most recent call last):\n  File "/a/b.py", line 1, in f\n    f()\nKeyError\n'
    assert describe_traceback(LOG + after) == "KeyError at a place outside of detector"
    assert describe_traceback("no error\n") == ""


@pytest.mark.usefixtures("process_as_before")
def test_the_error_of_a_real_log_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    (run / "self_train").mkdir(parents=True)
    logger = setup_logging(run / "self_train" / "log.txt")
    try:
        torch.ops.detector.none(3)
    except AttributeError:
        logger.exception("internal error")
    (run / "log.txt").write_text("nothing")
    assert main(["env", str(run)]) == 0
    assert "\nlast error  AttributeError at a place outside of detector\n" in capsys.readouterr().out
    (run / "self_train" / "log.txt").write_text("nothing")
    assert main(["env", str(run)]) == 0
    assert "\nlast error  none in the log\n" in capsys.readouterr().out


def test_a_folder_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", str(tmp_path)]) == 2
    assert "log.txt does not exist: name a run folder" in capsys.readouterr().err


def test_the_build_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    has_cuda = torch._C._dispatch_has_kernel_for_dispatch_key("detector::roi_align_forward", "CUDA")
    assert describe_build() == ("CPU and CUDA kernels" if has_cuda else "CPU kernels alone")
    monkeypatch.setitem(sys.modules, "detector.layers", None)
    assert "`import detector.layers` shows why" in describe_build()
