"""The wheel of `make wheel`, installed by pip from an index on this disk, works without the checkout."""

import os
import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DEMO = """
from pathlib import Path
import detector.layers
from detector import _C
from detector.commands.demo import demo
assert Path(_C.__file__).parent == Path(detector.__file__).parent
keys = ["SOLVER.MAX_ITER", 2, "SELF_TRAIN.MAX_ITER", 1, "DATASETS.WORKERS", 0, "INPUT.TRAIN_SIZES", (64,)]
print(detector.__file__, demo(Path("demo"), keys, train=6, test=3))
"""


@pytest.fixture
def wheel() -> Path:
    found = list((ROOT / "dist").glob("*.whl"))
    if not found:
        pytest.skip("there is no dist/*.whl: run `make wheel`")
    assert len(found) == 1, found
    return found[0]


@pytest.mark.slow
def test_pip_installs_the_extra_train_from_an_index(wheel: Path, tmp_path: Path) -> None:
    project = tmp_path / "index" / "detector-wsod"
    project.mkdir(parents=True)
    shutil.copy(wheel, project)
    (project / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    venv.create(tmp_path / "venv", symlinks=True)
    # The index has one package. What that needs is here already: all of this environment but the checkout.
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "detector" not in entry.name:
            (packages / entry.name).symlink_to(entry)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environment = {**kept, "PIP_CONFIG_FILE": os.devnull, "OMP_NUM_THREADS": "1"}

    def run(*words: object) -> str:
        done = subprocess.run(
            [*map(str, words)], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    python = tmp_path / "venv/bin/python"
    index = f"--index-url={project.parent.as_uri()}"
    run(python, "-m", "pip", "install", "--disable-pip-version-check", index, "detector-wsod[train]")
    assert "commit not known" in run(tmp_path / "venv/bin/detector", "env")  # it is no checkout
    first, report = run(python, "-c", DEMO).splitlines()[-1].split(" ")
    assert Path(first).is_relative_to(packages)
    assert (tmp_path / report).is_file()
