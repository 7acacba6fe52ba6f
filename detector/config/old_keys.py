"""Configs that a version before 0.2 wrote, in the keys of today."""

from collections.abc import Mapping
from typing import Any

from detector.utils.errors import ConfigError, describe_value

# Keys that MODEL.METHOD mist_wetectron stands for: their defaults, and what the code of MIST's authors has.
_REPLACED: dict[str, tuple[Any, Any]] = {
    "MODEL.BACKBONE.LAST_RELU": (True, False),
    "MODEL.DROP_BLOCK.GRADIENT_FACTOR": (1.0, 0.01),
    "MODEL.DROP_BLOCK.WIDTH": (128, 512),
    "MODEL.DROP_BLOCK.NORM": ("group", "batch"),
    "MODEL.DROP_BLOCK.BOUND": ("clamp", "scale"),
    "MODEL.DROP_BLOCK.RESCALE": ("roi", "batch"),
    "MODEL.REGRESSION.PER_STREAM": (False, True),
    "MODEL.REGRESSION.BOX_REDUCTION": ("weighted", "all"),
    "CLUSTERS.SUPPRESSION": ("greedy", "any"),
}

_REMOVED: dict[str, Any] = {"INPUT.TEST_MAX_SIZES": [0]}  # by their defaults


def in_todays_keys(pairs: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The pairs of a whole config, without keys that are gone.

    Raises:
        ConfigError: one of them has a value that no key of today stands for; names it.
    """
    for key, default in _REMOVED.items():
        if pairs.get(key, default) != default:
            raise ConfigError(
                f"{source}: {key} is {describe_value(pairs[key])}, which this version does not support: "
                "use the version that made the run, or train again"
            )
    left = {key: value for key, value in pairs.items() if key not in _REPLACED | _REMOVED}
    own = {key: pairs[key] for key in _REPLACED if key in pairs and _matters(key, pairs)}
    changed = {key: value for key, value in own.items() if value != _REPLACED[key][0]}
    if not changed:
        return left
    others = [key for key, value in own.items() if value != _REPLACED[key][1]]
    if others or pairs.get("MODEL.METHOD") != "mist":
        key = next(iter(changed))
        raise ConfigError(
            f"{source}: {key} is {describe_value(changed[key])}, which this version has only with all that "
            "MODEL.METHOD mist_wetectron means: use the version that made the run, or train again"
        )
    return left | {"MODEL.METHOD": "mist_wetectron"}


def _matters(key: str, pairs: Mapping[str, Any]) -> bool:
    """Whether a key, of a branch or a network, changes anything in a config."""
    section = key.rpartition(".")[0]
    if section == "MODEL.BACKBONE":
        return bool(pairs.get("MODEL.BACKBONE.NAME") == "vgg16")
    return section == "CLUSTERS" or bool(pairs.get(f"{section}.ENABLED"))
