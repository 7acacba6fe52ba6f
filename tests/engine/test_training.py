"""detector.train and detector.evaluate, as a notebook calls them; tests/tools has what they do in full."""

import json
import shutil
import warnings

import pytest
from random_run import CONFIG

import detector
from detector.data.proposals.search import make_finder, propose
from detector.data.toybox import draw_toybox


@pytest.mark.usefixtures("process_as_before")
def test_train_evaluate_load(tmp_path, capsys):
    root = tmp_path / "toybox"
    draw_toybox(root, train=2, test=2)
    images = {path.stem: path for path in sorted((root / "JPEGImages").iterdir())}
    find, parameters = make_finder("grid", 300)
    propose(images, root / "proposals.npz", find, parameters, workers=1)
    quick = {
        "MODEL.BACKBONE.TIMM_NAME": "resnet18",  # which only self-training uses
        "OUTPUT_DIR": str(tmp_path / "run"),
        "DATASETS.ROOT": str(root),
        "DATASETS.PROPOSALS": str(root / "proposals.npz"),
        "DATASETS.WORKERS": 0,
        "INPUT.TRAIN_SIZES": (64,),
        "INPUT.TEST_SIZES": [64],
        "MODEL.BOX_FEATURES.WIDTHS": (16,),
        "SOLVER.MAX_ITER": 1,
        "SOLVER.IMAGES_PER_BATCH": 1,
    }
    before = warnings.showwarning
    for path in (root / "Annotations").iterdir():
        path.write_text(path.read_text().replace("<difficult>0<", "<difficult>1<"))
    folder = detector.train(CONFIG, quick)
    assert folder == tmp_path / "run"
    assert "WARNING toybox_test: all objects of " in (folder / "log.txt").read_text()
    assert "model       small from random weights" in (folder / "log.txt").read_text()
    metrics = detector.evaluate(folder, {"TEST.PICTURES": 0})
    assert warnings.showwarning is before
    assert metrics == json.loads((folder / "metrics.json").read_text())
    assert not (folder / "pictures").exists()
    assert "AP in percent on toybox_test" in capsys.readouterr().out
    assert detector.load(folder)([str(path) for path in images.values()])[0].image_id == str(images["000001"])
    with pytest.raises(ValueError, match="holds an earlier run"):
        detector.train(CONFIG, quick)
    moved = folder.rename(tmp_path / "moved")
    assert detector.train(moved, {"SOLVER.MAX_ITER": 2}, resume=True) == moved
    assert "step 2/2" in (moved / "log.txt").read_text()
    assert not folder.exists()
    shutil.rmtree(moved / "checkpoints")  # to save space: a new run would overwrite the weights
    with pytest.raises(ValueError, match=r"model_final.pt is of an earlier run without a checkpoint"):
        detector.train(moved, {"SOLVER.MAX_ITER": 3}, resume=True)
