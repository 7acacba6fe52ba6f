"""Finds configs: files, run folders, and the recipes that come with the package, by name."""

import os
import re
import shlex
from difflib import get_close_matches
from pathlib import Path

from detector.utils.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
_HERE = Path()
_SUFFIXES = (".yaml", ".yml")


def recipes_folder() -> Path:
    """The folder of the recipes: in a wheel detector/_configs, in a checkout configs/ beside the package."""
    inside = _PACKAGE / "_configs"
    return inside if inside.is_dir() else _PACKAGE.parent / "configs"


def run_folder(file: Path) -> Path | None:
    """The run folder whose config.yaml `file` is; None: it is another config."""
    folder = file.parent
    made = any((folder / name).exists() for name in ("model_final.pt", "checkpoints", "run.json"))
    return folder if file.name == "config.yaml" and made else None


def find_config(path: str | Path, folder: Path = _HERE) -> Path:
    """The file of a config: `path`, config.yaml of the run folder `path`, or the recipe of that name.

    A word without a suffix and a folder, such as toybox_pcl, is the name of a recipe unless there is such a
    file or folder.

    Args:
        path: the file, folder or name.
        folder: what the path is relative to.

    Raises:
        ConfigError: there is no run folder or recipe of that name; names the nearest recipes.
    """
    file, name = folder / path, str(path)
    if os.path.exists(file / "config.yaml"):
        return file / "config.yaml"
    if os.path.isdir(file) and file.suffix not in _SUFFIXES:
        raise ConfigError(
            f"{file} is a folder without config.yaml{nearest(file)}: train first, or name a config or "
            "a recipe; for a folder of pictures `detector init` writes one"
        )
    if os.path.exists(file) or file.suffix in _SUFFIXES:
        return file
    if not re.fullmatch(r"\w+", name):
        raise ConfigError(
            f"there is no run folder {name[:200]}{nearest(file)}: train first, or name a config file (.yaml) "
            "or a recipe"
        )
    names = sorted(recipe.stem for recipe in recipes_folder().glob("*.yaml"))
    if name not in names:
        alike = ", ".join(get_close_matches(name, names, n=3, cutoff=0))
        raise ConfigError(f"there is no file or recipe {name[:200]}; the nearest recipes are {alike}")
    return recipes_folder() / f"{name}.yaml"


def how_to_make(path: Path, otherwise: str = "train first, or name another file") -> str:
    """What to do where the checkpoint `path` is missing: resume an interrupted training, or `otherwise`."""
    folder = path.parent
    if path.name != "model_final.pt" or not any((folder / "checkpoints").glob("[!.]*.pt")):
        return otherwise
    command = ("self-train", folder.parent) if folder.name == "self_train" else ("train", folder)
    resume = shlex.join(["detector", *map(str, command), "--resume"])
    return (
        f"its training has not finished: if it was interrupted, {resume} continues it; a file of "
        f"{folder / 'checkpoints'} may be named, too"
    )


def nearest(path: Path) -> str:
    """ " (did you mean ...?)" with what there is beside a path that does not exist or is wrong, or ""."""
    while not path.parent.is_dir() and path.parent != path:
        path = path.parent  # the first part that is missing
    if not path.parent.is_dir():
        return ""
    names = sorted(other.name for other in path.parent.iterdir() if other.name[0] != ".")
    known = [other for other in names if other != path.name and (Path(other).suffix or not path.suffix)]
    name = path.name.casefold()
    same = [other for other in known if Path(other).stem == path.stem or other.startswith(f"{path.name}_")]
    folded = {other.casefold(): other for other in reversed(known)}
    alike = [folded[other] for other in get_close_matches(name, folded, n=3)]
    found = [str(path.parent / other) for other in dict.fromkeys([*same, *alike])][:3]
    return f" (did you mean {' or '.join(found)}?)" if found else ""
