"""The benchmarks can be imported. Only one of them, which trains, is run here."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_import(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    runpy.run_path(str(path), run_name="imported")


@pytest.mark.slow
def test_the_schedule_is_timed() -> None:
    script = next(path for path in FILES if path.name == "bench_schedule.py")
    words = ["--small", "--device", "cpu", "--steps", "5", "--workers", "0", "--case", "batches of 2, sorted"]
    run = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "batches of 2, sorted" in run.stdout
