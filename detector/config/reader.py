"""From a YAML file, or the text in a checkpoint, and `KEY VALUE` arguments to checked settings."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from detector.config.keys import Training
from detector.config.old_keys import in_todays_keys
from detector.config.rules import check_settings
from detector.config.settings import KEYS, Settings, settings_of
from detector.config.yaml_files import (
    BASE_KEY,
    HEADER,
    Overrides,
    flatten,
    parse_yaml,
    read_overrides,
    read_yaml_chain,
    unknown_key,
)
from detector.utils.config_files import run_folder
from detector.utils.errors import ConfigError, describe_value, shortened

logger = logging.getLogger(__name__)


def load_cfg(path: str | Path, overrides: Overrides = ()) -> Settings:
    """The defaults, changed by a YAML file and then by overrides, and checked.

    A file with the key `_BASE_` holds only what differs from the file of that path, relative to its own.
    In a config.yaml that a run wrote, keys that no longer exist are ignored with a warning, and OUTPUT_DIR is
    its run folder, even if that was moved since training.

    Raises:
        FileNotFoundError: there is no such file.
        UserError: there is no such run folder, an unknown key (the nearest ones are named), a value that is
            not allowed, or a file that is empty, was cut off, is not YAML or builds on itself.
    """
    values = _defaults()
    files = read_yaml_chain(path)
    for file in files:
        source = f"config file {file.path}"
        pairs = dict(flatten(file.content))
        if file.written_by_run:
            pairs = _known(pairs, source)
        _change(values, pairs.items(), f"{source}: ")
    values["OUTPUT_DIR"] = _find_output_dir(files[-1].path, values["OUTPUT_DIR"])
    _change(values, read_overrides(overrides), "")
    return _finish(values, f"config file {path}{' and the overrides' if overrides else ''}: ")


def with_values(cfg: Settings, values: Mapping[str, Any]) -> Settings:
    """The settings with other values of some dotted keys, not checked."""
    return settings_of({**cfg.values(), **values})


def changed_keys(cfg: Settings, other: Settings) -> dict[str, Any]:
    """The dotted keys whose values differ, with the values of `other` as JSON has them: tuples are lists."""
    values = cfg.values()
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in other.values().items()
        if values[key] != value
    }


def parse_cfg(text: str, source: str, overrides: Overrides = ()) -> Settings:
    """The config whose text a checkpoint holds, changed by overrides; `source` names the checkpoint.

    Keys that no longer exist are ignored, and new ones have their defaults; a warning names both.

    Raises:
        ConfigError: the text is not YAML, or has values that are not allowed or the key `_BASE_` (no other
            file is read).
    """
    values = _defaults()
    pairs = dict(flatten(parse_yaml(text, source)))
    if BASE_KEY in pairs:
        raise ConfigError(f"{source}: there is no key {BASE_KEY} in a checkpoint")
    _change(values, _known(pairs, source).items(), f"{source}: ")
    _change(values, read_overrides(overrides), "")
    return _finish(values, f"{source}{' and the overrides' if overrides else ''}: ")


def check_resumable(text: str, cfg: Settings, training: Training) -> list[str]:
    """Compare the config that a run began with, as text, with the config that it would resume with.

    Args:
        training: the one to resume.

    Returns:
        lines "KEY: value -> new value" of the keys that differ and may, and of keys that only one of the
        two versions of the package has.

    Raises:
        ConfigError: keys differ that may not change in a resumed run; names them.
    """
    source = "the config in the checkpoint"
    began = _defaults()
    pairs = in_todays_keys(dict(flatten(parse_yaml(text, source))), source)
    gone, new = _differences(pairs)
    _change(began, ((key, value) for key, value in pairs.items() if key in KEYS), f"{source}: ")
    now = cfg.values()
    lines = {
        key: f"{key}: {describe_value(old)} -> {describe_value(now[key])}"
        for key, old in began.items()
        if old != now[key]
    }

    def line_of(key: str) -> str:
        """The line of a key, or of the key of SELF_TRAIN from which a student has it."""
        own = key.replace("SOLVER.", "SELF_TRAIN.", 1)
        return lines[own if training != "weak" and own in lines else key]

    if refused := dict.fromkeys(line_of(key) for key in lines if training not in KEYS[key].resume):
        raise ConfigError(
            f"this run began with another config: {'; '.join(refused)}. Resume with config.yaml of its run "
            "folder, or start a run in another OUTPUT_DIR"
        )
    ignored = [
        f"{key}: {describe_value(pairs[key])} -> ignored, there is no such key any more" for key in gone
    ]
    added = [f"{key}: did not exist -> {describe_value(now[key])}" for key in new if key not in lines]
    return [*dict.fromkeys(map(line_of, lines)), *ignored, *added]


def dump_cfg(cfg: Settings) -> str:
    """The text of a run folder's config.yaml; `load_cfg` notices if the file was cut off."""
    return f"{HEADER.format(count=len(KEYS))}\n{cfg.dump()}"


def _find_output_dir(file: Path, configured: str) -> str:
    """OUTPUT_DIR of a config file; of a run's config.yaml the folder that it is in now."""
    folder = run_folder(file)
    if folder and folder.name == "self_train" and Path(configured).name != "self_train":
        folder = folder.parent  # a student has the OUTPUT_DIR of the weak detector
    return configured if folder is None or folder.resolve() == Path(configured).resolve() else str(folder)


def _defaults() -> dict[str, Any]:
    return {key.name: key.default for key in KEYS.values()}


def _change(values: dict[str, Any], pairs: Iterable[tuple[str, Any]], source: str) -> None:
    """Change `values` by (key, value) pairs; errors begin with `source`."""
    for key, value in pairs:
        if key not in KEYS:
            raise ConfigError(f"{source}{unknown_key(key, KEYS)}")
        try:
            values[key] = KEYS[key].read(value)
            KEYS[key].check(values[key])
        except ConfigError as error:
            raise ConfigError(f"{source}{error}") from None


def _differences(pairs: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Of a config that was saved whole: its keys that do not exist any more, and the keys that it lacks."""
    return [key for key in pairs if key not in KEYS], [key for key in KEYS if key not in pairs]


def _known(pairs: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The pairs of a whole config whose keys exist; warnings name the differences."""
    pairs = in_todays_keys(pairs, source)
    gone, new = _differences(pairs)
    has, lacks = "has keys that do not exist, which are ignored", "lacks keys, which have their defaults"
    for keys, what in ((gone, has), (new, lacks)):
        if keys:
            logger.warning("%s %s: %s", source, what, shortened([key[:100] for key in keys]))
    return {key: value for key, value in pairs.items() if key in KEYS}


def _finish(values: Mapping[str, Any], source: str) -> Settings:
    """The settings, checked; errors begin with `source`."""
    cfg = settings_of(values)
    check_settings(cfg, source)
    return cfg
