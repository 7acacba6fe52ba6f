"""Seeds, and the command, commit and versions of a run: what is needed to repeat it."""

import os
import platform
import random
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch

PACKAGES = ("torchvision", "numpy", "pillow", "timm")


def seed_everything(seed: int, deterministic: bool = True) -> None:
    """Seed every generator and choose whether torch uses deterministic algorithms; call it first."""
    # cuBLAS is deterministic only with a fixed workspace; it reads this variable when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Warn only: a backbone may contain an operation that has no deterministic implementation on a GPU.
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # No code here reads uninitialized memory, and filling it takes time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def seed_batch(seed: int, iteration: int, batch: int = 0) -> None:
    """Seed torch for batch number `batch` of a training step.

    A resumed run then draws the same random numbers as an uninterrupted one without saved generator states,
    and several processes draw the same numbers as one process that computes all batches of the step.
    """
    # Hashed, because the CPU generator uses only the low 32 bits of a seed.
    torch.manual_seed(int(np.random.SeedSequence((seed, iteration, batch)).generate_state(1)[0]))


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
