"""Applies every step of docs/writing_an_op.md to a copy of the checkout and runs its commands.

To save compile time, the copy has no kernels but those of the document. All ops remain in the list of
vision.h, so that only the edits of the document are applied.
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
# Tests that cover every op; the last one runs with the tests of the new op.
CHECKS = ("layers/test_support_table.py", "layers/test_extension.py", "layers/test_contract.py")
# `FILE`:   `FILE`, below `LINE`:   `FILE`, at the end:
HEADING = re.compile(r"`(?P<file>[^`]+)`(, below `(?P<below>[^`]+)`|(?P<end>, at the end))?:")
BLOCK = re.compile(r"(?:^(?P<heading>[^\n]+)\n\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


class Step(NamedTuple):
    """A shell command, or text to write to a file."""

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
        assert heading, f"expected a heading with the file name, found {block['heading']!r}"
        end = heading["end"] is not None
        steps.append(Step(None, heading["file"], heading["below"], end, block["text"]))
    return steps


def copy_checkout(target: Path) -> None:
    def ignored_files(folder: str, names: list[str]) -> set[str]:
        kernels = {name for name in names if Path(folder, name).suffix in (".cpp", ".cu")}
        built = {name for name in names if name == "__pycache__" or name.endswith(".so")}
        return kernels - {"vision.cpp", "memory.cpp"} | built

    for folder in ("detector", "benchmarks"):
        shutil.copytree(ROOT / folder, target / folder, ignore=ignored_files)
    shutil.copytree(ROOT / "tests/support", target / "tests/support")
    (target / "tests/layers").mkdir()
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, target / file)
    for file in ("conftest.py", *CHECKS):
        shutil.copy(ROOT / "tests" / file, target / "tests" / file)
    (target / "docs").mkdir()
    shutil.copy(ROOT / "docs/layers_support.md", target / "docs/layers_support.md")


def write(step: Step, root: Path) -> None:
    path = root / step.file
    if step.below is None and not step.end:
        assert not path.exists(), f"{step.file} already exists"
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


def run(command: str, root: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run a shell command in the copy, with `python` being the current interpreter."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    folders = {"TORCH_EXTENSIONS_DIR": str(root / "extensions"), "PYTHONPATH": str(root), "PATH": path}
    environment = {**os.environ, **folders, **environment}
    return subprocess.run(command, shell=True, cwd=root, env=environment, capture_output=True, text=True)


def follow(root: Path, **environment: str) -> list[tuple[str, str]]:
    """Apply the steps in order and return each command with its output."""
    copy_checkout(root)
    compiler = root / "c++"  # without optimization: half of the time
    compiler.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    compiler.chmod(0o755)
    environment["CXX"] = str(compiler)
    printed = []
    for step in read_steps():
        if step.command is None:
            write(step, root)
            continue
        result = run(step.command, root, **environment)
        assert result.returncode == 0, f"{step.command}\n{result.stdout}\n{result.stderr}"
        printed.append((step.command, result.stdout))
    return printed


@pytest.mark.slow
def test_guide_works(tmp_path: Path) -> None:
    printed = follow(tmp_path, FORCE_CUDA="0")
    tests, build, benchmark = (text for _, text in printed)
    assert "passed" in tests
    assert (tmp_path / "extensions/detector_C/detector_C.so").exists()
    assert "CPU only" in build
    assert (tmp_path / "detector/_C.abi3.so").exists()
    assert re.search(r"^swish 1048576 +forward", benchmark, re.M)
    checks = [f"tests/{file}" for file in CHECKS[:2]]
    result = run(f"python -m pytest {' '.join(checks)} -k 'row or swish'", tmp_path)
    assert result.returncode == 0, result.stdout
    assert "3 passed" in result.stdout  # the support table, and both ops in the library


@pytest.mark.slow
@pytest.mark.cuda
def test_cuda_guide_works_with_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_CUDA", "")
    try:
        _extension.recipe()
    except RuntimeError as error:  # no toolkit or the wrong version
        pytest.skip(str(error))
    printed = follow(tmp_path, FORCE_CUDA="1")
    assert "skipped" not in printed[0][1]  # the tests of the new op ran on the GPU


def test_code_blocks_pass_lint(tmp_path: Path) -> None:
    if not (shutil.which("ruff") and shutil.which("clang-format")):
        pytest.skip("needs ruff and clang-format")
    copy_checkout(tmp_path)
    shutil.copy(ROOT / ".clang-format", tmp_path)
    for step in read_steps():
        if step.command is None:
            write(step, tmp_path)
    sources = " ".join(f"detector/csrc/{file}" for file in ("swish.h", "cpu/swish.cpp", "cuda/swish.cu"))
    changed = "detector/layers/swish.py detector/layers/__init__.py tests/layers/test_swish.py benchmarks"
    for command in (
        f"clang-format --dry-run -Werror {sources}",
        f"ruff format --quiet {changed}",
        f"ruff check --fix {changed}",
        f"ruff format --check {changed}",
    ):
        result = run(command, tmp_path)
        assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
