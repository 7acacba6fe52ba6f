"""Imports point one way only, few files know yacs, files and functions are short: see docs/DESIGN.md."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "detector"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each part of the package may import of the others.
ALLOWED = {
    "__init__": {"api", "utils"},  # when it is asked for, not at import
    "config": {"config_reader", "utils"},
    "config_reader": {"utils"},
    "utils": set(),
    "structures": {"utils"},
    "layers": {"utils", "structures"},
    "data": {"utils", "structures", "layers"},
    "evaluation": {"utils", "structures"},
    "modeling": {"utils", "structures", "layers"},
    "engine": {"utils", "structures", "layers", "data", "modeling", "evaluation"},
    "build_data": {"utils", "structures", "layers", "data"},
    "build_backbone": {"utils", "modeling"},
    "build_model": {"build_backbone", "utils", "structures", "layers", "modeling"},
    "build": {
        "config",
        "build_data",
        "build_model",
        "utils",
        "structures",
        "layers",
        "data",
        "modeling",
        "evaluation",
        "engine",
    },
    "api": {
        "config",
        "config_reader",
        "build_backbone",
        "build_data",
        "build_model",
        "build",
        "utils",
        "structures",
        "data",
        "modeling",
        "evaluation",
        "engine",
    },
    "cli": {"api", "utils"},
    "__main__": {"cli", "utils"},
}

TOOLS = sorted((PACKAGE.parent / "tools").glob("*.py"))
FILE_LINES, FUNCTION_LINES = 400, 60
LONG = {"detector/config.py"}  # one table of the keys


def imported_modules(source: str) -> set[str]:
    """Dotted names of everything that a file imports, in functions too."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import; write detector.…"
            modules |= {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_left(path: Path) -> None:
    modules = imported_modules(path.read_text())
    own = {module.split(".")[1] for module in modules if module.startswith("detector.")}
    own &= {*ALLOWED, "_C"}  # else a name such as detector.__version__
    forbidden = own - {part_of(path)} - ALLOWED[part_of(path)]
    assert not forbidden, f"detector/{part_of(path)} must not import detector.{', detector.'.join(forbidden)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_config_and_build_know_yacs(path: Path) -> None:
    knows = any(module.split(".")[0] == "yacs" for module in imported_modules(path.read_text()))
    assert not knows or part_of(path).split("_")[0] in {"config", "build", "api"}


def test_the_reader_of_imports_sees_them_all() -> None:
    source = "import detector.engine.train\ndef f():\n    from detector import layers\n    import yacs.config"
    assert imported_modules(source) == {"detector.engine.train", "detector.layers", "yacs.config"}


def function_lengths(source: str) -> dict[str, int]:
    """The lines of each function, by its name and first line, without its docstring."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            lines = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
            name = f"{node.name}, line {node.lineno}"
            lengths[name] = node.end_lineno - node.lineno + 1 - lines
    return lengths


@pytest.mark.parametrize("path", [*FILES, *TOOLS], ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_files_and_functions_are_short(path: Path) -> None:
    if str(path.relative_to(PACKAGE.parent)) in LONG:
        return
    source = path.read_text()
    assert len(source.splitlines()) <= FILE_LINES
    long = {name: lines for name, lines in function_lengths(source).items() if lines > FUNCTION_LINES}
    assert not long, f"longer than {FUNCTION_LINES} lines: {long}"


def test_docstrings_do_not_count_for_the_length_of_a_function() -> None:
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'
    assert function_lengths(source) == {"f, line 1": 2}


def test_functions_of_one_name_are_all_measured() -> None:
    source = "class A:\n    def f(self):\n        x = 1\n        return x\n\ndef f():\n    return 1\n"
    assert function_lengths(source) == {"f, line 2": 3, "f, line 6": 2}
