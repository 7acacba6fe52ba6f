"""The notebooks of examples/: no outputs are committed, and their cells run from top to bottom.

They run as scripts, without Jupyter: a line of the shell is a subprocess, and `%pip` is left out.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# A line of each notebook, and what makes it fast.
SHORTER = {
    "layers_in_your_model": ("steps = 60", "steps = 2"),
    "review_and_retrain": (
        "train, test, steps, reviewed = 120, 40, 400, 24",
        "train, test, steps, reviewed = 8, 4, 4, 2",
    ),
    "tags_to_detector": ("train, test, steps = 120, 40, 400", "train, test, steps = 8, 4, 4"),
}


def cells(path: Path, kind: str) -> list[str]:
    content = json.loads(path.read_text())
    return ["".join(cell["source"]) for cell in content["cells"] if cell["cell_type"] == kind]


def as_script(path: Path) -> str:
    """The code cells, with `!command {value}` as IPython runs it."""
    text = "\n".join(cells(path, "code")).replace("\\\n", " ")
    text = re.sub(r"^%pip .*$", "", text, flags=re.M)
    run = r"__import__('subprocess').run(f'''\1''', shell=True, check=True)"
    return re.sub(r"^!(.*)$", run, text, flags=re.M)


def test_each_notebook_has_a_shorter_form() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SHORTER)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped_and_colab_is_named(path: Path) -> None:
    content = json.loads(path.read_text())
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    assert "colab-badge.svg" in cells(path, "markdown")[0]
    assert "".join(code[0]["source"]).startswith("%pip install")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run(path: Path, tmp_path: Path) -> None:
    script = as_script(path)
    line, shorter = SHORTER[path.stem]
    assert script.count(line) == 1
    (tmp_path / "cells.py").write_text(script.replace(line, shorter))
    (tmp_path / "detector").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detector "$@"\n')
    (tmp_path / "detector").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, "cells.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
