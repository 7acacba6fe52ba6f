"""The benchmarks can be imported. Only one of them, which trains, is run here."""

import json
import re
import runpy
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_import(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    runpy.run_path(str(path), run_name="imported")


def test_means_and_ranges_in_the_docs_are_those_of_the_results() -> None:
    """`70.1 (63.4 - 75.6)`: mean, lowest and highest of the runs of one recipe in a results file."""
    groups = defaultdict(list)
    for path in (ROOT / "benchmarks/results").glob("methods_*.json"):
        for name, runs in json.loads(path.read_text())["methods"].items():
            for run in runs:
                for scope, figures in [("", run), *run["per_class"].items()]:
                    for key in ("mAP50", "AP50", "CorLoc", "AP75", "AP", "image_mAP"):
                        if figures.get(key) is not None:
                            groups[path, name, scope, key].append(figures[key])
    for row in json.loads((ROOT / "benchmarks/results/proposals_accuracy.json").read_text())["rows"]:
        groups[row["data_set"], row["recipe"], row["proposals"]].append(row["mAP50"])
    for row in json.loads((ROOT / "benchmarks/results/one_stage_photos.json").read_text())["rows"]:
        for sides, figures in row["at"].items():
            groups[row["case"], sides].append(figures["mAP50"])
    known = {tuple(f"{f(runs):.1f}" for f in (mean, min, max)) for runs in groups.values()}
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for found in re.findall(r"(\d+\.\d)\*{0,2} \((\d+\.\d) - (\d+\.\d)", page.read_text()):
            assert found in known, f"{page.name}: no results file has {found[0]} ({found[1]} - {found[2]})"


def test_no_result_has_a_path_of_a_machine() -> None:
    results = (ROOT / "benchmarks/results").glob("*.json")
    found = [path.name for path in results if re.search(r"(^|[\s\"'=])/(\w+/)+", path.read_text())]
    assert not found


def test_commands_of_results_name_no_folder_of_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from measure import command_line

    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks/a.py"), "/mnt/out/int8", "--jobs", "2"])
    assert command_line() == "python benchmarks/a.py int8 --jobs 2"


def test_the_tables_of_host_times_are_generated_from_the_results() -> None:
    script = runpy.run_path(str(ROOT / "docs/make/host_table.py"))
    assert script["page"]() == script["PAGE"].read_text(), "run python docs/make/host_table.py"


@pytest.mark.slow
@pytest.mark.usefixtures("process_as_before")
def test_the_schedule_is_timed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = next(path for path in FILES if path.name == "bench_schedule.py")
    words = ["PRECISION", "float32", "--small", "--device", "cpu", "--steps", "2"]  # bf16 takes 30 s on a CPU
    words += ["--workers", "0", "--case", "batches of 2, sorted"]
    monkeypatch.setattr(sys, "argv", [str(script), *words])
    monkeypatch.syspath_prepend(str(script.parent))
    runpy.run_path(str(script), run_name="__main__")
    assert "batches of 2, sorted" in capsys.readouterr().out
