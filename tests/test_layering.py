"""Imports point one way only, few files know yacs, files and functions are short: see docs/DESIGN.md."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "detector"
FILES = sorted(PACKAGE.rglob("*.py"))

# A part imports from those of earlier lines, and from no other of its own line.
LAYERS = (
    ("utils",),
    ("structures", "config"),
    ("layers",),
    ("data", "modeling", "evaluation"),
    ("engine",),
    ("self_training",),
    ("inference",),
    ("labeling", "reporting"),
    ("review",),
    ("commands",),
    ("__init__", "__main__"),
)
PARTS = [part for layer in LAYERS for part in layer]


def allowed(part: str) -> set[str]:
    """The parts that a part may import from."""
    (number,) = (number for number, layer in enumerate(LAYERS) if part in layer)
    return {earlier for layer in LAYERS[:number] for earlier in layer}


TOOLS = sorted((PACKAGE.parent / "tools").glob("*.py"))
FILE_LINES, FUNCTION_LINES = 400, 60
LONG = {"detector/config/settings.py"}  # one table of the keys


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


def test_imports_point_left_and_only_the_config_knows_yacs() -> None:
    for path in FILES:
        modules = imported_modules(path.read_text())
        own = {module.split(".")[1] for module in modules if module.startswith("detector.")}
        own &= {*PARTS, "_C"}  # else a name such as detector.__version__
        forbidden = own - {part_of(path)} - allowed(part_of(path))
        assert not forbidden, f"{path} must not import detector.{', detector.'.join(forbidden)}"
        knows = any(module.split(".")[0] == "yacs" for module in modules)
        assert not knows or part_of(path) == "config", path


def test_the_reader_of_imports_sees_them_all() -> None:
    source = "import detector.engine.loop\ndef f():\n    from detector import layers\n    import yacs.config"
    assert imported_modules(source) == {"detector.engine.loop", "detector.layers", "yacs.config"}


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


def test_files_and_functions_are_short() -> None:
    for path in [*FILES, *TOOLS]:
        if str(path.relative_to(PACKAGE.parent)) not in LONG:
            source = path.read_text()
            assert len(source.splitlines()) <= FILE_LINES, path
            long = {name: lines for name, lines in function_lengths(source).items() if lines > FUNCTION_LINES}
            assert not long, f"{path}: longer than {FUNCTION_LINES} lines: {long}"


def test_docstrings_do_not_count_for_the_length_of_a_function() -> None:
    source = 'def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'
    assert function_lengths(source) == {"f, line 1": 2}


def test_functions_of_one_name_are_all_measured() -> None:
    source = "class A:\n    def f(self):\n        x = 1\n        return x\n\ndef f():\n    return 1\n"
    assert function_lengths(source) == {"f, line 2": 3, "f, line 6": 2}
