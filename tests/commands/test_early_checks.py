"""Mistakes in the arguments are answered before torch is imported, with what was probably meant."""

import subprocess
import sys
from pathlib import Path

import pytest

from detector.commands.main import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two runs, a config of one of them, and pictures."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "empty" / "check").mkdir(parents=True)
    for run in ("zoo_quick", "photos", "empty_quick"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        (tmp_path / "runs" / run / "config.yaml").write_text("{}\n")
        (tmp_path / "runs" / run / "model_final.pt").touch()
    (tmp_path / "runs" / "begun" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "begun" / "config.yaml").write_text("OUTPUT_DIR: runs/begun\n")
    (tmp_path / "runs" / "begun" / "checkpoints" / "000040.pt").touch()
    (tmp_path / "zoo.yaml").write_text("OUTPUT_DIR: runs/zoo\n")
    (tmp_path / "zoo").mkdir()  # its tables
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.jpg").touch()
    (tmp_path / "Liste.csv").write_text("file,labels\n")
    return tmp_path


MISTAKES = [
    ("predict runs/zoo pictures", "runs/zoo does not exist (did you mean runs/zoo_quick?)"),
    ("predict runs/empty pictures", "runs/empty is no run folder (did you mean runs/empty_quick?): train"),
    ("predict rnus/photos pictures", "rnus/photos does not exist (did you mean runs?)"),
    ("predict pictures runs/zoo_quick", "before PICTURES: detector predict runs/zoo_quick pictures"),
    ("predict runs/photos", "PICTURES is missing: detector predict runs/photos and"),
    ("predict runs/photos picture", "the file or folder picture does not exist (did you mean pictures?)"),
    (
        "predict zoo.yaml pictures",
        "detector predict takes the run folder that detector train wrote, its OUTPUT_DIR",
    ),
    ("export pictures --format onnx", "pictures is a folder of pictures, expected a run folder"),
    ("export runs/photos --format onxn", "invalid choice: 'onxn'"),
    (
        "label runs/photos --labels liste.csv --output o",
        "the table liste.csv does not exist (did you mean Liste.csv?)",
    ),
    ("report runs/photo", "does not exist (did you mean runs/photos?)"),
    ("train zoo.yml", "config file zoo.yml does not exist (did you mean zoo.yaml?)"),
    ("train runs/zoo", "there is no run folder runs/zoo (did you mean runs/zoo_quick?): train first"),
    ("train zoo.yaml SOLVER.MAX_ITR 3", "there is no key SOLVER.MAX_ITR"),
    ("train SOLVER.MAX_ITER 40 zoo.yaml", "before its keys: detector train zoo.yaml SOLVER.MAX_ITER 40"),
    ("train SOLVER.MAX_ITER=40", "before its keys: detector train CONFIG SOLVER.MAX_ITER=40"),
    ("train zoo.yaml --quik", "there is no option --quik (did you mean --quick?)"),
    ("train zoo.yaml \N{EM DASH}quick", "begins with a long dash, expected two short ones: --quick"),
    ("train zoo.yaml --solver.max_iter 3", "here it is the key SOLVER.MAX_ITER, written without --"),
    ("train zoo.yaml quick", "quick is an option, written --quick"),
    ("train zoo.yaml to detector", "to is an option, written --to"),
    ("train runs/photos zoo.yaml", "zoo.yaml follows the config runs/photos, expected one config"),
    ("train pictures", "expected a config, which this writes: detector init pictures"),
    ("train zoo", "zoo is a folder without config.yaml (did you mean zoo.yaml?)"),
    (
        "test runs/begun",
        "training has not finished: if it was interrupted, detector train runs/begun --resume",
    ),
    (
        "predict runs/begun pictures",
        "runs/begun/model_final.pt does not exist; its training has not finished",
    ),
    ("export runs/begun --format onnx", "runs/begun/model_final.pt does not exist; its training has not"),
    ("init Liste.csv pictures", "named with --labels: detector init pictures --labels Liste.csv"),
    ("init pictures Liste.csv", "named with --labels: detector init pictures --labels Liste.csv"),
    ("init pictures more", "not expected: more; detector init --help shows the arguments"),
    ("export runs/photos pictures --format onnx", "not expected: pictures; detector export --help"),
    ("init picture", "picture is no folder of pictures (did you mean pictures?)"),
    ("init Liste.csv", "as in detector init FOLDER --labels Liste.csv"),
    ("review-import export.json --output o.json", "CORRECTED export.json does not exist"),
]
MISTAKES = [(words.split(), told) for words, told in MISTAKES]


@pytest.mark.parametrize(("words", "told"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_answered_without_the_command(folder, capsys, monkeypatch, words, told):
    monkeypatch.setitem(sys.modules, f"detector.commands.{words[0].replace('-', '_')}", None)  # not imported
    try:
        status = main(words)
    except SystemExit as end:  # of argparse
        status = end.code
    assert status == 2
    assert told in capsys.readouterr().err


def test_torch_is_not_imported_to_answer_a_mistake_or_to_help(folder):
    code = """
import sys
from detector.commands.main import main
sys.argv = ["detector"]
for words in (["predict", "--help"], ["train", "zoo.yml"], ["predict", "pictures", "runs/zoo_quick"]):
    try:
        main(words)
    except SystemExit:
        pass
sys.exit("torch" in sys.modules)
"""
    subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, check=True, capture_output=True
    )
