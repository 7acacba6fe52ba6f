"""What the page says of how a run was made: facts, and the keys that differ from its recipe."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from detector.config import KEYS, Settings, load_cfg
from detector.utils.config_files import find_config, run_folder
from detector.utils.errors import UserError
from detector.utils.files import read_json


def recipe_of(run: Path) -> tuple[str, dict[str, Any]]:
    """The config that the command which trained a run names, and the values of its keys.

    If there is none, or it is gone, the defaults of the package.
    """
    info = run / "run.json"
    command = str(read_json(info).get("command", "")) if info.is_file() else ""
    words: list[str] = []
    with suppress(ValueError):  # an open quotation mark
        words = shlex.split(command)
    for word in words:
        with suppress(UserError, OSError, ValueError):  # no config, or one that is gone or was changed since
            file = find_config(word)
            if file.is_file() and file.suffix in (".yaml", ".yml") and run_folder(file) is None:
                return file.name, load_cfg(file).values()
    return "the defaults", {key: declared.default for key, declared in KEYS.items()}


def differing_keys(
    recipe: Mapping[str, Any], cfg: Settings, run: Path, *, student: bool
) -> dict[str, tuple[object, object]]:
    """The value in the recipe and in the config of every key for which they differ.

    Args:
        cfg: of the detector that the page is about.
        student: it is one, whose keys SOLVER are those of SELF_TRAIN: those of the weak detector in `run` are
            compared instead, as the recipe means them.
    """
    values = cfg.values()
    if student:
        weak = run / "config.yaml"
        solver = load_cfg(weak).values() if weak.is_file() else recipe
        values |= {key: solver[key] for key in values if key.startswith("SOLVER.")}
    return {key: (recipe[key], value) for key, value in values.items() if value != recipe[key]}


def facts(metrics: Mapping[str, Any], run_info: Mapping[str, Any]) -> dict[str, str]:
    """The entries of metrics.json and run.json that identify the run."""
    packages = run_info["packages"] if isinstance(run_info.get("packages"), dict) else {}
    return {
        "weights": metrics["weights"],
        "command": str(run_info.get("command", "")),
        "date": str(run_info.get("date", "")),
        "commit": str(run_info.get("commit") or ""),
        "seed": str(run_info.get("seed", "")),
        "device": str(run_info.get("device_name", "")),
        "versions": ", ".join(f"{name} {version}" for name, version in packages.items() if version),
    }
