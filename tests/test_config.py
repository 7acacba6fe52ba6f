"""detector.config: defaults, yaml files and overrides, and what is refused."""

import re
from pathlib import Path

import pytest

from detector import config
from detector.config import check_resumable, get_cfg, load_cfg
from detector.config_reader import flatten


@pytest.fixture
def write(tmp_path):
    """Write a yaml file and return its path."""

    def write_yaml(text: str) -> Path:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path

    return write_yaml


def test_an_empty_file_gives_the_defaults_and_they_are_allowed(write):
    assert load_cfg(write("")) == get_cfg()


def test_file_then_overrides(write):
    path = write("SEED: 3\nSOLVER: {BASE_LR: 1e-2, STEPS: [10, 20], MAX_ITER: 30}\n")
    cfg = load_cfg(path, ["SOLVER.MAX_ITER", "40", "MODEL.METHOD", "oicr", "INPUT.FLIP", "False"])
    assert (cfg.SEED, cfg.SOLVER.BASE_LR, cfg.SOLVER.STEPS) == (3, 0.01, (10, 20))
    assert (cfg.SOLVER.MAX_ITER, cfg.MODEL.METHOD, cfg.INPUT.FLIP) == (40, "oicr", False)


def test_values_take_the_type_of_the_default(write):
    cfg = load_cfg(write(""), ["SOLVER.BASE_LR", "1", "MODEL.STREAM_WEIGHTS", "[3, 1, 1]", "OUTPUT_DIR", "7"])
    assert type(cfg.SOLVER.BASE_LR) is float
    assert cfg.MODEL.STREAM_WEIGHTS == (3.0, 1.0, 1.0)
    assert cfg.OUTPUT_DIR == "7"


def test_frozen(write):
    with pytest.raises(AttributeError):
        load_cfg(write("")).SOLVER.MAX_ITER = 1


def test_a_dump_reads_back_equal(write):
    cfg = load_cfg(write("SOLVER: {STEPS: []}"), ["DATASETS.CLASSES", "('a', 'b')"])
    assert load_cfg(write(cfg.dump())) == cfg


def test_a_run_goes_on_with_what_it_began_with_but_for_what_does_not_matter(write):
    began = load_cfg(write("")).dump()
    assert check_resumable(began, load_cfg(write(""))) == []
    harmless = load_cfg(write("{SOLVER: {MAX_ITER: 9}, TEST: {PICTURES: 3}}"))
    assert check_resumable(began, harmless) == ["SOLVER.MAX_ITER: 50000 -> 9", "TEST.PICTURES: 12 -> 3"]
    other = load_cfg(write("{SEED: 4, SOLVER: {MAX_ITER: 9, MOMENTUM: 0.5}}"))
    with pytest.raises(ValueError, match=r"another config: SEED: 0 -> 4; SOLVER.MOMENTUM: 0.9 -> 0.5\. "):
        check_resumable(began, other)
    with pytest.raises(ValueError, match=r"the config in the checkpoint: there is no key SEEDS; the nearest"):
        check_resumable(began + "SEEDS: 1\n", harmless)


def test_what_may_change_exists():
    keys = dict(flatten(get_cfg()))
    assert keys.keys() >= config._MAY_CHANGE
    assert {key.split(".")[0] for key in keys} >= config._GROUPS_THAT_MAY_CHANGE


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("SOLVER.BASE_L", "SOLVER.BASE_LR"),
        ("BASE_LR", "SOLVER.BASE_LR"),
        ("solver.max_iter", "SOLVER.MAX_ITER"),
    ],
)
def test_an_unknown_override_names_the_nearest_keys(write, key, nearest):
    with pytest.raises(ValueError, match=f"there is no key {key}; the nearest are {nearest}, "):
        load_cfg(write(""), [key, "1"])


def test_an_unknown_key_of_a_file_names_the_file_too(write):
    path = write("MODEL:\n  METOD: pcl\n")
    with pytest.raises(
        ValueError, match=f"{re.escape(str(path))}: there is no key MODEL.METOD; .*MODEL.METHOD"
    ):
        load_cfg(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("MODEL.METHOD", "plc", "MODEL.METHOD is 'plc', expected one of .*did you mean 'pcl'"),
        ("INPUT.SIDE", "xyz", "INPUT.SIDE is 'xyz', expected one of 'shortest', 'longest'$"),
        ("SOLVER.MAX_ITER", "1.5", "SOLVER.MAX_ITER is '1.5', expected an integer"),
        ("SOLVER.MAX_ITER", "0", "SOLVER.MAX_ITER is 0, expected more than 0"),
        ("SOLVER.BASE_LR", "fast", "SOLVER.BASE_LR is 'fast', expected a number"),
        ("SOLVER.BASE_LR", "-1", "SOLVER.BASE_LR is -1.0, expected more than 0"),
        ("SOLVER.WEIGHT_DECAY", "-1", "expected 0 or more"),
        ("SOLVER.WEIGHT_DECAY", "1e999", "expected finite"),
        ("INPUT.FLIP", "1", "INPUT.FLIP is '1', expected True or False"),
        ("INPUT.TRAIN_SIZES", "480", "INPUT.TRAIN_SIZES is '480', expected a list, each an integer"),
        ("INPUT.TRAIN_SIZES", "()", "at least one size"),
        ("INPUT.TEST_SIZES", "()", "at least one size"),
        ("INPUT.TEST_SIZES", "(480, 0)", "more than 0"),
        ("INPUT.MEAN", "(0.5, 0.5)", "INPUT.MEAN is .* expected 3 numbers"),
        ("INPUT.STD", "(0.5, 0.5)", "INPUT.STD is .* expected 3 numbers"),
        ("TEST.NMS", "1.5", "TEST.NMS is 1.5, expected from 0 to 1"),
        ("DATASETS.CLASSES", "('cat', 'cat')", "names, each once"),
        ("DATASETS.CLASSES", "[]", "names, as DATASETS.FORMAT is 'voc'"),
        ("DATASETS.FORMAT", "COCO", "did you mean 'coco'"),
        ("MODEL.STREAMS", "2", "MODEL.STREAM_WEIGHTS is .*as many numbers as MODEL.STREAMS, which is 2"),
        ("SOLVER.STEPS", "(20, 10)", "ascending"),
        ("MODEL.BACKBONE.NAME", "timm", "MODEL.BACKBONE.TIMM_NAME"),
        ("MODEL.BACKBONE.FROZEN_STAGES", "4", "expected 0 to 3, as MODEL.BACKBONE.NAME is 'vgg16'"),
        ("MODEL.BACKBONE.STRIDE", "32", "MODEL.BACKBONE.STRIDE is 32, expected 8 or 16, as .* 'vgg16'"),
        ("MODEL.DROP_BLOCK.SIZE", "2", "MODEL.DROP_BLOCK.SIZE is 2, expected an odd number"),
        ("MODEL.BOX_FEATURES.CONTEXT", "0.5", "CONTEXT is 0.5, expected 0, or more than 1"),
        ("MODEL.REGRESSION.LABELS", "top2", "expected one of 'top1', 'clusters'"),
        ("CLUSTERS.TOP_SHARE", "0", "CLUSTERS.TOP_SHARE is 0.0, expected more than 0"),
        ("SOLVER", "3", "SOLVER is a group of keys.*SOLVER.MAX_ITER"),
    ],
)
def test_bad_values_are_refused_naming_the_key(write, key, value, message):
    with pytest.raises(ValueError, match=message):
        load_cfg(write(""), [key, value])


def test_the_small_backbone_has_no_pretrained_weights(write):
    with pytest.raises(ValueError, match=r"MODEL.WEIGHTS is 'a.pth', expected ''"):
        load_cfg(write(""), ["MODEL.BACKBONE.NAME", "small", "MODEL.WEIGHTS", "a.pth"])


@pytest.mark.parametrize("words", [["PRECISION", "tf32"], ["MODEL.BACKBONE.NAME", "resnet50"]])
def test_winograd_is_for_vgg16_in_float32(write, words):
    load_cfg(write(""), ["MODEL.BACKBONE.WINOGRAD", "True"])
    with pytest.raises(ValueError, match=r"WINOGRAD is True, expected False, as MODEL\.BACKBONE\.NAME is"):
        load_cfg(write(""), ["MODEL.BACKBONE.WINOGRAD", "True", *words])


def test_clusters_to_regress_to_need_a_method_that_makes_them(write):
    words = ["MODEL.REGRESSION.LABELS", "clusters", "MODEL.METHOD"]
    load_cfg(write(""), [*words, "mist"])
    with pytest.raises(ValueError, match=r"LABELS is 'clusters', expected 'top1', as MODEL\.METHOD"):
        load_cfg(write(""), [*words, "wsddn"])


def test_overrides_come_in_pairs(write):
    with pytest.raises(ValueError, match="pairs KEY VALUE, found an odd number: SEED 1 DEVICE"):
        load_cfg(write(""), ["SEED", "1", "DEVICE"])


def test_a_missing_file():
    with pytest.raises(FileNotFoundError, match=r"config file nowhere\.yaml does not exist"):
        load_cfg("nowhere.yaml")


@pytest.mark.parametrize("text", ["a: [", "- 1\n- 2\n", "words"])
def test_a_file_that_is_not_a_config(write, text):
    with pytest.raises(ValueError, match="config file"):
        load_cfg(write(text))


def test_every_key_has_a_comment_and_every_check_names_a_key():
    source = Path(config.__file__).read_text().splitlines()
    bare = [line for line in source if re.match(r"    cfg\.\S+ = (?!CfgNode)", line) and "  # " not in line]
    assert bare == []
    keys = dict(flatten(get_cfg()))
    assert {*config._CHOICES, *config._POSITIVE, *config._AT_MOST_ONE} <= set(keys)
