"""What a run was made with: the facts that one needs to repeat it."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("torchvision", "numpy", "pillow", "timm")


def run_info(device: torch.device, seed: int) -> dict:
    """Command, date, commit, versions, device and seed, ready for JSON."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {
        "command": shlex.join(sys.argv),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": git_commit(Path(sys.argv[0]).resolve().parent),
        "python": platform.python_version(),
        "packages": {"torch": torch.__version__, **{package: _version(package) for package in PACKAGES}},
        "device": str(device),
        "device_name": name,
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "seed": seed,
    }


def git_commit(folder: Path) -> str | None:
    """Commit of the repository that holds `folder`, "-dirty" where files differ from it; None without one."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
