"""The harness itself: it detects planted faults, and one case of each kind runs. Part of `make test`."""

import os
import signal
import time
from pathlib import Path

import pytest
from chaos import harness
from chaos.harness import Case, Outcome, Run, damage, judge, run_cases

from detector.utils.errors import DataError


def write(text, path="answer.txt"):
    return lambda: Path(path).write_text(text)


def fail(error):
    def command():
        raise error

    return command


def faults(folder, **options):
    """The columns that a case in an almost empty sandbox counts in."""
    world = folder / "world"
    world.mkdir(exist_ok=True)
    (world / "kept.txt").write_text("kept")
    case = Case("planted", "planted", **{"expect": "equal", "writes": ("answer.txt",), **options})
    (judgement,) = run_cases([case], world, folder / "cases", count=False)
    return judgement.faults


def answer(folder, outcome):
    return (folder / "answer.txt").read_text()


def test_what_comes_as_stated_has_no_fault(tmp_path):
    assert not faults(tmp_path, command=write("42"), result=answer, reference="42")
    assert not faults(
        tmp_path, command=fail(DataError("cat.jpg is damaged")), expect="error", names=("cat.jpg",)
    )
    assert not faults(
        tmp_path, command=lambda: print("warning: cat.jpg"), expect="warning", names=("cat.jpg",)
    )


@pytest.mark.parametrize(
    ("fault", "options"),
    [
        ("crash", {"command": fail(KeyError("cat.jpg")), "expect": "error", "names": ("cat.jpg",)}),
        ("crash", {"command": lambda: os.kill(os.getpid(), signal.SIGSEGV), "expect": "error"}),
        ("unnamed", {"command": fail(DataError("it is damaged")), "expect": "error", "names": ("cat.jpg",)}),
        ("silent", {"command": write("42"), "expect": "error", "names": ("cat.jpg",)}),
        ("silent", {"command": write("41"), "result": answer, "reference": "42"}),
        ("silent", {"command": lambda: print("warning: a dog"), "expect": "warning", "names": ("cat.jpg",)}),
        ("refused", {"command": fail(DataError("no")), "expect": "equal"}),
        ("outside", {"command": write("changed", "kept.txt")}),
        ("outside", {"command": lambda: os.remove("kept.txt")}),
        ("left behind", {"command": write("half", ".answer.txt.tmp"), "writes": ("*",)}),
    ],
)
def test_planted_fault_is_found(tmp_path, fault, options):
    assert faults(tmp_path, **options) == {fault}


def test_orphans_and_hangs_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(harness, "_GRACE", 0.2)

    def leave_a_child():
        if os.fork() == 0:
            time.sleep(60)

    assert faults(tmp_path, command=leave_a_child) == {"left behind"}
    monkeypatch.setattr(harness, "PATIENCE", 0.3)
    assert faults(tmp_path, command=lambda: time.sleep(60)) == {"hangs"}


def test_a_change_that_no_checksum_can_show_counts_as_documented():
    case = Case("planted", "planted", (), "error or equal", reference="42", documented=True)
    assert judge(case, [Outcome(0, "41")], Path(), [], []) == {"documented"}


def test_only_the_traceback_of_an_interrupted_start_of_python_is_no_crash():
    case = Case("planted", "planted", (), "equal", reference="42", then=())
    start = 'Traceback (most recent call last):\n  File "<frozen site>", line 626, in <module>'
    for output, expected in ((start, set()), (start.replace("site", "other"), {"crash"})):
        assert judge(case, [Outcome(1, output), Outcome(0, "42")], Path(), [], []) == expected
    assert judge(case, [Outcome(0), Outcome(1, start)], Path(), [], []) == {"crash"}


def test_killed_command_may_end_by_its_signal_and_the_next_one_may_not(tmp_path):
    killed = {"command": lambda: time.sleep(60), "kill": (signal.SIGKILL, 0.1)}
    assert not faults(tmp_path, **killed, then=write("42"), result=answer, reference="42")
    assert faults(tmp_path, **killed, then=lambda: os.kill(os.getpid(), signal.SIGBUS)) == {"crash"}


def test_a_function_may_disturb_a_command_and_seeds_begin_where_they_should(tmp_path, monkeypatch):
    moved = {"command": lambda: time.sleep(1), "kill": (lambda folder: os.remove(folder / "kept.txt"), 0.1)}
    assert faults(tmp_path, **moved, result=answer, then=write("42"), reference="42") == {"outside"}
    monkeypatch.setattr(harness, "SEED", 20260102)
    assert list(harness.repeats(3)) == [20260102, 20260103, 20260104]


def test_file_limit_stands_for_a_full_disk(tmp_path):
    full = {"command": write("x" * 100), "file_limit": 50, "expect": "error", "writes": ("*",)}
    assert not faults(tmp_path, **full)


def test_one_case_of_each_kind_with_a_real_command(tmp_path):
    """A damaged file, a kill and a full disk, around tools/make_toybox.py."""
    draw = ("make_toybox", "drawn", "--train", 2, "--test", 1)
    reference = harness.run_once(draw, _folder(tmp_path / "reference"))
    assert reference.status == 0, reference.output
    same = {
        "result": lambda folder, _: harness.files_digest(folder / "drawn", "**/*"),
        "writes": ("drawn/*",),
    }
    expected = harness.files_digest(tmp_path / "reference" / "drawn", "**/*")
    name, prepare = damage("input.txt", 1)
    world = _folder(tmp_path / "world")
    (world / "input.txt").write_text("text")
    cases = [
        Case("damage", name, draw, "equal", prepare=prepare, reference=expected, **same),
        Case(
            "kill",
            "at once",
            draw,
            "equal",
            kill=(signal.SIGKILL, 0.0),
            then=draw,
            reference=expected,
            **same,
        ),
        Case("disk", "full", draw, "error", names=("drawn",), file_limit=10, **same),
    ]
    judgements = run_cases(cases, world, tmp_path / "cases", count=False)
    assert not judgements[0].faults, judgements[0]
    assert all(judgement.outcomes for judgement in judgements)


def _folder(path):
    path.mkdir()
    return path


def test_run_is_a_value():
    assert Run(("make_toybox",)).fresh is False
