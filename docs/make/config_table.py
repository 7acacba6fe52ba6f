"""Writes docs/config.md, the table of all config keys, from detector/config/settings.py.

python docs/make/config_table.py
"""

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path

from detector.config import VOC_CLASSES, Key, Settings
from detector.config.keys import declared_keys

PAGE = Path(__file__).resolve().parents[2] / "docs/config.md"

INTRO = """\
# Config keys

A config file holds the keys whose values differ from the defaults below. `_BASE_: FILE` in it names what it
builds on: another file, relative to its own folder, or a recipe such as `photos_mist_lite0`. Commands take
more keys after the file:

<!-- not run: takes minutes -->
```bash
python tools/train_net.py --config-file configs/toybox_pcl.yaml SOLVER.MAX_ITER 500 SOLVER.BASE_LR=2e-3
```

* `KEY VALUE` and `KEY=VALUE` mean the same.
* Lists need no brackets, which zsh would expand, and no quotes: `DATASETS.CLASSES cat,dog`,
  `INPUT.TEST_SIZES 480,` (a list of one ends with a comma). `DATASETS.CLASSES auto` and `SOLVER.STEPS none`
  are empty lists.
* A run writes all keys to `config.yaml` in its run folder. *May change* marks the keys that may have another
  value when the run is resumed, *weak detector* those that may as long as self-training has not begun.

In the path of a file or folder, `~` is your home folder and `$NAME` an environment variable.
Sizes are in pixels. This page is generated from `detector/config/settings.py`.
"""


def page() -> str:
    lines = [INTRO]
    for title, keys in sections():
        lines += [
            f"## {title}",
            "",
            "| key | default | allowed | meaning | resume |",
            "|---|---|---|---|---|",
        ]
        lines += [row(key) for key in keys]
        lines.append("")
    return "\n".join(lines)


def sections() -> Iterator[tuple[str, list[Key]]]:
    """The title of each section, which is the docstring of its dataclass, and its keys."""
    yield title_of(Settings), [key for key in declared_keys(Settings) if "." not in key.name]
    for field in dataclasses.fields(Settings):
        if dataclasses.is_dataclass(field.type):
            yield title_of(field.type), list(declared_keys(field.type, f"{field.name.upper()}."))


def title_of(settings: type) -> str:
    return (inspect.getdoc(settings) or "").rstrip(".")


def row(key: Key) -> str:
    resume = {(): "", ("weak",): "weak detector", ("weak", "student"): "may change"}[key.resume]
    allowed = ", ".join(f"`{choice}`" for choice in key.choices) or key.allowed
    return f"| `{key.name}` | {default(key.default)} | {allowed} | {key.meaning} | {resume} |"


def default(value: object) -> str:
    if value == VOC_CLASSES:
        return "the 20 of VOC"
    if isinstance(value, tuple):
        return ", ".join(map(default, value))
    if isinstance(value, float):
        return f"`{value:.4g}`"
    return f"`{value}`" if value != "" else "empty"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
