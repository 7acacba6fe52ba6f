"""The commands on runs: each names the next one, which works."""

import shlex
import shutil

import pytest
from random_run import make_run, make_student

from detector.commands.main import main
from detector.config import load_cfg
from detector.data.toybox import CLASSES, draw_toybox

pytestmark = pytest.mark.usefixtures("process_as_before")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run folder as training leaves it, which was not tested, with a data set of two images."""
    root = tmp_path_factory.mktemp("data") / "toybox"
    draw_toybox(root, train=1, test=1)
    search = ["--mode", "grid", "--workers", "1"]  # in this process
    assert main(["propose", "--voc", str(root), *search, "--output", f"{root}/proposals.npz"]) == 0
    words = ["DATASETS.ROOT", root, "DATASETS.PROPOSALS", root / "proposals.npz", "DATASETS.WORKERS", 0]
    folder = tmp_path_factory.mktemp("runs") / "run"
    return make_run(folder, *map(str, words), "DEVICE", "cpu", "OUTPUT_DIR", str(folder), classes=CLASSES)


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def next_words(capsys):
    """The words of the command that the last line of the output names."""
    return shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: detector "))


@pytest.mark.parametrize("words", [[], ["INPUT.TEST_SIZES", "(48,)"], ["--weights"]])
@pytest.mark.parametrize("student", [False, True])
def test_the_next_command_works(run, words, student, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if student:
        make_student(run)
    if "--weights" in words:
        shutil.copy(run / "model_final.pt", run / "other.pt")
        words = ["--weights", str(run / "other.pt")]
    assert main(["test", "run", "--model", "weak", *words]) == 0
    for command in ("report", "predict"):
        name, *named = next_words(capsys)
        assert name == command
        assert main([command, *named]) == 0
    assert named[-1] == f"{load_cfg(run / 'config.yaml').datasets.root}/JPEGImages"
    assert "next:" not in capsys.readouterr().out
    assert (tmp_path / "found" / "pictures").is_dir()
