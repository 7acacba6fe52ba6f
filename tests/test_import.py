"""import detector: what it does for the whole process."""

import os
import re
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


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys({blocked}))
import detector
assert "torch" not in sys.modules
assert {{"load", "train", "evaluate"}} <= set(dir(detector))
import torch
from detector import layers
assert not {{"detector.data", "detector.engine"}} & sys.modules.keys()
layers.nms(torch.rand(0, 4), torch.rand(0), 0.5)
try:
    layers.box_iou
except ImportError as error:
    print("op:", error)
try:
    detector.train
except ImportError as error:
    print("function:", type(error).__name__, error)
import detector.__main__
for command in {commands}:
    print("status", detector.__main__.main([command, "toybox_pcl"]))
"""


def test_layers_need_torch_alone_and_the_rest_names_the_extra_that_is_missing():
    """One process, as each needs seconds, in which only torch can be imported of what extras install."""
    blocked = [module for extra in EXTRAS.values() for module in extra]
    commands = ["train", "propose", "test", "report", "init"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS.format(blocked=blocked, commands=commands)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    printed = done.stdout
    assert re.search(r"^op: .*detector\.layers\.box_iou.*pip install torchvision", printed, re.M), printed
    remedy = "is not installed: pip install 'detector-wsod[train]'"
    (line,) = re.findall(r"^function: (.*)$", printed, re.M)
    assert line.startswith("MissingPackage ")
    assert line.endswith(remedy)
    lines = printed.splitlines()[-2 * len(commands) :]  # below torch's warning that there is no numpy
    assert lines[1::2] == ["status 2"] * len(commands), printed
    assert all(error.endswith(remedy) for error in lines[::2]), printed
    assert "Traceback" not in printed
