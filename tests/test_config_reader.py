"""detector.config_reader: files that build on one another."""

import re

import pytest

from detector.config import load_cfg
from detector.config_reader import read_yaml_chain


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
    assert (cfg.SOLVER.MAX_ITER, cfg.SOLVER.BASE_LR, cfg.SEED, cfg.DEVICE) == (7, 0.01, 2, "cpu")
    assert cfg.DATASETS.CLASSES == ("a", "b")
    assert load_cfg(path, ["SOLVER.MAX_ITER", "8"]).SOLVER.MAX_ITER == 8
    assert [file.stem for file, _ in read_yaml_chain(path)] == ["bottom", "middle", "mine"]
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
        FileNotFoundError, match=r"file .*gone\.yaml, the _BASE_ of .*mine\.yaml, does not exist"
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
