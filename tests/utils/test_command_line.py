"""detector.utils.command_line: arguments, and how commands fail."""

import io
import logging
import os
import sys
from pathlib import Path

import pytest
import torch

from detector.utils.command_line import config_parser, next_step, parse_config, run_command, usable_cores
from detector.utils.errors import ConfigError, DataError


@pytest.fixture(autouse=True)
def _leave_no_handlers():
    yield
    logging.getLogger("detector").handlers.clear()


@pytest.mark.parametrize(
    "words",
    [
        ["--config-file", "a.yaml", "--resume", "A", "1", "B", "-2"],
        ["A", "1", "--config-file", "a.yaml", "B", "-2", "--resume"],
        ["a.yaml", "A", "1", "--resume", "B", "-2"],
    ],
)
def test_keys_and_options_may_stand_in_any_order(words):
    parser = config_parser("detector train", "what it does")
    parser.add_argument("--resume", action="store_true")
    options = parse_config(parser, words)
    assert (options.config_file, options.overrides, options.resume) == ("a.yaml", ["A", "1", "B", "-2"], True)


def fail_with(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("SEED is 'x'"), 2, "error: SEED is 'x'"),
        (FileNotFoundError("a.yaml does not exist"), 2, "error: a.yaml does not exist"),
        (DataError("image a.jpg cannot be read"), 2, "error: image a.jpg cannot be read"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_what_the_user_can_mend_is_one_line(capsys, error, status, line):
    assert run_command(fail_with(error)) == status
    assert capsys.readouterr().err == f"{line}\n"


def test_success_is_zero():
    assert run_command(lambda: None) == 0


@pytest.mark.parametrize("error", [TypeError("a bug"), ValueError("a bug too")])
def test_a_bug_keeps_its_traceback(capsys, error):
    assert run_command(fail_with(error)) == 1
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert f"{type(error).__name__}: {error}" in printed


@pytest.mark.parametrize(
    "reason", ["(pid 5) is killed by signal: Killed. ", "(pid(s) 5, 6) exited unexpectedly"]
)
def test_a_worker_that_died_is_one_line_wherever_torch_says_so(capsys, reason):
    assert run_command(fail_with(RuntimeError(f"DataLoader worker {reason}"))) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert reason.strip(". ") in line
    assert "DATASETS.WORKERS" in line


def test_too_little_memory_of_a_gpu_is_one_line_that_says_what_to_lower(capsys):
    found = "CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has 8 GiB of which 1 GiB is free"
    error = torch.OutOfMemoryError(f"{found}. Process 7 has 6 GiB memory in use.")
    assert run_command(fail_with(error)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{found}. Start again with a lower SOLVER.IMAGES_PER_BATCH" in line
    assert "Process 7" not in line


def test_cores_that_the_process_may_not_use_do_not_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert usable_cores() == 7


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        SystemError("<function _find_and_load at 0x7f> returned NULL without setting an exception"),
        SystemError("error return without exception set"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_is_no_bug(caplog, error):
    def command():
        raise error

    assert run_command(command) == 2
    assert "there is too little memory" in caplog.text
    assert "SOLVER.IMAGES_PER_BATCH" in caplog.text


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_what_the_terminal_cannot_encode_is_printed_escaped(encoding, monkeypatch):
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    assert run_command(lambda: print("\u732b \udcff", flush=True)) == 0
    assert b"\\udcff" in streams[0].buffer.getvalue()
    assert streams[1].buffer.getvalue() == b""


def test_a_folder_whose_name_looks_like_an_option_is_named_so_that_it_is_none(capsys):
    next_step("detector", "report", Path("-run"), "--model", "weak")
    assert capsys.readouterr().out == "next: detector report ./-run --model weak\n"


@pytest.mark.parametrize("buffering", [1, -1], ids=["at the end of a line", "at the end"])
def test_a_command_whose_output_nobody_reads_ends_without_a_word(buffering, monkeypatch, capfd):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=buffering) as output:
        monkeypatch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as ended:
            run_command(lambda: print("found"))
    assert ended.value.code == 141  # as SIGPIPE ends other programs
    assert capfd.readouterr() == ("", "")


def test_another_broken_pipe_is_an_error(capsys):
    assert run_command(fail_with(BrokenPipeError(32, "Broken pipe"))) == 2
    assert "Broken pipe" in capsys.readouterr().err
