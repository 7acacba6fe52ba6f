"""Installs wheels beside each torch and Python that they should work with, calls the layers and trains.

    python benchmarks/try_wheels.py dist/*.whl
    python benchmarks/try_wheels.py dist/*.whl --torch 2.11.0 --python 3.10

By default: each torch from 2.11 that pip offers with Python 3.11, and the oldest and newest of them with the
other versions. Needs uv, whose cache grows by some GB with each torch. Writes benchmarks/results/wheels.json
and exits with 1 if something fails.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from measure import command_line, commit

HERE = Path(__file__).resolve().parent
PYTHONS = ["3.11", "3.10", "3.12", "3.13"]
TRAIN = """
python -c "from detector.data.toybox import draw_toybox; draw_toybox('datasets/toybox', train=8, test=4)"
detector propose toybox_pcl PROPOSALS.MODE fast
detector train toybox_pcl SOLVER.MAX_ITER 2 DATASETS.WORKERS 0
"""


@dataclass(frozen=True)
class Row:
    """One wheel beside one torch and Python."""

    wheel: str
    megabytes: float
    python: str
    torch: str
    layers: str  # use_layers.py with torch alone: "ok" or the error
    train: str  # the commands of TRAIN with the extra `train`


def offered_torches() -> list[str]:
    """Versions of torch from 2.11, oldest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"\d+\.\d+\.\d+", text)}
    return [".".join(map(str, version)) for version in sorted(versions) if version >= (2, 11)]


def attempt(wheel: Path, extra: str, python: str, torch: str, command: list[str]) -> str:
    """Run a command in a new environment with the wheel. Return "ok" or the last line of the error."""
    packages = [f"--with=torch=={torch}", f"--with=detector-wsod{extra} @ file://{wheel.resolve()}"]
    uv = ["uv", "run", "--quiet", "--no-project", "--isolated", f"--python={python}", *packages, *command]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # no checkout
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(uv, cwd=folder, env=environ, capture_output=True, text=True)
    return "ok" if result.returncode == 0 else (result.stderr.strip() or "no message").splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--torch", nargs="+", metavar="VERSION")
    parser.add_argument("--python", nargs="+", metavar="VERSION", default=PYTHONS)
    arguments = parser.parse_args()
    torches = arguments.torch or offered_torches()
    rows = []
    for wheel in arguments.wheels:
        for python in arguments.python:
            ends = [torches[0], torches[-1]]
            for torch in torches if python == arguments.python[0] else dict.fromkeys(ends):
                layers = attempt(wheel, "", python, torch, ["python", str(HERE / "use_layers.py")])
                train = attempt(wheel, "[train]", python, torch, ["bash", "-ec", TRAIN])
                rows.append(Row(wheel.name, wheel.stat().st_size / 1e6, python, torch, layers, train))
                print(*asdict(rows[-1]).values(), sep="  ", flush=True)
    result = {
        "date": date.today().isoformat(),
        "commit": commit(),
        "command": command_line(),
        "rows": [asdict(row) for row in rows],
    }
    (HERE / "results/wheels.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row.layers == row.train == "ok" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
