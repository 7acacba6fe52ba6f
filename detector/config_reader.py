"""Reading a config: yaml files that build on one another, and values that take the type of their default.

It knows no key: which there are, and what they mean, stands in detector/config.py.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import yaml

from detector.utils.errors import ConfigError

BASE_KEY = "_BASE_"


def read_yaml_chain(path: str | Path) -> list[tuple[Path, dict]]:
    """A yaml file behind those that it builds on, each with its content: the last to count comes last.

    `_BASE_: FILE` at the top level of a file names the one it builds on, relative to its own folder.

    Raises:
        FileNotFoundError: a file does not exist.
        ValueError: one is not yaml, holds no keys, or builds on itself (the chain is named).
    """
    chain: list[tuple[Path, dict]] = []
    base: str | None = str(path)
    folder = Path()
    while base is not None:
        file = folder / base
        known = [earlier for earlier, _ in chain]
        if file.resolve() in [earlier.resolve() for earlier in known]:
            circle = " -> ".join(map(str, [*known, file]))
            raise ConfigError(f"config file {path} builds on itself by {BASE_KEY}: {circle}")
        content = _read_yaml(file, f", the {BASE_KEY} of {known[-1]}," if known else "")
        base = content.pop(BASE_KEY, None)
        if not (base is None or isinstance(base, str)):
            raise ConfigError(f"config file {file}: {BASE_KEY} is {base!r}, expected the path of one file")
        chain.append((file, content))
        folder = file.parent
    return chain[::-1]


def flatten(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings as (dotted key, value)."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def merge(tree: dict, pairs: Iterable[tuple[str, Any]], source: str) -> None:
    """Change leaves of `tree` by (dotted key, value) pairs; each keeps its type.

    Raises:
        ValueError: an unknown key (the nearest ones are named) or a value of another type; begins with
            `source`.
    """
    defaults = dict(flatten(tree))
    for key, value in pairs:
        if key not in defaults:
            raise ConfigError(f"{source}{_unknown(key, list(defaults))}")
        node, (*groups, name) = tree, key.split(".")
        for group in groups:
            node = node[group]
        try:
            node[name] = _convert(value, defaults[key])
        except TypeError:
            raise ConfigError(f"{source}{key} is {value!r}, expected {_describe(defaults[key])}") from None


def _read_yaml(path: Path, role: str) -> dict:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"config file {path}{role} does not exist") from None
    return parse_yaml(text, f"config file {path}")


def parse_yaml(text: str, source: str) -> dict:
    """The keys and values of a yaml text; ValueError, which begins with `source`, where it holds none."""
    try:
        content = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not yaml: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{source} holds a {type(content).__name__}, expected keys and values")
    return content


def _unknown(key: str, keys: list[str]) -> str:
    """What to say of a key that is none: the three most alike, by the whole name or by its last part."""

    def likeness(known: str) -> float:
        given = key.upper()
        whole = SequenceMatcher(None, given, known).ratio()
        return max(whole, SequenceMatcher(None, given.split(".")[-1], known.split(".")[-1]).ratio())

    nearest = sorted(keys, key=likeness, reverse=True)[:3]
    members = [known for known in keys if known.startswith(f"{key}.")]
    if members:
        return f"{key} is a group of keys, not a key; its keys are {', '.join(members)}"
    return f"there is no key {key}; the nearest are {', '.join(nearest)}"


def _convert(value: Any, default: Any) -> Any:
    """`value` as the type of `default`; TypeError where it is not one. Words from a command line are read."""
    if isinstance(default, str):
        if not isinstance(value, str):
            raise TypeError
        return value
    if isinstance(value, str):  # the command line, and yaml's reading of 1e-3 without a dot
        try:
            value = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            raise TypeError from None
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)):
            raise TypeError
        return tuple(_convert(element, default[0]) for element in value)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise TypeError
    return value


def _describe(default: Any) -> str:
    """What a value of the default's type is, with an example."""
    names = {bool: "True or False", int: "an integer", float: "a number", str: "a string"}
    if isinstance(default, tuple):
        return f"a list, each {names[type(default[0])]}, like {list(default[:3])}"
    return f"{names[type(default)]}, like {default!r}"
