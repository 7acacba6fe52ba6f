"""import detector: what it does for the whole process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


_LAYERS_ALONE = """
import sys
for name in ("torchvision", "yacs", "yaml", "cv2", "PIL", "tensorboard", "tqdm", "jinja2", "markupsafe"):
    sys.modules[name] = None
import torch
from detector import layers
layers.nms(torch.rand(0, 4), torch.rand(0), 0.5)
try:
    layers.box_iou
except ImportError as error:
    print(error)
"""


def test_layers_need_torch_alone():
    done = subprocess.run(
        [sys.executable, "-c", _LAYERS_ALONE],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "detector.layers.box_iou" in done.stdout
    assert "pip install torchvision" in done.stdout
