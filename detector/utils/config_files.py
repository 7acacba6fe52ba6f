"""Where configs are: a file, a run folder, or the name of one of the recipes that come with the package."""

import os
import re
from difflib import get_close_matches
from pathlib import Path

from detector.utils.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
_HERE = Path()


def recipes_folder() -> Path:
    """The folder of the recipes: in a wheel detector/_configs, in a checkout configs/ beside the package."""
    inside = _PACKAGE / "_configs"
    return inside if inside.is_dir() else _PACKAGE.parent / "configs"


def find_config(path: str | Path, folder: Path = _HERE) -> Path:
    """The file of a config: `path`, config.yaml of the run folder `path`, or the recipe of that name.

    A word without a suffix and a folder, such as toybox_pcl, is the name of a recipe unless there is such a
    file or folder.

    Args:
        path: the file, folder or name.
        folder: what the path is relative to.

    Raises:
        ConfigError: there is no recipe of that name; names the nearest ones.
    """
    file, name = folder / path, str(path)
    if os.path.exists(file / "config.yaml"):
        return file / "config.yaml"
    if os.path.exists(file) or not re.fullmatch(r"\w+", name):
        return file
    names = sorted(recipe.stem for recipe in recipes_folder().glob("*.yaml"))
    if name not in names:
        nearest = ", ".join(get_close_matches(name, names, n=3, cutoff=0))
        raise ConfigError(f"there is no file or recipe {name[:200]}; the nearest recipes are {nearest}")
    return recipes_folder() / f"{name}.yaml"
