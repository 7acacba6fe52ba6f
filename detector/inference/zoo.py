"""Trained detectors that have a name: which file each is, and where it is looked for.

Nothing is downloaded: the files are attached to the releases of this project (docs/model_zoo.md).
"""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from detector.utils.errors import DataError
from detector.utils.files import file_digest

CACHE = "DETECTOR_CACHE"  # environment variable: the folder of the files


class Weights(NamedTuple):
    """A checkpoint of a release."""

    sha256: str
    recipe: str  # the command that trains such a detector


ZOO: Mapping[str, Weights] = MappingProxyType({})


def cache_folder() -> Path:
    """The folder of the files: $DETECTOR_CACHE, or `detector` in the user's folder of caches."""
    if own := os.environ.get(CACHE):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "detector"


def find_weights(name: str | Path) -> Path:
    """The file of a name in ZOO, verified; any other path as it is, and one that exists whatever its name.

    Raises:
        FileNotFoundError: the file of the name is not there; says where to put it.
        DataError: it is not the file of the release.
    """
    if (known := ZOO.get(str(name))) is None or Path(name).exists():
        return Path(name)
    path = cache_folder() / f"{name}.pt"
    where = f"{path.name} is attached to the releases of this project (docs/model_zoo.md)"
    if not path.is_file():
        raise FileNotFoundError(
            f"the weights {name} are not in {path.parent}: {where}; put it there, or into a folder that the "
            f"environment variable {CACHE} names, or train them: {known.recipe}"
        )
    if (found := file_digest(path)) != known.sha256:
        raise DataError(
            f"{path} has the SHA-256 {found}, expected {known.sha256}: it is damaged, or of another release. "
            f"{where}; to use this file as it is, name it by its path"
        )
    return path
