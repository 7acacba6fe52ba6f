"""docs/layers_support.md lists every op of this package and nothing else."""

import inspect
import re
from pathlib import Path

from detector import layers

ROOT = Path(__file__).parents[2]


def test_every_op_has_a_row() -> None:
    page = (ROOT / "docs/layers_support.md").read_text()
    rows = {
        name for cell in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(\w+)`", cell)
    }
    functions = {name: getattr(layers, name) for name in layers.__all__}
    assert rows == {
        name
        for name, value in functions.items()
        if inspect.isfunction(value) and value.__module__.startswith("detector.") and name != "explain"
    }
