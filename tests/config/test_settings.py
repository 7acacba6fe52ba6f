"""detector.config: defaults, YAML files and overrides, and what is refused."""

import math
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from detector.config import KEYS, Settings, check_resumable, dump_cfg, load_cfg, parse_cfg, schedule_warnings
from detector.utils.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def write(tmp_path):
    """Write a yaml file and return its path."""

    def write_yaml(text: str) -> Path:
        path = tmp_path / "c.yaml"
        path.write_text(text)
        return path

    return write_yaml


@pytest.fixture
def load(write):
    """The config of the defaults and overrides."""
    return lambda *words: load_cfg(write("{}"), words)


def test_the_defaults_are_allowed(load):
    assert load() == Settings()
    for key in KEYS.values():
        key.check(key.default)


def test_every_key_is_declared_once_with_a_meaning():
    assert list(Settings().values()) == list(KEYS)
    for key in KEYS.values():
        assert re.fullmatch(r"\S.*\.", key.meaning), key.name
        assert key.default != (), f"{key.name}: the type of the elements comes from the default"
        assert all(isinstance(choice, str) for choice in key.choices)
        assert isinstance(key.default, tuple) or not key.empty


def test_the_page_of_the_keys_is_generated_from_them():
    script = runpy.run_path(str(ROOT / "docs/make/config_table.py"))
    assert script["page"]() == script["PAGE"].read_text(), "run python docs/make/config_table.py"


def test_file_then_overrides(write):
    path = write("SEED: 3\nSOLVER: {BASE_LR: 1e-2, STEPS: [10, 20], MAX_ITER: 30}\n")
    cfg = load_cfg(path, ["SOLVER.MAX_ITER", "40", "MODEL.METHOD", "oicr", "INPUT.FLIP", "False"])
    assert (cfg.seed, cfg.solver.base_lr, cfg.solver.steps) == (3, 0.01, (10, 20))
    assert (cfg.solver.max_iter, cfg.model.method, cfg.input.flip) == (40, "oicr", False)


def test_values_take_the_type_of_the_default(load):
    cfg = load("SOLVER.BASE_LR", "1", "MODEL.STREAM_WEIGHTS", "[3, 1, 1]", "OUTPUT_DIR", "7")
    assert type(cfg.solver.base_lr) is float
    assert cfg.model.stream_weights == (3.0, 1.0, 1.0)
    assert cfg.output_dir == "7"


def test_a_list_emptied_in_a_file_can_be_overridden(write):
    path = write("{DATASETS: {CLASSES: []}, SOLVER: {STEPS: []}}")
    cfg = load_cfg(path, ["DATASETS.CLASSES", "[a, b]", "SOLVER.STEPS", "[3]"])
    assert (cfg.datasets.classes, cfg.solver.steps) == (("a", "b"), (3,))


@pytest.mark.parametrize("form", ["voc", "coco", "image_labels"])
@pytest.mark.parametrize("value", ["auto", "[]", "()"])
def test_classes_of_the_data_set_are_an_empty_list(load, form, value):
    assert load("DATASETS.FORMAT", form, "DATASETS.CLASSES", value).datasets.classes == ()


def test_words_for_empty_lists_in_a_file(write):
    cfg = load_cfg(write("{DATASETS: {CLASSES: auto}, SOLVER: {STEPS: none}}"))
    assert (cfg.datasets.classes, cfg.solver.steps) == ((), ())


@pytest.mark.parametrize("word", ["SOLVER.MAX_ITER=7", "OUTPUT_DIR=a=b"])
def test_an_override_may_be_one_word(load, word):
    cfg = load("SEED", "1", word, "DEVICE", "cpu")
    assert (cfg.seed, cfg.device) == (1, "cpu")
    key, _, value = word.partition("=")
    assert str(cfg.values()[key]) == value


@pytest.mark.parametrize("words", [["SEED", "1", "DEVICE"], ["SEED=1", "DEVICE"]])
def test_an_override_without_a_value_is_named(load, words):
    with pytest.raises(ConfigError, match=r"^DEVICE has no value: write KEY VALUE or KEY=VALUE"):
        load(*words)


@pytest.mark.parametrize("words", ["SEED 1", [("SEED", 1)], [1, 2]])
def test_overrides_of_another_form_are_named(write, words):
    with pytest.raises(ConfigError, match=r"^overrides are .*, expected \{KEY: VALUE\}$"):
        load_cfg(write("SEED: 3\n"), words)


def test_paths_and_numbers_of_numpy_are_values(write, tmp_path):
    words = {"OUTPUT_DIR": tmp_path, "SOLVER.MAX_ITER": np.int64(7), "SOLVER.BASE_LR": np.float64(0.1)}
    cfg = load_cfg(write("SEED: 3\n"), words)
    assert str(tmp_path) == cfg.output_dir
    assert (cfg.solver.max_iter, cfg.solver.base_lr) == (7, 0.1)
    assert (type(cfg.solver.max_iter), type(cfg.solver.base_lr)) == (int, float)


def test_frozen(load):
    with pytest.raises(AttributeError):
        load().solver.max_iter = 1


def test_what_a_run_writes_reads_back_equal(write):
    cfg = load_cfg(write("SOLVER: {STEPS: []}"), ["DATASETS.CLASSES", "('a', 'b')"])
    assert load_cfg(write(dump_cfg(cfg))) == load_cfg(write(cfg.dump())) == cfg


def test_the_config_of_a_run_that_was_cut_off_is_refused(write):
    text = dump_cfg(Settings())
    lines = text.splitlines(keepends=True)
    for count in (1, len(lines) // 2, len(lines) - 1):
        with pytest.raises(ConfigError, match=r"c\.yaml (is empty|was cut off)"):
            load_cfg(write("".join(lines[:count])))
    with pytest.raises(ConfigError, match=r"c\.yaml was cut off"):
        load_cfg(write(text[:-1]))


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null"])
def test_an_empty_file_is_refused(write, text):
    with pytest.raises(ConfigError, match=r"c\.yaml is empty"):
        load_cfg(write(text))


def test_a_resumed_run_may_change_what_its_steps_do_not_depend_on(write, load):
    began = load().dump()
    assert check_resumable(began, load(), "weak") == []
    harmless = load("SOLVER.MAX_ITER", "9", "TEST.PICTURES", "3")
    assert check_resumable(began, harmless, "weak") == [
        "SOLVER.MAX_ITER: 50000 -> 9",
        "TEST.PICTURES: 12 -> 3",
    ]
    other = load("SEED", "4", "SOLVER.MAX_ITER", "9", "SOLVER.MOMENTUM", "0.5")
    with pytest.raises(ConfigError, match=r"SEED: 0 -> 4; SOLVER.MOMENTUM: 0.9 -> 0.5\. ") as error:
        check_resumable(began, other, "weak")
    assert "MAX_ITER" not in str(error.value)
    fewer = load("SOLVER.MAX_ITER", "9", "SELF_TRAIN.MAX_ITER", "9")  # as the config of a student has both
    assert check_resumable(began, fewer, "student") == ["SELF_TRAIN.MAX_ITER: 10000 -> 9"]
    boxes = load("SELF_TRAIN.NMS", "0.5")
    assert check_resumable(began, boxes, "weak") == ["SELF_TRAIN.NMS: 0.3 -> 0.5"]
    with pytest.raises(ConfigError, match=r"SELF_TRAIN\.NMS: 0\.3 -> 0\.5"):
        check_resumable(began, boxes, "student")


def without(text: str, line: str) -> str:
    assert f"{line}\n" in text
    return text.replace(f"{line}\n", "")


def test_a_run_of_a_version_with_other_keys_can_be_resumed(load):
    began = without(load().dump(), "  MOMENTUM: 0.9") + "OLD: {KEY: 1}\n"
    lines = check_resumable(began, load(), "weak")
    assert [line.split(":")[0] for line in lines] == ["OLD.KEY", "SOLVER.MOMENTUM"]
    with pytest.raises(ConfigError, match=r"SOLVER\.MOMENTUM: 0\.9 -> 0\.5"):
        check_resumable(began, load("SOLVER.MOMENTUM", "0.5"), "weak")


def test_a_checkpoint_of_a_version_with_other_keys_loads_with_warnings(load, caplog):
    cfg = load("SEED", "3")
    assert parse_cfg(cfg.dump(), "the config in a.pt") == cfg
    assert not caplog.records
    text = without(cfg.dump(), "  MOMENTUM: 0.9") + "OLD: {KEY: 1}\n"
    assert parse_cfg(text, "the config in a.pt", ["SEED", "4"]) == load("SEED", "4")
    gone, new = [record.getMessage() for record in caplog.records]
    assert "the config in a.pt" in gone
    assert gone.endswith("OLD.KEY")
    assert new.endswith("SOLVER.MOMENTUM")


def test_the_config_file_of_such_a_run_loads_with_warnings_too(write, caplog):
    text = dump_cfg(Settings()) + "OLD: {KEY: 1}\n"
    assert load_cfg(write(text)) == Settings()
    (record,) = caplog.records
    assert "c.yaml" in record.getMessage()
    assert "OLD.KEY" in record.getMessage()
    with pytest.raises(ConfigError, match=r"no key OLD\.KEY"):  # a file of one's own may be misspelled
        load_cfg(write(Settings().dump() + "OLD: {KEY: 1}\n"))


def test_a_checkpoint_reads_no_other_file():
    with pytest.raises(ConfigError, match=r"a\.pt: there is no key _BASE_"):
        parse_cfg("_BASE_: /etc/passwd", "a.pt")


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("SOLVER.BASE_L", "SOLVER.BASE_LR"),
        ("BASE_LR", "SOLVER.BASE_LR"),
        ("solver.max_iter", "SOLVER.MAX_ITER"),
    ],
)
def test_an_unknown_override_names_the_nearest_keys(load, key, nearest):
    with pytest.raises(ConfigError, match=f"there is no key {key}; the nearest are {nearest}, "):
        load(key, "1")


def test_an_unknown_key_of_a_file_names_the_file_too(write):
    path = write("MODEL:\n  METOD: pcl\n")
    with pytest.raises(
        ConfigError, match=f"{re.escape(str(path))}: there is no key MODEL.METOD; .*MODEL.METHOD"
    ):
        load_cfg(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("MODEL.METHOD", "plc", "MODEL.METHOD is 'plc', expected one of .*did you mean 'pcl'"),
        ("INPUT.SIDE", "xyz", "INPUT.SIDE is 'xyz', expected one of 'shortest', 'longest'$"),
        ("SOLVER.MAX_ITER", "1.5", "SOLVER.MAX_ITER is '1.5', expected an integer"),
        ("SOLVER.MAX_ITER", "0", "SOLVER.MAX_ITER is 0, expected more than 0"),
        ("SOLVER.MAX_ITER", "1" + 400 * "0", "SOLVER.MAX_ITER is .* less than"),
        ("SOLVER.BASE_LR", "fast", "SOLVER.BASE_LR is 'fast', expected a number"),
        ("SOLVER.BASE_LR", "1" + 400 * "0", "SOLVER.BASE_LR is .*expected a number"),
        ("SOLVER.BASE_LR", 1000 * "(", "SOLVER.BASE_LR is .*expected a number"),
        ("SOLVER.BASE_LR", "-1", "SOLVER.BASE_LR is -1.0, expected more than 0"),
        ("SOLVER.WEIGHT_DECAY", "-1", "expected at least 0"),
        ("SOLVER.WEIGHT_DECAY", "1e999", "finite"),
        ("SOLVER.WEIGHT_DECAY", math.nan, "finite"),
        ("SEED", "4294967296", "SEED is 4294967296, expected .*less than 4294967296"),
        ("INPUT.FLIP", "1", "INPUT.FLIP is '1', expected True or False"),
        ("INPUT.TRAIN_SIZES", "480", "INPUT.TRAIN_SIZES is '480', expected a list, each an integer"),
        ("INPUT.TRAIN_SIZES", "()", "at least one size"),
        ("INPUT.TEST_SIZES", "()", "at least one size"),
        ("INPUT.TEST_SIZES", "(480, 0)", "more than 0"),
        ("SELF_TRAIN.SIZES", "()", "at least one size"),
        ("SELF_TRAIN.SCALE_JITTER", "(1.25,0.5)", "the lower one first"),
        ("SELF_TRAIN.SCALE_JITTER", "(0.5,)", "two factors"),
        ("SELF_TRAIN.SCALE_JITTER", "(0,1)", "more than 0"),
        ("SELF_TRAIN.COPY_PASTE", "1.5", "at least 0 and at most 1"),
        ("SELF_TRAIN.MOSAIC", "-0.5", "at least 0 and at most 1"),
        ("INPUT.MEAN", "(0.5, 0.5)", "INPUT.MEAN is .* expected 3 numbers"),
        ("INPUT.STD", "(0.5, 0.5)", "INPUT.STD is .* expected 3 numbers"),
        ("TEST.NMS", "1.5", "TEST.NMS is 1.5, expected at least 0 and at most 1"),
        ("MODEL.BOX_FEATURES.DROPOUT", "1", "DROPOUT is 1.0, expected at least 0 and less than 1"),
        ("MODEL.BOX_FEATURES.DROP_CELLS", "1", "DROP_CELLS is 1.0, expected at least 0 and less than 1"),
        ("DATASETS.CLASSES", "('cat', 'cat')", "names, each once"),
        ("DATASETS.CLASSES", "cat", "DATASETS.CLASSES is 'cat', expected a list, .* or auto"),
        ("DATASETS.CLASSES", "[cat, ]]", "expected a list"),
        ("DATASETS.CLASSES", "", "expected a list"),
        ("DATASETS.FORMAT", "COCO", "did you mean 'coco'"),
        ("MODEL.STREAMS", "2", "MODEL.STREAM_WEIGHTS is .*as many numbers as MODEL.STREAMS, which is 2"),
        ("SOLVER.STEPS", "(20, 10)", "ascending"),
        ("MODEL.BACKBONE.NAME", "timm", "MODEL.BACKBONE.TIMM_NAME"),
        ("MODEL.BACKBONE.TIMM_NAME", "hf-hub:a/b", "TIMM_NAME is 'hf-hub:a/b', expected the plain name"),
        ("MODEL.DROP_BLOCK.SIZE", "2", "MODEL.DROP_BLOCK.SIZE is 2, expected an odd number"),
        ("MODEL.BOX_FEATURES.CONTEXT", "0.5", "CONTEXT is 0.5, expected 0, or more than 1"),
        ("MODEL.REGRESSION.LABELS", "top2", "expected one of 'top1', 'clusters'"),
        ("CLUSTERS.TOP_SHARE", "0", "CLUSTERS.TOP_SHARE is 0.0, expected more than 0"),
        ("SOLVER", "3", "SOLVER is a group of keys.*SOLVER.MAX_ITER"),
    ],
)
def test_bad_values_are_refused_naming_the_key(load, key, value, message):
    with pytest.raises(ConfigError, match=message):
        load(key, value)


@pytest.mark.parametrize("text", ["TEST: {NMS: 2}", "MODEL: {STREAMS: 2}", "SEED: a"])
def test_bad_values_of_a_file_name_the_file(write, text):
    with pytest.raises(ConfigError, match=r"config file .*c\.yaml: (TEST|MODEL|SEED)"):
        load_cfg(write(text))
    with pytest.raises(ConfigError, match=r"a\.pt: (TEST|MODEL|SEED)"):
        parse_cfg(text, "a.pt")


def test_clusters_to_regress_to_need_a_method_that_makes_them(load):
    words = ["MODEL.REGRESSION.LABELS", "clusters", "MODEL.METHOD"]
    load(*words, "mist")
    with pytest.raises(ConfigError, match=r"LABELS is 'clusters', expected 'top1', because MODEL\.METHOD"):
        load(*words, "wsddn")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "MODEL.REGRESSION.LABELS=clusters",
            "LABELS is 'clusters', expected 'top1', because .*mist_wetectron",
        ),
        ("MODEL.REGRESSION.SCORE_WEIGHT=5", r"SCORE_WEIGHT is 5.0, expected 1, because .*mist_wetectron"),
    ],
)
def test_keys_that_regression_in_each_stream_would_ignore_are_refused(load, words, message):
    own = ["MODEL.REGRESSION.ENABLED=True", "MODEL.METHOD=mist_wetectron"]
    load(*own)
    with pytest.raises(ConfigError, match=message):
        load(*own, words)


def test_a_schedule_that_is_cut_off_gets_warnings(load):
    assert schedule_warnings(load()) == []
    short = schedule_warnings(load("SOLVER.MAX_ITER", "400"))
    assert ["WARMUP_ITERS" in line for line in short] == [True, False]
    assert "35000" in short[1]
    assert schedule_warnings(load("SOLVER.MAX_ITER", "30000", "SOLVER.SCHEDULE", "cosine")) == []
    (ignored,) = schedule_warnings(load("SOLVER.STEPS", "(9,)", "SOLVER.SCHEDULE", "cosine"))
    assert "ignores SOLVER.STEPS (9,)" in ignored


def test_a_missing_file():
    with pytest.raises(FileNotFoundError, match=r"config file nowhere\.yaml does not exist"):
        load_cfg("nowhere.yaml")


def test_a_missing_run_folder(tmp_path):
    with pytest.raises(ConfigError, match="there is no run folder runs/mine: train first"):
        load_cfg("runs/mine")
    with pytest.raises(ConfigError, match=f"{tmp_path} is a folder without config.yaml.*: train first"):
        load_cfg(tmp_path)


@pytest.mark.parametrize("name", ["moved", "moved/self_train"])
def test_a_run_is_where_its_folder_is(tmp_path, monkeypatch, name):
    """Of a weak detector and of a student, which has the weak detector's OUTPUT_DIR."""
    monkeypatch.chdir(tmp_path)
    folder = Path(name)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("OUTPUT_DIR: runs/first\n")
    assert load_cfg(folder).output_dir == "runs/first"  # a config of the user's, not a run's
    (folder / "model_final.pt").touch()
    assert load_cfg(folder).output_dir == load_cfg(folder / "config.yaml").output_dir == "moved"
    assert load_cfg(folder, ["OUTPUT_DIR", "other"]).output_dir == "other"
    Path("mine.yaml").write_text(f"_BASE_: {name}/config.yaml\n")
    assert load_cfg("mine.yaml").output_dir == "runs/first"
    Path("runs").mkdir()
    Path("runs/first").symlink_to(tmp_path / "moved")
    assert load_cfg(folder).output_dir == "runs/first"  # the same folder


@pytest.mark.parametrize(
    ("value", "expected"),
    [("~/x", "/home/me/x"), ("$SETS/x", "/sets/x"), ("${SETS}", "/sets"), ("a~/b", "a~/b"), ("./~", "./~")],
)
def test_the_home_folder_and_variables_in_paths(monkeypatch, value, expected):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("SETS", "/sets")
    paths = [key for key in KEYS.values() if key.path]
    assert len(paths) == 11
    assert [key.read(value) for key in paths] == [expected] * 11


@pytest.mark.parametrize(("value", "message"), [("~nobody-here/x", "no user"), ("$NOT_SET/x", "NOT_SET")])
def test_a_home_folder_or_variable_that_does_not_exist_is_named(value, message):
    with pytest.raises(ConfigError, match=rf"OUTPUT_DIR is .*{message}"):
        KEYS["OUTPUT_DIR"].read(value)


def test_tags_may_not_say_the_opposite_of_what_they_mean(load):
    words = ["DATASETS.MISSING_TAGS", "0.7", "DATASETS.FALSE_TAGS"]
    assert load(*words, "0.2").datasets.false_tags == 0.2
    with pytest.raises(
        ConfigError, match=r"FALSE_TAGS is 0\.3, expected less than 1 together with DATASETS\.MISS"
    ):
        load(*words, "0.3")
