"""The config: its keys (settings.py), how files are read (reader.py), checks across keys (rules.py)."""

from detector.config.keys import Key
from detector.config.reader import (
    changed_keys,
    check_resumable,
    dump_cfg,
    load_cfg,
    parse_cfg,
    with_values,
)
from detector.config.rules import schedule_warnings
from detector.config.settings import KEYS, VOC_CLASSES, Settings
from detector.config.yaml_files import Overrides

__all__ = [
    "KEYS",
    "VOC_CLASSES",
    "Key",
    "Overrides",
    "Settings",
    "changed_keys",
    "check_resumable",
    "dump_cfg",
    "load_cfg",
    "parse_cfg",
    "schedule_warnings",
    "with_values",
]
