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
    thresholds: Mapping[str, float]  # of each class, the score above which a box is shown


_RECIPE = "detector train configs/toybox_pcl.yaml --to detector --effort 1"
_TOYBOX = "bird", "car", "fish", "flower", "house", "robot"

ZOO: Mapping[str, Weights] = MappingProxyType(
    {
        "toybox_pcl": Weights(
            "86132854b6b4bc28b87c9d677dd3d98a5bd7d662281ea6b4a7b924e687e501fc",
            f"{_RECIPE} SOLVER.MAX_ITER 4400",
            dict(zip(_TOYBOX, (0.42, 0.49, 0.49, 0.50, 0.57, 0.61), strict=True)),
        ),
        "toybox_faster_rcnn": Weights(
            "e33b43a2b0b505d73be09dfd6ed342f04ff5bf90962a8f432d0af89f81bdfc45",
            f"{_RECIPE} SOLVER.MAX_ITER 4400",
            dict(zip(_TOYBOX, (0.66, 0.76, 0.83, 0.78, 0.84, 0.81), strict=True)),
        ),
        "toybox_fcos": Weights(
            "1f26a2099ae1f6db5858bedd6fe6bf918cf5c59e498a12ef08dbf3f6135fd3ab",
            f"{_RECIPE} SELF_TRAIN.DETECTOR fcos SELF_TRAIN.MAX_ITER 1200",
            dict(zip(_TOYBOX, (0.52, 0.55, 0.47, 0.48, 0.55, 0.49), strict=True)),
        ),
    }
)


def cache_folder() -> Path:
    """The folder of the files: $DETECTOR_CACHE, or `detector` in the user's folder of caches."""
    if own := os.environ.get(CACHE):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "detector"


def released(path: Path) -> Weights | None:
    """What is known of a file that :func:`find_weights` returned for a name; None: it is of no release."""
    return ZOO.get(path.stem) if path.parent == cache_folder() else None


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
