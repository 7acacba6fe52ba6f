"""`detector COMMAND`: every command has a short help with an example, and recipes are found by name."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import detector
from detector.commands import arguments
from detector.commands.main import _OTHER_NAMES, COMMANDS, GROUPS, main
from detector.config import KEYS, load_cfg
from detector.data.proposals.search import Mode
from detector.utils import config_files
from detector.utils.config_files import find_config
from detector.utils.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_shows_an_example(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0
    assert text.startswith(f"usage: detector {command}")
    assert f"\n    detector {command} " in text
    lines = text.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100


def test_without_a_command_all_are_listed(capsys):
    assert main([]) == 2
    listed = capsys.readouterr().out
    assert all(f"  {name} " in listed for name in COMMANDS)
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == listed
    with pytest.raises(SystemExit):
        main(["help", "train"])
    assert capsys.readouterr().out.startswith("usage: detector train")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("trian zoo.yaml", "there is no command trian (did you mean train?)"),
        ("Predict", "there is no command Predict (did you mean predict?)"),
        ("val runs/zoo", "there is no command val (did you mean test?)"),
        ("zzz", "there is no command zzz; detector --help lists all"),
        ("zoo.yaml train --quick", "the command comes first: detector train zoo.yaml --quick"),
        ("--quick train zoo.yaml", "the command comes first: detector train --quick zoo.yaml"),
    ],
)
def test_an_unknown_command_is_answered_with_the_nearest(words, told, capsys):
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert told in capsys.readouterr().err


def test_other_names_stand_for_commands():
    assert {*_OTHER_NAMES.values()} <= {*COMMANDS}
    assert not {*_OTHER_NAMES} & {*COMMANDS}


def test_what_may_be_left_out_is_not_called_missing(capsys):
    with pytest.raises(SystemExit):
        main(["report"])
    assert capsys.readouterr().err.endswith("the following arguments are required: RUN\n")


def test_help_has_all_commands_in_groups_and_names_a_page(capsys):
    assert main([]) == 2
    listed = capsys.readouterr().out
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    assert (
        listed.index("first, from tagged pictures") < listed.index("  init ") < listed.index("later, boxes")
    )
    assert "docs/quick_start.md" in listed


def test_version_and_environment(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"detector {detector.__version__}\n"
    assert main(["env"]) == 0
    told = capsys.readouterr().out
    assert f"torch       {torch.__version__}" in told
    assert "numpy " in told


@pytest.mark.parametrize(
    ("word", "ours"),
    [("epochs", "MAX_ITER"), ("batch", "IMAGES_PER_BATCH"), ("lr", "BASE_LR"), ("imgsz", "TRAIN_SIZES")],
)
def test_names_of_other_trainers_are_answered_with_ours(word, ours, capsys):
    assert main(["train", "toybox_pcl", word, "3"]) == 2
    assert f"there is no key {word}; here it is " in (told := capsys.readouterr().err)
    assert ours in told
    assert main(["train", "toybox_pcl", f"SOLVER.{word.upper()}=3"]) == 2
    assert ours in capsys.readouterr().err
    for words in ([f"--{word}", "3"], [f"--{word}=3"]):
        with pytest.raises(SystemExit):
            main(["train", "toybox_pcl", *words])
        assert ours in capsys.readouterr().err


def test_help_of_train_names_the_keys_that_people_want(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    told = capsys.readouterr().out
    keys = ("SOLVER.MAX_ITER", "SOLVER.IMAGES_PER_BATCH", "SOLVER.BASE_LR", "INPUT.TRAIN_SIZES", "OUTPUT_DIR")
    assert all(key in told and key in KEYS for key in keys)


def test_python_m_detector_is_the_command():
    words = [sys.executable, "-m", "detector", "--help"]
    text = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert all(f"  {name} " in text for name in COMMANDS)


def test_ctrl_c_while_a_command_is_imported_shows_no_traceback(monkeypatch, capfd, tmp_path):
    """Not even where a module that is imported makes another error of it, as some do."""

    class Interrupted:
        @staticmethod
        def find_spec(name, *_):
            if name == "detector.commands.report":
                try:
                    signal.raise_signal(signal.SIGINT)
                except KeyboardInterrupt:
                    raise ImportError(name) from None

    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(sys, "meta_path", [Interrupted, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "detector.commands.report", raising=False)
    (tmp_path / "model_final.pt").touch()
    with pytest.raises(SystemExit) as end:
        main(["report", str(tmp_path)])
    assert end.value.code == 130
    assert capfd.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_summarized_as_its_help_begins(name):
    described = getattr(arguments, name.replace("-", "_"))
    assert " ".join(described.__doc__.split()).startswith(COMMANDS[name].summary)


def test_proposals_are_made_in_the_modes_of_the_config():
    assert Mode.__args__ == KEYS["PROPOSALS.MODE"].choices


def test_the_modules_of_the_commands_load_no_networks():
    """`detector propose` starts processes that import its module again."""
    code = "import sys, detector.commands.main; sys.exit('detector.modeling' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_a_recipe_is_found_by_its_name_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = load_cfg("photos_pcl_lite0")
    assert named == load_cfg(ROOT / "configs" / "photos_pcl_lite0.yaml")
    Path("mine.yaml").write_text("_BASE_: photos_pcl_lite0\nSEED: 7\n")
    assert load_cfg("mine.yaml").seed == 7
    assert load_cfg("mine.yaml").model == named.model


def test_an_unknown_name_names_the_nearest():
    with pytest.raises(ConfigError, match=r"no file or recipe photos_pcl; .*photos_pcl_lite0"):
        find_config("photos_pcl")


def test_a_file_and_a_run_folder_come_before_recipes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("runs/mine.yaml") == Path("runs/mine.yaml")  # which the caller reads, or misses
    Path("toybox_pcl").mkdir()
    Path("toybox_pcl/config.yaml").touch()
    assert find_config("toybox_pcl") == Path("toybox_pcl/config.yaml")


def test_a_wheel_has_the_recipes_inside(tmp_path, monkeypatch):
    (tmp_path / "_configs").mkdir()
    (tmp_path / "_configs" / "quick.yaml").write_text("SEED: 3\n")
    monkeypatch.setattr(config_files, "_PACKAGE", tmp_path)
    assert load_cfg("quick").seed == 3


def test_a_path_that_no_report_can_hold_is_refused_before_any_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path(os.fsdecode(b"caf\xe9")).mkdir()
    for words in (
        ["predict", "--weights=run", "--output=found", os.fsdecode(b"caf\xe9")],
        ["init", os.fsdecode(b"caf\xe9")],
    ):
        assert main(words) == 2
        assert "the name 'caf\\udce9' is not UTF-8: rename it" in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 1
