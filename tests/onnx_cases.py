"""A process without torch, for what runs exported networks."""

import subprocess
import sys
from pathlib import Path

RUN = """
import runpy, sys
for name in ("torch", "torchvision", "detector", "yacs", "yaml"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_example(folder: Path, *words: object) -> list[str]:
    """What example.py prints in a process in which neither torch nor this package can be imported."""
    command = [sys.executable, "-c", RUN, str(folder / "example.py"), *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder).stdout.splitlines()
