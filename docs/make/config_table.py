"""Writes docs/config.md, the table of all config keys, from detector/config.py.

python docs/make/config_table.py
"""

from pathlib import Path

from detector.config import SECTIONS, VOC_CLASSES, Key

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
  value when the run is resumed. Of the keys `SELF_TRAIN` most may not once self-training has begun; its error
  names them.

In the path of a file or folder, `~` is your home folder and `$NAME` an environment variable.
Sizes are in pixels. This page is generated from `detector/config.py`.
"""


def page() -> str:
    lines = [INTRO]
    for title, keys in SECTIONS.items():
        lines += [
            f"## {title}",
            "",
            "| key | default | allowed | meaning | resume |",
            "|---|---|---|---|---|",
        ]
        lines += [row(key) for key in keys]
        lines.append("")
    return "\n".join(lines)


def row(key: Key) -> str:
    resume = "may change" if key.may_change else ""
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
