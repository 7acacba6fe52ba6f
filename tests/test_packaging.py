"""Every import is declared, CI's lock file meets the bounds, and `make` says what a machine lacks."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from detector.utils import errors

tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
requirements = pytest.importorskip("packaging.requirements")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LOCKED = ("test", "dev", "docs")  # the extras that CI installs, and those that they name


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> list[requirements.Requirement]:
    """The requirements of the package and of these extras."""
    found = []
    for text in [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]:
        requirement = requirements.Requirement(text)
        found += declared(*requirement.extras) if requirement.name == PROJECT["name"] else [requirement]
    return found


def imported(folder: str) -> set[str]:
    """The top-level modules that the Python files of a folder import."""
    modules = set()
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules.add(node.module.split(".")[0])
    return modules


@pytest.mark.parametrize("folder", ["detector", "tools"])
def test_every_package_that_is_imported_is_declared(folder: str) -> None:
    names = {normalized(requirement.name) for requirement in declared(*EXTRAS)}
    distributions = packages_distributions()
    own = {path.stem for path in (ROOT / "tools").glob("*.py")} | {"detector"}
    for module in imported(folder) - set(sys.stdlib_module_names) - own:
        candidates = {normalized(name) for name in distributions.get(module, [module])}
        assert candidates & names, f"{folder} imports {module}, which pyproject.toml does not declare"


def test_the_extras_that_errors_name_install_the_modules() -> None:
    distributions = packages_distributions()
    for extra, modules in errors.EXTRAS.items():
        names = {normalized(requirement.name) for requirement in declared(extra)}
        for module in modules:
            assert names & {normalized(name) for name in distributions[module]}, module
    assert [requirement.name for requirement in declared()] == ["torch"]


def test_the_lock_file_meets_the_bounds_and_names_no_place() -> None:
    text = (ROOT / "requirements/ci.lock").read_text()
    entries = re.findall(r"^([\w.-]+)==(\S+) \\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    assert len(entries) == len(re.findall(r"^\w", text, re.M)) > 50  # each package has its hashes
    locked = {normalized(name): version for name, version, _ in entries}
    for requirement in declared(*LOCKED):
        version = locked.get(normalized(requirement.name))
        assert version, f"requirements/ci.lock lacks {requirement.name}: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement} is locked to {version}"
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|(?<!\w)/\w", text)


def test_make_says_what_to_install_where_venv_is_missing(tmp_path: Path) -> None:
    python = tmp_path / "python"  # as on Debian without python3-venv
    python.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1;; esac\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    command = ["make", "docs", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    said, make_error = result.stderr.splitlines()
    assert "python3-venv" in said
    assert make_error.startswith("make")
    assert not (tmp_path / "venv").exists()
