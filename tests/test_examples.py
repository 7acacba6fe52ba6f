"""The notebooks of examples/: no outputs are committed, and their cells run from top to bottom.

They run as scripts in this process, without Jupyter: a line of the shell is a call of `detector`, and `%pip`
is left out.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

from detector.commands.main import main

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
    """The code cells, with a call of `shell` for each `!command`, in which IPython puts values, too."""
    text = "\n".join(cells(path, "code")).replace("\\\n", " ")
    text = re.sub(r"^%pip .*$", "", text, flags=re.M)
    return re.sub(r"^!(.*)$", r"shell(f'''\1''')", text, flags=re.M)


def shell(command: str) -> None:
    program, *words = shlex.split(command)
    assert program == "detector"
    assert main(words) == 0, command


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
@pytest.mark.usefixtures("process_as_before", "not_announced")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("detector.commands.propose.usable_cores", lambda: 1)  # a worker imports torch anew
    script = as_script(path)
    line, shorter = SHORTER[path.stem]
    assert script.count(line) == 1
    exec(compile(script.replace(line, shorter), path.name, "exec"), {"__name__": "__main__", "shell": shell})
