"""Reading a config: YAML files that build on one another, and values converted to the type of their default.

The keys and their meanings are declared in detector/config/settings.py.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from detector.utils.config_files import find_config, nearest
from detector.utils.errors import ConfigError, describe_value
from detector.utils.files import check_regular, read_text

BASE_KEY = "_BASE_"
_MAX_FILES = 20  # in a chain of _BASE_
_MAX_BYTES = 4 * 2**20  # of a config file; 20,000 class names take 0.5 MB
_MAX_NODES = 50_000  # values and names of a YAML text

# The first line of a config that a run wrote. The count shows that the file was not cut off.
HEADER = "# Written by a run, with all {count} keys."
_HEADER_PATTERN = re.compile(r"# Written by a run, with all (\d+) keys\.")

Overrides = Mapping[str, object] | Sequence[object]  # {KEY: VALUE}, or words as on the command line


class YamlFile(NamedTuple):
    """One file of a chain."""

    path: Path
    content: dict
    written_by_run: bool  # it holds every key of the version of the package that wrote it


def read_yaml_chain(path: str | Path) -> list[YamlFile]:
    """A YAML file and the files that it builds on; a later one in the list overrides the earlier ones.

    `_BASE_: FILE` at the top level of a file names the file it builds on, relative to its own folder.

    Raises:
        FileNotFoundError: a file does not exist.
        UserError: a file is not UTF-8 or not YAML, is empty or was cut off, builds on itself, or the chain
            has more than 20 files.
    """
    chain: list[YamlFile] = []
    base: str | None = str(path)
    folder = Path()
    while base is not None:
        file = find_config(base, folder)
        known = [earlier.path for earlier in chain]
        kind = f"{BASE_KEY} of config file {known[-1]}:" if known else "config file"
        try:
            check_regular(file, kind)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}{nearest(file)}") from None
        if file.resolve() in [earlier.resolve() for earlier in known]:
            circle = " -> ".join(map(str, [*known, file]))
            raise ConfigError(f"config file {path} builds on itself by {BASE_KEY}: {circle}")
        if len(chain) == _MAX_FILES:
            raise ConfigError(f"config file {path} builds on more than {_MAX_FILES} files by {BASE_KEY}")
        text = read_text(file, kind, limit=_MAX_BYTES)
        content = parse_yaml(text, f"config file {file}")
        base = content.pop(BASE_KEY, None)
        if not (base is None or isinstance(base, str)):
            raise ConfigError(f"config file {file}: {BASE_KEY} is {base!r}, expected the path of one file")
        chain.append(YamlFile(file, content, bool(_HEADER_PATTERN.match(text))))
        folder = file.parent
    return chain[::-1]


def parse_yaml(text: str, source: str) -> dict:
    """The keys and values of a YAML text.

    Raises:
        ConfigError: the text is empty, is not YAML, sets a key twice, is too large or too deeply nested, or
            has fewer keys than its first line says; begins with `source`.
    """
    try:
        content = copy.deepcopy(_load(text))
    except Exception as error:  # yaml's readers of numbers and dates raise many kinds
        raise ConfigError(f"{source} is not yaml: {' '.join(str(error).split())}") from None
    if content is None:
        raise ConfigError(f"{source} is empty: restore it, or write {{}} to use the default of every key")
    if not isinstance(content, dict):
        raise ConfigError(f"{source} holds a {type(content).__name__}, expected keys and values")
    if header := _HEADER_PATTERN.match(text):
        count = sum(1 for _ in flatten(content))
        if count < int(header[1]) or not text.endswith("\n"):
            raise ConfigError(
                f"{source} was cut off: it has {count} keys, its first line says {header[1]}. Restore it, "
                "or delete that line if you removed keys on purpose"
            )
    return content


@lru_cache(maxsize=8)  # a command reads the same files several times, and each takes 20 ms
def _load(text: str) -> Any:
    return yaml.load(text, _Loader)


def flatten(tree: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings as (dotted key, value)."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def read_overrides(words: Overrides) -> Iterator[tuple[str, object]]:
    """(key, value) of each override in a mapping, or in KEY VALUE KEY VALUE ...; KEY=VALUE is one, too.

    Raises:
        ConfigError: the last key has no value, or `words` are something else, such as one text or pairs.
    """
    if isinstance(words, Mapping):
        yield from words.items()
        return
    rest = iter([None] if isinstance(words, str) else words)
    for word in rest:
        if not isinstance(word, str):
            raise ConfigError(f"overrides are {describe_value(words)}, expected {{KEY: VALUE}}")
        key, equals, text = word.partition("=")
        value = text if equals else next(rest, None)
        if value is None:
            raise ConfigError(f"{key} has no value: write KEY VALUE or KEY=VALUE")
        yield key, value


# What other trainers call their keys.
_OTHER_NAMES = {
    **dict.fromkeys(
        ("epoch", "epochs", "maxepochs", "numepochs", "trainepochs"),
        "SOLVER.MAX_ITER, in steps: epochs x images / SOLVER.IMAGES_PER_BATCH",
    ),
    **dict.fromkeys(("batch", "batchsize", "bs", "imsperbatch"), "SOLVER.IMAGES_PER_BATCH"),
    **dict.fromkeys(("lr", "learningrate", "initiallr"), "SOLVER.BASE_LR"),
    **dict.fromkeys(
        ("imgsz", "imgsize", "imagesize", "minsizetrain"), "INPUT.TRAIN_SIZES and INPUT.TEST_SIZES"
    ),
    **dict.fromkeys(("steps", "iters", "iterations", "maxsteps"), "SOLVER.MAX_ITER"),
    **dict.fromkeys(("project", "outdir", "savedir"), "OUTPUT_DIR"),
    **dict.fromkeys(("numworkers", "nworkers"), "DATASETS.WORKERS"),
}


def other_name(word: str) -> str | None:
    """Our key for what other trainers call --epochs, --batch, --lr or --imgsz; None: it is none of these."""
    return _OTHER_NAMES.get(re.sub(r"[^a-z]", "", word.lower()))


def unknown_key(key: str, keys: Iterable[str]) -> str:
    """The message for an unknown key: the three most similar keys, by the whole name or its last part."""

    if ours := other_name(key.rpartition(".")[2]):
        return f"there is no key {key[:200]}; here it is {ours}"

    def likeness(known: str) -> float:
        given = key.upper()[:200]
        whole = SequenceMatcher(None, given, known).ratio()
        return max(whole, SequenceMatcher(None, given.split(".")[-1], known.split(".")[-1]).ratio())

    members = [known for known in keys if known.startswith(f"{key}.")]
    if members:
        return f"{key} is a group of keys, not a key; its keys are {', '.join(members)}"
    nearest = sorted(keys, key=likeness, reverse=True)[:3]
    return f"there is no key {key[:200] or repr(key)}; the nearest are {', '.join(nearest)}"


class _Loader(yaml.SafeLoader):
    """SafeLoader that refuses keys set twice and texts whose values take much memory.

    An alias may stand for a list of plain values, as yaml writes it for two equal tuples. Aliases of
    mappings and of nested lists, by which a few lines expand to gigabytes, are refused.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        is_alias, mark = self.check_event(yaml.AliasEvent), self.peek_event().start_mark
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise yaml.MarkedYAMLError(f"more than {_MAX_NODES} values", mark)
        node = super().compose_node(parent, index)
        if is_alias and not _is_plain(node):
            raise yaml.MarkedYAMLError(
                f"an alias of nested values is not allowed, use {BASE_KEY} to share keys", mark
            )
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise yaml.MarkedYAMLError(f"{twice[0]} is set twice in one group", node.start_mark)
        return super().construct_mapping(node, deep)


def _is_plain(node: yaml.Node) -> bool:
    elements = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return all(isinstance(element, yaml.ScalarNode) for element in elements)
