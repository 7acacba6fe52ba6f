"""The words of the commands that come next: real paths, so that each can be pasted as it is."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from detector.config import load_cfg
from detector.data.datasets.image_labels import find_table
from detector.data.datasets.image_table import picture_name, read_table
from detector.utils.command_line import next_step
from detector.utils.errors import UserError

_WRITTEN = "# Written by: detector init"
_EXPORTS = {
    "coco": "coco.json",
    "voc": "Annotations",
    "yolo": "",
    "cvat": "annotations.xml",
}  # below the output


def hint_to_predict(run: Path, options: Sequence[str] = ()) -> None:
    """Name `detector predict` with the pictures to test on, for want of others; nothing if there are none."""
    with suppress(UserError, OSError):  # a hint must not fail what is done
        next_step("detector", "predict", run, *options, pictures_of(run))


def pictures_of(run: Path) -> Path:
    """The folder of the pictures to test on of a run, or of a checkpoint in it; else the data set's."""
    folder = run if run.is_dir() else run.parent
    cfg = load_cfg(folder)
    root = Path(cfg.datasets.root)
    if cfg.datasets.format == "voc":
        return root / "JPEGImages"
    if cfg.datasets.format == "image_labels":
        with suppress(UserError, OSError, IndexError):
            file = read_table(find_table(root, cfg.datasets.test_split))[0][0].file
            whole = str(root / file)
            root = Path(whole.removesuffix(picture_name(file)))
    relative = Path(os.path.relpath(root))
    return root if ".." in relative.parts else relative


def output_dir_of(config: Path | None) -> str | None:
    """OUTPUT_DIR of a config; None: there is none, or it cannot be read."""
    with suppress(UserError, OSError):
        return load_cfg(config).output_dir if config else None
    return None


def config_of(table: Path | None = None) -> Path | None:
    """The config that `detector init` wrote: that of a table, else the newest of the current folder."""
    if table is not None:
        beside = Path(f"{table.parent}.yaml")
        return beside if beside.is_file() else None
    found = [path for path in Path().glob("*.yaml") if path.is_file() and _is_of_init(path)]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def export_of(output: Path, formats: Sequence[str]) -> Path:
    """What a person has corrected: the files themselves, or what Label Studio exports."""
    form = next((form for form in formats if form in _EXPORTS), "")
    return output / _EXPORTS[form] if form else Path("export.json")


def _is_of_init(path: Path) -> bool:
    with open(path, errors="replace") as file:
        return file.readline().startswith(_WRITTEN)
