"""`detector demo`: from nothing to a report, in a folder of its own."""

from pathlib import Path

import pytest

from detector.commands import demo as module
from detector.commands.main import main
from detector.utils.errors import UserError

# A hundredth of the images and of the steps. .ci/run starts it in a process of its own, from a wheel.
KEYS = (
    "PROPOSALS.MODE grid PROPOSALS.MAX_COUNT 50 SOLVER.MAX_ITER 2 SELF_TRAIN.MAX_ITER 1 DATASETS.WORKERS 0"
    " INPUT.TRAIN_SIZES (64,) INPUT.TEST_SIZES (64,) SELF_TRAIN.SIZES (64,)"
)


@pytest.mark.usefixtures("process_as_before")
def test_a_folder_gets_the_images_the_run_and_the_report(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)  # which is no checkout
    monkeypatch.setattr("detector.commands.propose.usable_cores", lambda: 1)  # a worker imports torch anew
    reports, outputs = [], []
    for _ in range(2):
        reports.append(module.demo(Path("a demo"), [*KEYS.split(), "DEVICE", "cpu"], train=6, test=3))
        outputs.append(capsys.readouterr().out)
    assert reports[0] == reports[1]
    assert reports[0].read_text().lower().startswith("<!doctype html>")
    first, again = outputs
    assert len(list((tmp_path / "a demo" / "toybox" / "JPEGImages").iterdir())) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["a demo"]
    assert "learned from tags alone: boxes with mAP50 " in first
    assert "draws 6 images" in first
    assert "draws" not in again  # nor is anything else done twice
    assert again.count(", done: ") == 5


@pytest.mark.parametrize("words", [[], ["--no-browser"]])
def test_the_report_is_opened_unless_it_shall_not(words, tmp_path, monkeypatch, capsys) -> None:
    opened = []
    monkeypatch.setattr(module.webbrowser, "open", opened.append)
    monkeypatch.setattr(module, "demo", lambda folder: folder / "report.html")
    assert main(["demo", str(tmp_path / "a b"), *words]) == 0
    assert opened == ([] if words else [f"file://{tmp_path}/a%20b/report.html"])
    told = capsys.readouterr().out
    assert f"report    {tmp_path}/a b/report.html\n" in told
    assert told.endswith("next: detector init FOLDER_OF_PICTURES\n")


def test_a_demo_that_fails_opens_nothing(tmp_path, monkeypatch, capsys) -> None:
    def fail(folder: Path) -> Path:
        raise UserError("no space")

    monkeypatch.setattr(module.webbrowser, "open", lambda address: pytest.fail("opened"))
    monkeypatch.setattr(module, "demo", fail)
    assert main(["demo", str(tmp_path)]) == 2
    assert "error: no space" in capsys.readouterr().err
