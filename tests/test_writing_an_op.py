"""docs/writing_an_op.md, followed to the letter in a copy of the checkout.

The copy leaves out the kernels of all ops but the template: to compile them again would show nothing and take
a minute. They stay in the list of vision.h, so nothing is edited but what the document says.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from detector.layers import _extension

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/writing_an_op.md"
TEMPLATE, NEW = "pcl_loss", "squared_relu"
# `FILE`:   `FILE`, below `LINE`:   `FILE`, at the end:
HEADING = re.compile(r"`(?P<file>[^`]+)`(, below `(?P<below>[^`]+)`|(?P<end>, at the end))?:")
BLOCK = re.compile(r"(?:^(?P<heading>[^\n]+)\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


class Step(NamedTuple):
    """A command of the shell, or what goes to a file."""

    command: str | None
    file: str = ""
    below: str | None = None
    end: bool = False
    text: str = ""


def read_steps() -> list[Step]:
    steps = []
    for block in BLOCK.finditer(DOCUMENT.read_text()):
        if block["language"] == "sh":
            steps += [Step(command) for command in block["text"].splitlines()]
            continue
        heading = HEADING.fullmatch(block["heading"] or "")
        assert heading, f"a block is headed by its file, found {block['heading']!r}"
        end = heading["end"] is not None
        steps.append(Step(None, heading["file"], heading["below"], end, block["text"]))
    return steps


def copy_checkout(target: Path) -> None:
    def others_kernels(folder: str, names: list[str]) -> set[str]:
        kernels = {name for name in names if Path(folder, name).suffix in (".cpp", ".cu")}
        return kernels - {"vision.cpp", f"{TEMPLATE}.cpp", f"{TEMPLATE}.cu"} | {
            name for name in names if name == "__pycache__" or name.endswith(".so")
        }

    for folder in ("detector", "benchmarks"):
        shutil.copytree(ROOT / folder, target / folder, ignore=others_kernels)
    (target / "tests/layers").mkdir(parents=True)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, target / file)
    for file in ("conftest.py", "op_contract.py"):
        shutil.copy(ROOT / "tests" / file, target / "tests" / file)


def write(step: Step, root: Path) -> None:
    path = root / step.file
    if step.below is None and not step.end:
        assert not path.exists(), f"{step.file} is there already"
        path.write_text(step.text)
        return
    lines = path.read_text().splitlines(keepends=True)
    if step.end:
        position = len(lines)
    else:
        found = [i for i, line in enumerate(lines) if line.rstrip("\n") == step.below]
        assert len(found) == 1, f"{step.file} has the line {step.below!r} {len(found)} times"
        position = found[0] + 1
    path.write_text("".join([*lines[:position], step.text, *lines[position:]]))


def follow(root: Path, **environment: str) -> list[tuple[str, str]]:
    """Takes the steps in order; each command with what it printed."""
    copy_checkout(root)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # this Python is `python`
    folders = {"TORCH_EXTENSIONS_DIR": str(root / "extensions"), "PYTHONPATH": str(root), "PATH": path}
    environment = {**os.environ, **folders, **environment}
    printed = []
    for step in read_steps():
        if step.command is None:
            write(step, root)
            continue
        result = subprocess.run(
            step.command, shell=True, cwd=root, env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, f"{step.command}\n{result.stdout}\n{result.stderr}"
        printed.append((step.command, result.stdout))
    return printed


def test_the_recipe_works(tmp_path: Path) -> None:
    printed = follow(tmp_path, FORCE_CUDA="0")
    tests, build, benchmark = (text for _, text in printed)
    assert "passed" in tests
    assert (tmp_path / "extensions/detector_C/detector_C.so").exists()
    assert "CPU only" in build
    assert (tmp_path / "detector/_C.abi3.so").exists()
    assert re.search(r"^squared_relu 1048576 +forward", benchmark, re.M)


@pytest.mark.cuda
def test_cuda_the_recipe_works_with_nvcc(tmp_path: Path) -> None:
    if _extension.recipe().cuda_home is None:
        pytest.skip(_extension.recipe().note)
    printed = follow(tmp_path, FORCE_CUDA="1")
    assert "skipped" not in printed[0][1]  # the tests of the new op ran on the GPU too


def test_the_guide_points_here() -> None:
    assert "docs/writing_an_op.md" in (ROOT / "CONTRIBUTING.md").read_text()
