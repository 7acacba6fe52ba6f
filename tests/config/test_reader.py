"""Config files that build on one another, damaged and hostile files, and lists of words."""

import os
import re
from itertools import pairwise

import pytest

from detector.config import load_cfg
from detector.config.keys import convert
from detector.config.yaml_files import parse_yaml, read_yaml_chain
from detector.utils.errors import ConfigError, UserError


@pytest.fixture
def write(tmp_path):
    """Write yaml files by name; returns the path of the first."""

    def write_files(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path / f"{next(iter(files))}.yaml"

    return write_files


def test_a_file_says_only_what_differs(write):
    path = write(
        mine="_BASE_: bases/middle.yaml\nSOLVER: {MAX_ITER: 7}\n",
        bases__middle="_BASE_: bottom.yaml\nSEED: 2\nSOLVER: {MAX_ITER: 6, BASE_LR: 1e-2}\n",
        bases__bottom="SEED: 1\nDEVICE: cpu\nDATASETS: {CLASSES: [a, b]}\n",
    )
    cfg = load_cfg(path)
    assert (cfg.solver.max_iter, cfg.solver.base_lr, cfg.seed, cfg.device) == (7, 0.01, 2, "cpu")
    assert cfg.datasets.classes == ("a", "b")
    assert load_cfg(path, ["SOLVER.MAX_ITER", "8"]).solver.max_iter == 8
    assert [file.path.stem for file in read_yaml_chain(path)] == ["bottom", "middle", "mine"]
    assert "_BASE_" not in cfg.dump()


@pytest.mark.parametrize("base", ["mine.yaml", "other.yaml"])
def test_a_circle_is_refused_and_named(write, base):
    path = write(mine=f"_BASE_: {base}\n", other="_BASE_: ./mine.yaml\n")
    chain = "mine.yaml -> .*mine.yaml" if base == "mine.yaml" else "mine.yaml -> .*other.yaml -> .*mine.yaml"
    with pytest.raises(ValueError, match=rf"config file .*mine.yaml builds on itself by _BASE_: .*{chain}$"):
        load_cfg(path)


def test_a_missing_base_is_named_with_who_asks_for_it(write):
    path = write(mine="_BASE_: gone.yaml\n")
    with pytest.raises(
        FileNotFoundError, match=r"_BASE_ of config file .*mine\.yaml: .*gone\.yaml does not exist"
    ):
        load_cfg(path)


@pytest.mark.parametrize("base", ["[a.yaml]", "3"])
def test_a_base_is_one_path(write, base):
    with pytest.raises(ValueError, match=r"mine\.yaml: _BASE_ is .*expected the path of one file"):
        load_cfg(write(mine=f"_BASE_: {base}\n"))


def test_what_is_wrong_in_a_base_is_said_of_the_base(write):
    path = write(mine="_BASE_: base.yaml\n", base="MODEL: {METOD: pcl}\n")
    message = f"config file {re.escape(str(path.with_name('base.yaml')))}: there is no key MODEL.METOD"
    with pytest.raises(ValueError, match=message):
        load_cfg(path)


def test_a_file_may_hold_only_its_base(write):
    assert load_cfg(write(mine="_BASE_: base.yaml\n", base="SEED: 2\n")).seed == 2


def test_a_long_chain_is_refused(write):
    names = [f"f{i}" for i in range(22)]
    files = {name: f"_BASE_: {base}.yaml\n" for name, base in pairwise(names)}
    assert len(read_yaml_chain(write(**dict([*files.items()][2:]), f21="SEED: 2\n"))) == 20
    with pytest.raises(ConfigError, match=r"f0\.yaml builds on more than 20 files"):
        load_cfg(write(**files, f21="SEED: 2\n"))


@pytest.mark.parametrize("as_base", [False, True])
def test_a_fifo_is_refused_rather_than_waited_for(write, tmp_path, as_base):
    os.mkfifo(tmp_path / "pipe.yaml")
    path = write(mine="_BASE_: pipe.yaml\n") if as_base else tmp_path / "pipe.yaml"
    with pytest.raises(UserError, match=r"pipe\.yaml is not a regular file"):
        load_cfg(path)


def test_a_link_to_itself_and_a_name_that_no_file_has(write, tmp_path):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    for base in ("loop.yaml", '"a\\0b.yaml"'):
        with pytest.raises(OSError, match=r"_BASE_ of config file .*mine\.yaml: .* cannot be read"):
            load_cfg(write(mine=f"_BASE_: {base}\n"))


def test_a_folder_is_named(tmp_path):
    folder = tmp_path / "c.yaml"
    folder.mkdir()
    with pytest.raises(UserError, match=f"{re.escape(str(folder))} is a folder, expected a file"):
        load_cfg(folder)


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b"OUTPUT_DIR: caf\xe9\n")
    with pytest.raises(UserError, match=r"c\.yaml is not UTF-8 .*0xe9"):
        load_cfg(tmp_path / "c.yaml")


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{n}: &{n} [{9 * f'*{m}, '}]\n" for m, n in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "c is not yaml"),
        ("- 1\n- 2\n", "c holds a list"),
        ("words", "c holds a str"),
        ("a: \x00", "c is not yaml"),
        ("a: 2001-99-99", "c is not yaml"),
        ("a: " + 5000 * "9", "c is not yaml"),
        ("!!python/object/apply:os.system ['true']", "c is not yaml"),
        ("a: " + 5000 * "[", "maximum recursion depth exceeded"),
        (5000 * "{a: ", "maximum recursion depth exceeded"),
        ("a: [" + 50_000 * "1," + "]", "more than 50000 values"),
        (LAUGHS, "alias"),
        ("a: &a {b: 1}\nc: *a\n", "alias"),
        ("a: &a {b: *a}\n", "alias"),
        ("SEED: 1\nSEED: 2\n", "SEED is set twice"),
        ("SOLVER: {STEPS: [1], STEPS: [2]}", "STEPS is set twice"),
    ],
    ids=range(15),
)
def test_a_text_that_is_no_config_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, "c")


def test_an_alias_of_a_plain_list_is_read():
    # yaml writes one where two keys hold the same tuple, as INPUT.TRAIN_SIZES and TEST_SIZES do by default.
    assert parse_yaml("{a: &sizes [1, 2], b: *sizes}", "c") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    "word", ["[RBC,WBC]", "RBC,WBC", "(RBC, WBC)", "['RBC', 'WBC']", "'RBC', 'WBC'", "RBC,WBC,"]
)
def test_names_need_no_quotes(word):
    assert convert(word, ("a",)) == ("RBC", "WBC")


def test_names_that_python_would_read_as_something_else_stay_names():
    assert convert("[1, True, traffic light]", ("a",)) == ("1", "True", "traffic light")
    assert convert("[1]", ("a",)) == ("1",)


@pytest.mark.parametrize("word", ["cat", "[a,,b]", "['a', b]", "[[a]]", "", "[a"])
def test_what_is_no_list_of_names(word):
    with pytest.raises(TypeError):
        convert(word, ("a",))
