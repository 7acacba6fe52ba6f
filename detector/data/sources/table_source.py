"""Records the source of the tables of `detector init` in .source.json, to detect when it has changed."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detector.data.pictures import images_below, runs_folder
from detector.data.sheets.columns import NamedColumns
from detector.data.sources.tagged_pictures import find_sources
from detector.utils.errors import UserError, shortened
from detector.utils.files import atomic_write, file_digest, read_json

_RECORD = ".source.json"  # hidden, so that it is not taken for labels
_SUFFIXES = (".csv", ".jsonl", ".json", ".xml", ".txt", ".yaml", ".yml")


def record_source(
    folder: Path, pictures: Path, labels: Path | None, named: NamedColumns, no_class: Sequence[str]
) -> None:
    """Write .source.json, with paths relative to its folder, so that both can be moved together.

    Args:
        pictures, labels, named, no_class: as for :func:`find_tags`.
    """
    files = [file for path in find_sources(pictures, labels) for file in _files(path)]
    content = {
        "pictures": os.path.relpath(pictures, folder),
        "labels": None if labels is None else os.path.relpath(labels, folder),
        "columns": named._asdict(),
        "no_class": list(no_class),
        "files": {os.path.relpath(file, folder): _state(file) for file in files},
        "names": [] if files else _names(pictures),  # folders are the classes
    }
    with atomic_write(folder / _RECORD, "w") as file:
        json.dump(content, file, indent=1)


def remove_record(folder: Path) -> None:
    (folder / _RECORD).unlink(missing_ok=True)


def read_source(folder: Path) -> tuple[Path, Path | None, NamedColumns, tuple[str, ...]]:
    """The pictures and labels that the tables of a folder were made from, the columns that were named, and
    the labels that are no class.

    Raises:
        FileNotFoundError, DataError: there is no record, or it is damaged.
    """
    content = read_json(folder / _RECORD, "record of `detector init`")
    labels = content.get("labels")
    pictures = Path(os.path.normpath(folder / str(content.get("pictures"))))
    columns = content.get("columns") or {}  # an earlier version did not write them
    named = NamedColumns(columns.get("picture"), tuple(columns.get("labels") or ()))
    source = None if labels is None else Path(os.path.normpath(folder / str(labels)))
    return pictures, source, named, tuple(content.get("no_class") or ())


def changed_source(folder: Path) -> str:
    """The files of the source that have changed since `detector init`; "" if none has or none is known."""
    if not (folder / _RECORD).is_file():
        return ""
    try:
        content = read_json(folder / _RECORD)
        pictures, *_ = read_source(folder)
        states: dict[str, Any] = dict(content.get("files") or {})
        changed = [
            os.path.normpath(folder / name)
            for name, state in states.items()
            if _differs(folder / name, state)
        ]
        if content.get("names") and pictures.is_dir() and _names(pictures) != content["names"]:
            changed.append(str(pictures))
    except (UserError, OSError, TypeError, ValueError, AttributeError):
        return ""  # a damaged record only costs the warning: the tables are complete without it
    return shortened(changed, 3)


def _files(path: Path) -> Sequence[Path]:
    if path.is_dir():
        return [
            file for file in sorted(path.rglob("*")) if file.suffix.lower() in _SUFFIXES and file.is_file()
        ]
    return [path] if path.is_file() else []


def _names(pictures: Path) -> list[str]:
    return sorted(
        file.relative_to(pictures).as_posix() for file in images_below(pictures, runs_folder(pictures))
    )


def _state(file: Path) -> dict[str, Any]:
    state = file.stat()
    return {"bytes": state.st_size, "modified": state.st_mtime_ns, "sha256": file_digest(file)}


def _differs(file: Path, before: dict[str, Any]) -> bool:
    """Whether a file has other content; one that is missing counts as unchanged."""
    if not file.is_file():
        return False
    state = file.stat()
    if (state.st_size, state.st_mtime_ns) == (before.get("bytes"), before.get("modified")):
        return False  # without reading a large file
    return file_digest(file) != before.get("sha256")
