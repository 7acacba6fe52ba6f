"""The fenced blocks of README.md and docs/, and checks of commands without running them."""

import argparse
import importlib.util
import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from detector.config import load_cfg

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# tests/test_writing_an_op.py runs the blocks of this page.
FOLLOWED_ELSEWHERE = "writing_an_op.md"

# Reasons why a block is not run: <!-- not run: REASON --> in the line above it.
REASONS = {
    "by CI itself",  # .ci/run has the command
    "installs packages",
    "needs a GPU",
    "needs files from elsewhere",  # VOC, COCO, published weights
    "takes minutes",
}
# tests/layers/test_cpp.py compiles what is in cmake and cpp.
RUN = {"bash", "python"}
READ = {"text", "csv", "json", "yaml", "html", "xml", "diff", "bibtex", "cmake", "cpp"}

_BLOCK = re.compile(r"^(?:<!-- (?P<mark>.*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


class Block(NamedTuple):
    page: Path
    line: int  # of its fence
    language: str
    text: str
    mark: str | None  # the reason why it is not run

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def read_blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    # Multi-line comments become empty lines, so that line numbers stay the same.
    hidden = re.compile(r"^<!-- [^\n]*(?<!-->)\n.*?-->$", re.M | re.S)
    text = hidden.sub(lambda found: "\n" * found[0].count("\n"), page.read_text())
    blocks = []
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        mark = found["mark"] and found["mark"].removeprefix("not run: ")
        blocks.append(Block(page, line, found["language"], found["text"], mark))
    fences = len(re.findall("^```", text, re.M))
    assert fences == 2 * len(blocks), (
        f"{page}: {fences} fences, {len(blocks)} blocks: one is indented or open"
    )
    return blocks


def commands_of(text: str) -> list[list[str]]:
    """The words of each command of a block, as a shell splits them."""
    lines = text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def shell_expansions(text: str) -> list[str]:
    """Variables, brackets and wildcards in a block, which bash and zsh expand differently."""
    unquoted = re.sub(r"'[^']*'|\"[^\"$]*\"|#.*", "", text)
    return re.findall(r"[$\[\]*?()~]", unquoted)


class _Parsed(BaseException):  # the tools turn an Exception into an exit status
    """Raised with the parsed arguments of a tool, before the tool does anything."""


def check_command(words: list[str], root: Path = ROOT) -> None:
    """Assert that the program exists and accepts these options, and that its config loads with these keys."""
    command = shlex.join(words)
    if words[0] == "torchrun":  # its own options come first
        tool = next((i for i, word in enumerate(words) if word.endswith(".py") or word == "detector"), None)
        assert tool is not None, f"{command}: expected a script, or -m detector"
        words = words[tool:] if words[tool] == "detector" else ["python", *words[tool:]]
    if words[0] == "detector":
        words = ["python", str(ROOT / "detector" / "__main__.py"), *words[1:]]
    if words[0] == "python" and words[1] == "-m":
        assert importlib.util.find_spec(words[2]), f"{command}: there is no module {words[2]}"
    elif words[0] == "python":
        options = _parse(words, root)
        first = [word for key in ("config_file", "config") if (word := getattr(options, key, None))]
        if first:
            config, *overrides = [*first, *options.overrides]
            if (root / config).is_file() or re.fullmatch(r"\w+", config):  # a file, or the name of a recipe
                load_cfg(root / config if (root / config).is_file() else config, overrides)
            else:  # written by a run or by `detector init`
                written = config.startswith("runs/") or config == "mine.yaml"
                assert written, f"{command}: there is no {config}"
    elif words[0] == "make":
        targets = re.findall(r"^([a-z][\w-]*(?: [\w-]+)*):", (ROOT / "Makefile").read_text(), re.M)
        known = {name for target in targets for name in target.split()}
        asked = {word for word in words[1:] if "=" not in word}
        assert asked <= known, f"{command}: the Makefile has no target {', '.join(asked - known)}"
    elif words[:2] == ["pip", "install"]:
        packages = re.findall(r'"([\w-]+)', (ROOT / "pyproject.toml").read_text())
        for word in (word for word in words[2:] if re.match(r"\w", word) and not word.startswith("dist/")):
            name = re.match(r"[\w-]+", word)[0]
            assert name in packages, f"{command}: {name} is not in pyproject.toml"
    else:
        assert words[0] in ("git", "cd"), (
            f"{command}: tests/support/doc_blocks.py does not know the program {words[0]}"
        )


def _parse(words: list[str], root: Path) -> argparse.Namespace:
    """The arguments of a command, parsed by the parser of the script."""
    path = root / words[1]
    assert path.is_file(), f"{shlex.join(words)}: there is no {words[1]}"
    with pytest.MonkeyPatch.context() as patch:
        for method in ("parse_args", "parse_intermixed_args", "parse_known_intermixed_args"):
            original = getattr(argparse.ArgumentParser, method)

            def parse(self, arguments=None, namespace=None, original=original):
                parsed = original(self, arguments, namespace)
                if isinstance(parsed, tuple) and parsed[1]:
                    return parsed  # the caller refuses what is left over
                raise _Parsed(parsed[0] if isinstance(parsed, tuple) else parsed)

            patch.setattr(argparse.ArgumentParser, method, parse)
        try:
            run_script(path, words[2:], patch)
        except _Parsed as parsed:
            return parsed.args[0]
        except SystemExit as refused:
            raise AssertionError(f"{shlex.join(words)}: rejected by its parser, see above") from refused
    raise AssertionError(f"{words[1]} has no parser")


def run_script(path: Path, arguments: list[str], patch: pytest.MonkeyPatch) -> None:
    """Run `python PATH ARGUMENTS` in this process."""
    patch.setattr(sys, "argv", [str(path), *arguments])
    patch.syspath_prepend(str(path.parent.resolve()))
    runpy.run_path(str(path), run_name="__main__")
