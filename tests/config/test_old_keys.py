"""Configs of runs that were made before MODEL.METHOD mist_wetectron took the place of nine keys."""

import pytest
import yaml

from detector.config import check_resumable, load_cfg, parse_cfg
from detector.config.old_keys import in_todays_keys
from detector.utils.errors import ConfigError

DEFAULTS = {
    "MODEL.METHOD": "mist",
    "MODEL.BACKBONE.NAME": "vgg16",
    "MODEL.BACKBONE.LAST_RELU": True,
    "MODEL.DROP_BLOCK.ENABLED": False,
    "MODEL.DROP_BLOCK.GRADIENT_FACTOR": 1.0,
    "MODEL.DROP_BLOCK.WIDTH": 128,
    "MODEL.DROP_BLOCK.NORM": "group",
    "MODEL.DROP_BLOCK.BOUND": "clamp",
    "MODEL.DROP_BLOCK.RESCALE": "roi",
    "MODEL.REGRESSION.ENABLED": False,
    "MODEL.REGRESSION.PER_STREAM": False,
    "MODEL.REGRESSION.BOX_REDUCTION": "weighted",
    "CLUSTERS.SUPPRESSION": "greedy",
}
THEIRS = DEFAULTS | {
    "MODEL.BACKBONE.LAST_RELU": False,
    "MODEL.DROP_BLOCK.ENABLED": True,
    "MODEL.DROP_BLOCK.GRADIENT_FACTOR": 0.01,
    "MODEL.DROP_BLOCK.WIDTH": 512,
    "MODEL.DROP_BLOCK.NORM": "batch",
    "MODEL.DROP_BLOCK.BOUND": "scale",
    "MODEL.DROP_BLOCK.RESCALE": "batch",
    "MODEL.REGRESSION.ENABLED": True,
    "MODEL.REGRESSION.PER_STREAM": True,
    "MODEL.REGRESSION.BOX_REDUCTION": "all",
    "CLUSTERS.SUPPRESSION": "any",
}


@pytest.mark.parametrize(
    ("pairs", "method"),
    [
        (DEFAULTS, "mist"),
        (DEFAULTS | {"MODEL.METHOD": "pcl"}, "pcl"),
        (DEFAULTS | {"MODEL.DROP_BLOCK.NORM": "batch"}, "mist"),  # which is off
        (THEIRS, "mist_wetectron"),
        (THEIRS | {"MODEL.DROP_BLOCK.ENABLED": False, "MODEL.DROP_BLOCK.WIDTH": 7}, "mist_wetectron"),
        (THEIRS | {"MODEL.BACKBONE.NAME": "small", "MODEL.BACKBONE.LAST_RELU": True}, "mist_wetectron"),
    ],
)
def test_the_method_says_what_the_keys_said(pairs, method):
    found = in_todays_keys(pairs, "a.pt")
    assert found["MODEL.METHOD"] == method
    assert found.keys() == {"MODEL.METHOD", *(key for key in DEFAULTS if key.endswith(("NAME", "ENABLED")))}


@pytest.mark.parametrize(
    ("pairs", "key"),
    [
        (THEIRS | {"CLUSTERS.SUPPRESSION": "greedy"}, "MODEL.BACKBONE.LAST_RELU is False"),
        (DEFAULTS | {"CLUSTERS.SUPPRESSION": "any"}, "CLUSTERS.SUPPRESSION is 'any'"),
        (THEIRS | {"MODEL.METHOD": "oicr"}, "MODEL.BACKBONE.LAST_RELU is False"),
    ],
)
def test_what_the_method_cannot_say_is_refused(pairs, key):
    with pytest.raises(ConfigError, match=f"a.pt: {key}, which this version has only with .* train again"):
        in_todays_keys(pairs, "a.pt")


def test_a_removed_key_may_have_its_default_alone():
    assert in_todays_keys({"INPUT.TEST_MAX_SIZES": [0]}, "a.pt") == {}
    with pytest.raises(ConfigError, match=r"a.pt: INPUT.TEST_MAX_SIZES is \[700\], which .* not support"):
        in_todays_keys({"INPUT.TEST_MAX_SIZES": [700]}, "a.pt")


def nested(pairs):
    content = {}
    for key, value in pairs.items():
        *groups, last = key.split(".")
        inner = content
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return yaml.safe_dump(content)


def test_an_old_checkpoint_loads_and_resumes(tmp_path, caplog):
    theirs = nested(THEIRS)
    assert parse_cfg(theirs, "a.pt").model.method == "mist_wetectron"
    assert "do not exist" not in caplog.text
    (tmp_path / "own.yaml").write_text(
        "MODEL: {METHOD: mist_wetectron, DROP_BLOCK: {ENABLED: True}, REGRESSION: {ENABLED: True}}"
    )
    changed = check_resumable(theirs, load_cfg(tmp_path / "own.yaml"), "weak")
    assert not any("MODEL" in line and "->" in line and "did not exist" not in line for line in changed)
