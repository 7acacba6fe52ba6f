"""docs/layers_support.md says what the tests show."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_tests_say() -> None:
    command = [sys.executable, "docs/make/support_table.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"run python docs/make/support_table.py\n{done.stdout}{done.stderr}"


def test_every_op_has_a_row() -> None:
    page = (ROOT / "docs/layers_support.md").read_text()
    ops = [path.stem for path in (ROOT / "detector/csrc/cuda").glob("*.cu")]
    assert ops
    for op in ops:
        assert f"`{op}`" in page, f"{op} has a kernel and no row in docs/make/support_table.py"
