"""The command, commit and versions of a run: what is needed to repeat it."""

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
        "commit": git_commit(Path(__file__)),
        "python": platform.python_version(),
        "packages": {"torch": torch.__version__, **{name: package_version(name) for name in PACKAGES}},
        "device": str(device),
        "device_name": name,
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "seed": seed,
    }


def git_commit(file: Path) -> str | None:
    """The commit of the repository that tracks a source file, with "-dirty" if files differ from it.

    None if no repository tracks it: an installed package may lie inside the repository of another project.
    """
    git = ["git", "-C", str(file.resolve().parent)]
    try:
        for command in (
            ["ls-files", "--error-unmatch", file.resolve().name],
            ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        ):
            done = subprocess.run([*git, *command], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def package_version(package: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
