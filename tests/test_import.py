"""import detector: what it does for the whole process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detector.utils.errors import EXTRAS

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("before", "variables", "expected"),
    [
        ("", {}, "10000"),
        ("", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("", {"OMP_WAIT_POLICY": "active"}, "None"),
        ("import sys; sys.modules['torch'] = None; ", {}, "None"),  # too late: its OpenMP has read it
    ],
)
def test_waiting_threads_spin_briefly_unless_the_user_decides(before, variables, expected):
    code = f"{before}import detector, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    kept = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    environment = {**kept, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


def run_without_extras(code: str) -> str:
    """What Python code prints in a process where only torch can be imported of what extras install."""
    modules = [module for extra in EXTRAS.values() for module in extra]
    blocked = f"import sys; sys.modules.update(dict.fromkeys({modules}))\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return done.stdout


def test_layers_need_torch_alone():
    printed = run_without_extras("""
import torch
from detector import layers
layers.nms(torch.rand(0, 4), torch.rand(0), 0.5)
try:
    layers.box_iou
except ImportError as error:
    print(error)
""")
    assert "detector.layers.box_iou" in printed
    assert "pip install torchvision" in printed


def test_commands_name_the_extra_that_is_missing():
    commands = ["train", "propose", "test", "report", "init"]
    printed = run_without_extras(f"""
import detector.__main__
for command in {commands}:
    print("status", detector.__main__.main([command, "toybox_pcl"]))
""")
    lines = printed.splitlines()[-2 * len(commands) :]  # below torch's warning that there is no numpy
    assert lines[1::2] == ["status 2"] * len(commands), printed
    for error in lines[::2]:
        assert error.endswith("is not installed: pip install 'detector-wsod[train]'")
    assert "Traceback" not in printed


def test_functions_name_the_extra_that_is_missing():
    printed = run_without_extras("""
import detector
try:
    detector.train
except ImportError as error:
    print(type(error).__name__, error)
""")
    assert "\nMissingPackage " in printed
    assert printed.endswith("is not installed: pip install 'detector-wsod[train]'\n")
