"""The benchmarks can be imported. They are run by hand, not in the tests."""

import runpy
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_import(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    runpy.run_path(str(path), run_name="imported")
