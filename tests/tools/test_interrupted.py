"""Ctrl-C while a command imports what it needs, which takes seconds: no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = sorted((ROOT / "tools").glob("*.py"))

PRESS_CTRL_C = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.parametrize("tool", TOOLS, ids=lambda path: path.stem)
def test_ctrl_c_during_the_imports_is_one_word(tool, tmp_path):
    for name in ("torch", "numpy", "yacs", "PIL"):  # the first of them that is imported stands for a slow one
        (tmp_path / f"{name}.py").write_text(PRESS_CTRL_C)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, str(tool), "--help"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
