"""docs/adding_a_method.md, applied to a copy of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from doc_blocks import read_blocks

from detector.layers._extension import load_extension

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/adding_a_method.md"


def test_the_page_adds_a_method_that_trains(tmp_path: Path, overrides: list[str]) -> None:
    shutil.copytree(
        ROOT / "detector", tmp_path / "detector", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    (tmp_path / "detector" / "_C.abi3.so").symlink_to(load_extension().__file__)
    patches = [block.text for block in read_blocks(PAGE) if block.language == "diff"]
    added = [
        line for patch in patches for line in patch.splitlines() if line[:1] == "+" and line[:3] != "+++"
    ]
    assert (len(patches), len(added) <= 30) == (3, True)
    for patch in patches:
        subprocess.run(["git", "apply", "-"], input=patch, cwd=tmp_path, text=True, check=True)

    command = [
        sys.executable,
        str(ROOT / "tools/train_net.py"),
        "--config-file",
        str(ROOT / "configs/toybox_pcl.yaml"),
    ]
    result = subprocess.run(
        [*command, *overrides, "MODEL.METHOD", "two_apart"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "two_apart, 3 refinement streams" in result.stderr
    assert torch.load(tmp_path / "run/model_final.pt", weights_only=True)["iteration"] == 4
