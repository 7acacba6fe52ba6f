"""What a test found so far, in a file that outlives a kill and says what it is of."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)


def read_results(path: Path, key: str) -> list[Any]:
    """The results that a file holds, in the order they came; [] where there is none, or it is of another key.

    What a kill left of its last line does not count.
    """
    return [json.loads(line) for line in _whole_lines(path, key)[1:]]


@contextmanager
def open_results(path: Path, key: str) -> Iterator[Callable[[Any], None]]:
    """A function that adds a result to a file: to those that are there, if they are of the same key.

    A result is on its way to the disk when the function returns: whatever happens to this process then, it is
    read whole or not at all.

    Args:
        key: what the results are of, as a checkpoint and a config: those of another are never mixed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = _whole_lines(path, key)
    with open(path, "r+b" if lines else "wb") as file:
        if lines:
            file.seek(sum(map(len, lines)))
            file.truncate()
        else:
            file.write(_as_line({"results_of": key}))

        def add(result: Any) -> None:
            file.write(_as_line(result))
            file.flush()

        yield add


def _as_line(content: Any) -> bytes:
    return json.dumps(content, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _whole_lines(path: Path, key: str) -> list[bytes]:
    """The first line, which says the key, and a line a result; [] where the file is none of these."""
    if not path.is_file():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines or lines[0] != _as_line({"results_of": key}):
        logger.warning("warning: %s is of other weights or another config: it is not used", path)
        return []
    return [line for line in lines if line.endswith(b"\n")]
