"""Converts docstrings for the site: formulas to MathML, tables and references to Markdown.

Docstrings are reStructuredText with `.. math::`, simple tables and :func:`name`. mkdocs.yml loads this file
as an extension of griffe, which reads the sources without importing them.
"""

import re
from typing import Any

from griffe import Extension, Function, Object
from latex2mathml.converter import convert

_MATH = re.compile(r"^\.\. math::(?P<line>.*)\n(?P<block>(?:[ ]{4,}.*\n?)*)", re.MULTILINE)
_TABLE = re.compile(
    r"^(?P<rule>=+(?: +=+)+)\n(?P<head>.*)\n(?P=rule)\n(?P<body>(?:.+\n)+?)(?P=rule)$", re.MULTILINE
)
_ROLE = re.compile(r":(?:func|class):`(?:[\w.]+\.)?(\w+)`")


class Docstrings(Extension):
    """Rewrites the docstring of every function and class that griffe reads."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None and (isinstance(obj, Function) or obj.is_class):
            obj.docstring.value = to_markdown(obj.docstring.value, obj.module.path)


def to_markdown(text: str, module: str) -> str:
    """Convert formulas, tables and references to names of the same module to Markdown."""
    text = _MATH.sub(lambda found: f"\n{_formula(found['line'] + ' ' + found['block'])}\n", text)
    text = _TABLE.sub(_table, text)
    return _ROLE.sub(rf"[`\1`][{module}.\1]", text)


def _formula(latex: str) -> str:
    return convert(" ".join(latex.split()), display="block")


def _table(found: re.Match[str]) -> str:
    starts = [column.start() for column in re.finditer("=+", found["rule"])]
    lines = []
    for row in [found["head"], *found["body"].splitlines()]:
        cells = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        lines.append(f"| {' | '.join(cells)} |")
    lines.insert(1, "|---" * len(starts) + "|")
    return "\n".join(lines)
